//! The instruction levels: fearless_simd's vectors as [`Lanes`], and the choice of one at run time.
//!
//! No arithmetic of its own: [`with_level!`] compiles a generic definition once per level.

use crate::model::lanes::Lanes;
use fearless_simd::{Avx2, Avx512, Simd, prelude::*};

/// A fearless_simd token as [`Lanes`]; `BLOCK` is what its register file holds.
#[derive(Clone, Copy, Debug)]
pub struct Wide<S: Simd, const BLOCK: usize>(pub S);

impl<S: Simd, const BLOCK: usize> Lanes for Wide<S, BLOCK> {
    type F = S::f32s;
    type U = S::u32s;
    type M = S::mask32s;
    const N: usize = <S::f32s as SimdBase<S>>::LEN;
    const BLOCK: usize = BLOCK;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        S::f32s::splat(self.0, x)
    }
    #[inline(always)]
    fn load(self, x: &[f32]) -> Self::F {
        S::f32s::from_slice(self.0, &x[..Self::N])
    }
    #[inline(always)]
    fn store(self, x: Self::F, out: &mut [f32]) {
        x.store_slice(&mut out[..Self::N]);
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        a + b
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        a - b
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        a * b
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        a / b
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        a.mul_add_precise(b, c)
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        a.sqrt()
    }
    #[inline(always)]
    fn floor(self, a: Self::F) -> Self::F {
        a.floor()
    }
    #[inline(always)]
    fn trunc(self, a: Self::F) -> Self::F {
        a.trunc()
    }
    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> Self::M {
        a.simd_lt(b)
    }
    #[inline(always)]
    fn le(self, a: Self::F, b: Self::F) -> Self::M {
        a.simd_le(b)
    }
    #[inline(always)]
    fn select(self, mask: Self::M, yes: Self::F, no: Self::F) -> Self::F {
        mask.select(yes, no)
    }
    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::U {
        a.bitcast()
    }
    #[inline(always)]
    fn from_bits(self, a: Self::U) -> Self::F {
        a.bitcast()
    }
    #[inline(always)]
    fn splat_bits(self, a: u32) -> Self::U {
        S::u32s::splat(self.0, a)
    }
    #[inline(always)]
    fn load_bits(self, x: &[u32]) -> Self::U {
        S::u32s::from_slice(self.0, &x[..Self::N])
    }
    #[inline(always)]
    fn add_bits(self, a: Self::U, b: Self::U) -> Self::U {
        a + b
    }
    #[inline(always)]
    fn sub_bits(self, a: Self::U, b: Self::U) -> Self::U {
        a - b
    }
    #[inline(always)]
    fn and_bits(self, a: Self::U, b: Self::U) -> Self::U {
        a & b
    }
    #[inline(always)]
    fn or_bits(self, a: Self::U, b: Self::U) -> Self::U {
        a | b
    }
    #[inline(always)]
    fn xor_bits(self, a: Self::U, b: Self::U) -> Self::U {
        a ^ b
    }
    #[inline(always)]
    fn shl_bits(self, a: Self::U, n: u32) -> Self::U {
        a << n
    }
    #[inline(always)]
    fn shr_bits(self, a: Self::U, n: u32) -> Self::U {
        a >> n
    }
}

/// The levels a user can ask for; `Auto` takes the widest this CPU has.
#[derive(Clone, Copy, Debug)]
pub enum SimdLevel {
    /// 16 lanes, Ice Lake's AVX-512 set.
    Avx512(Avx512),
    /// 8 lanes, AVX2 and FMA.
    Avx2(Avx2),
    /// One lane, compiled with fused multiply-add.
    ScalarFma(Avx2),
    /// One lane, where the CPU has no fused multiply-add: correct bits by the C library, slow.
    Scalar,
}
