//! The instruction levels: fearless_simd's vectors as [`Lanes`], and the choice of one at run time.
//!
//! No arithmetic of its own: [`crate::with_level`] compiles a generic definition once per level.

use crate::config::Simd as SimdChoice;
use crate::error::{Error, Result};
use crate::model::lanes::{Lanes, Scalar};
use fearless_simd::{Avx2, Avx512, Level, Simd, prelude::*};

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
    fn enter<R>(self, f: impl FnOnce() -> R) -> R {
        self.0.vectorize(f)
    }
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

/// The scalar definition compiled where the CPU has fused multiply-add: one lane, the same text as [`Scalar`].
#[derive(Clone, Copy, Debug)]
pub struct OneLane(pub Avx2);

macro_rules! as_scalar {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {
        $(#[inline(always)]
        fn $name(self, $($arg: $ty),*) -> $out {
            Scalar.$name($($arg),*)
        })*
    };
}

impl Lanes for OneLane {
    type F = f32;
    type U = u32;
    type M = bool;
    const N: usize = 1;
    const BLOCK: usize = 1;

    #[inline(always)]
    fn enter<R>(self, f: impl FnOnce() -> R) -> R {
        self.0.vectorize(f)
    }
    as_scalar! {
        splat(x: f32) -> f32;
        load(x: &[f32]) -> f32;
        store(x: f32, out: &mut [f32]) -> ();
        add(a: f32, b: f32) -> f32;
        sub(a: f32, b: f32) -> f32;
        mul(a: f32, b: f32) -> f32;
        div(a: f32, b: f32) -> f32;
        fma(a: f32, b: f32, c: f32) -> f32;
        sqrt(a: f32) -> f32;
        floor(a: f32) -> f32;
        trunc(a: f32) -> f32;
        lt(a: f32, b: f32) -> bool;
        le(a: f32, b: f32) -> bool;
        select(mask: bool, yes: f32, no: f32) -> f32;
        bits(a: f32) -> u32;
        from_bits(a: u32) -> f32;
        splat_bits(a: u32) -> u32;
        load_bits(x: &[u32]) -> u32;
        add_bits(a: u32, b: u32) -> u32;
        sub_bits(a: u32, b: u32) -> u32;
        and_bits(a: u32, b: u32) -> u32;
        or_bits(a: u32, b: u32) -> u32;
        xor_bits(a: u32, b: u32) -> u32;
        shl_bits(a: u32, n: u32) -> u32;
        shr_bits(a: u32, n: u32) -> u32;
    }
}

/// The level in use.
#[derive(Clone, Copy, Debug)]
pub enum SimdLevel {
    /// 16 lanes, Ice Lake's AVX-512 set.
    Avx512(Avx512),
    /// 8 lanes, AVX2 and FMA.
    Avx2(Avx2),
    /// One lane, compiled with fused multiply-add.
    ScalarFma(Avx2),
    /// One lane on a CPU without AVX2: fused multiply-add by the C library, correct but slow.
    Scalar,
}

impl SimdLevel {
    /// The level for a choice; `auto` takes the widest that this CPU has.
    ///
    /// # Errors
    /// A level that this CPU does not have.
    pub fn new(choice: SimdChoice) -> Result<Self> {
        let cpu = Level::new();
        let missing = |name: &str| {
            Error::Backend(format!(
                "--simd {name}: this CPU does not have it; `ntc-es bench --list-simd` lists what it has"
            ))
        };
        match choice {
            SimdChoice::Avx512 => cpu.as_avx512().map(SimdLevel::Avx512).ok_or_else(|| missing("avx512")),
            SimdChoice::Avx2 => cpu.as_avx2().map(SimdLevel::Avx2).ok_or_else(|| missing("avx2")),
            SimdChoice::Scalar => Ok(cpu.as_avx2().map_or(SimdLevel::Scalar, SimdLevel::ScalarFma)),
            SimdChoice::Auto => Ok(Self::all()[0]),
        }
    }

    /// The levels that this CPU has, widest first.
    pub fn all() -> Vec<SimdLevel> {
        let cpu = Level::new();
        let wide = [cpu.as_avx512().map(SimdLevel::Avx512), cpu.as_avx2().map(SimdLevel::Avx2)];
        let scalar = cpu.as_avx2().map_or(SimdLevel::Scalar, SimdLevel::ScalarFma);
        wide.into_iter().flatten().chain([scalar]).collect()
    }

    /// Its name as in `--simd`.
    pub fn name(self) -> &'static str {
        match self {
            SimdLevel::Avx512(_) => "avx512",
            SimdLevel::Avx2(_) => "avx2",
            SimdLevel::ScalarFma(_) | SimdLevel::Scalar => "scalar",
        }
    }
}

/// Evaluates an expression with `$l` bound to the [`Lanes`] of `$level`, compiled for that level's instructions.
///
/// The expression is compiled once per level; what it calls must be `#[inline(always)]` or begin with [`Lanes::enter`].
#[macro_export]
macro_rules! with_level {
    ($level:expr, $l:ident => $body:expr) => {
        match $level {
            $crate::backend::simd::SimdLevel::Avx512(token) => {
                let $l = $crate::backend::simd::Wide::<_, 4>(token);
                $crate::model::lanes::Lanes::enter(
                    $l,
                    #[inline(always)]
                    || $body,
                )
            }
            $crate::backend::simd::SimdLevel::Avx2(token) => {
                let $l = $crate::backend::simd::Wide::<_, 2>(token);
                $crate::model::lanes::Lanes::enter(
                    $l,
                    #[inline(always)]
                    || $body,
                )
            }
            $crate::backend::simd::SimdLevel::ScalarFma(token) => {
                let $l = $crate::backend::simd::OneLane(token);
                $crate::model::lanes::Lanes::enter(
                    $l,
                    #[inline(always)]
                    || $body,
                )
            }
            $crate::backend::simd::SimdLevel::Scalar => {
                let $l = $crate::model::lanes::Scalar;
                $body
            }
        }
    };
}
