//! The arithmetic that every definition of the model is written in (DESIGN section 5).
//!
//! A value of a type implementing [`Lanes`] is a token for an instruction level; `L::F` is its vector of `f32`, one texel
//! a lane. [`Scalar`] has one lane and is *the* definition; the wider levels re-instantiate the same generic text in
//! `backend/simd.rs` and give the same bits, because every operation here is correctly rounded or exact.
//! There is no min, max, clamp, round or reciprocal: their NaN and tie rules differ between machines.

/// One instruction level: a vector of `f32` lanes and the few operations that give equal bits everywhere.
pub trait Lanes: Copy + Send + Sync {
    /// `N` lanes of f32.
    type F: Copy;
    /// `N` lanes of u32: the bits of an `F`.
    type U: Copy;
    /// The result of a comparison, one truth value a lane.
    type M: Copy;
    /// Number of lanes.
    const N: usize;
    /// How many vectors a register block of the dense layer holds side by side.
    const BLOCK: usize;

    /// Runs `f` where the level's instructions are enabled: what a function that is not inlined starts with.
    fn enter<R>(self, f: impl FnOnce() -> R) -> R;
    /// The same value in every lane.
    fn splat(self, x: f32) -> Self::F;
    /// The first `N` values of `x`.
    fn load(self, x: &[f32]) -> Self::F;
    /// Writes to the first `N` values of `out`.
    fn store(self, x: Self::F, out: &mut [f32]);
    /// a + b
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// a - b
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// a * b
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// a / b
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// a * b + c with one rounding
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Correctly rounded square root.
    fn sqrt(self, a: Self::F) -> Self::F;
    /// Largest integer not above.
    fn floor(self, a: Self::F) -> Self::F;
    /// Integer part, towards zero.
    fn trunc(self, a: Self::F) -> Self::F;
    /// a < b; false where either is NaN.
    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    /// a <= b; false where either is NaN.
    fn le(self, a: Self::F, b: Self::F) -> Self::M;
    /// `yes` where the mask holds, else `no`.
    fn select(self, mask: Self::M, yes: Self::F, no: Self::F) -> Self::F;
    /// The bits of `a`.
    fn bits(self, a: Self::F) -> Self::U;
    /// The f32 whose bits are `a`.
    #[allow(clippy::wrong_self_convention)]
    fn from_bits(self, a: Self::U) -> Self::F;
    /// The same integer in every lane.
    fn splat_bits(self, a: u32) -> Self::U;
    /// The first `N` integers of `x`.
    fn load_bits(self, x: &[u32]) -> Self::U;
    /// a + b, wrapping
    fn add_bits(self, a: Self::U, b: Self::U) -> Self::U;
    /// a - b, wrapping
    fn sub_bits(self, a: Self::U, b: Self::U) -> Self::U;
    /// a & b
    fn and_bits(self, a: Self::U, b: Self::U) -> Self::U;
    /// a | b
    fn or_bits(self, a: Self::U, b: Self::U) -> Self::U;
    /// a ^ b
    fn xor_bits(self, a: Self::U, b: Self::U) -> Self::U;
    /// a << n
    fn shl_bits(self, a: Self::U, n: u32) -> Self::U;
    /// a >> n, filling with zeros
    fn shr_bits(self, a: Self::U, n: u32) -> Self::U;

    /// -a, exactly (the sign bit flips, also of zero and NaN).
    #[inline(always)]
    fn neg(self, a: Self::F) -> Self::F {
        self.from_bits(self.xor_bits(self.bits(a), self.splat_bits(0x8000_0000)))
    }
    /// |a|, exactly.
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        self.from_bits(self.and_bits(self.bits(a), self.splat_bits(0x7fff_ffff)))
    }
}

/// One lane: the scalar definition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scalar;

impl Lanes for Scalar {
    type F = f32;
    type U = u32;
    type M = bool;
    const N: usize = 1;
    const BLOCK: usize = 1;

    #[inline(always)]
    fn enter<R>(self, f: impl FnOnce() -> R) -> R {
        f()
    }
    #[inline(always)]
    fn splat(self, x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn load(self, x: &[f32]) -> f32 {
        x[0]
    }
    #[inline(always)]
    fn store(self, x: f32, out: &mut [f32]) {
        out[0] = x;
    }
    #[inline(always)]
    fn add(self, a: f32, b: f32) -> f32 {
        a + b
    }
    #[inline(always)]
    fn sub(self, a: f32, b: f32) -> f32 {
        a - b
    }
    #[inline(always)]
    fn mul(self, a: f32, b: f32) -> f32 {
        a * b
    }
    #[inline(always)]
    fn div(self, a: f32, b: f32) -> f32 {
        a / b
    }
    #[inline(always)]
    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn sqrt(self, a: f32) -> f32 {
        a.sqrt()
    }
    #[inline(always)]
    fn floor(self, a: f32) -> f32 {
        a.floor()
    }
    #[inline(always)]
    fn trunc(self, a: f32) -> f32 {
        a.trunc()
    }
    #[inline(always)]
    fn lt(self, a: f32, b: f32) -> bool {
        a < b
    }
    #[inline(always)]
    fn le(self, a: f32, b: f32) -> bool {
        a <= b
    }
    #[inline(always)]
    fn select(self, mask: bool, yes: f32, no: f32) -> f32 {
        if mask { yes } else { no }
    }
    #[inline(always)]
    fn bits(self, a: f32) -> u32 {
        a.to_bits()
    }
    #[inline(always)]
    fn from_bits(self, a: u32) -> f32 {
        f32::from_bits(a)
    }
    #[inline(always)]
    fn splat_bits(self, a: u32) -> u32 {
        a
    }
    #[inline(always)]
    fn load_bits(self, x: &[u32]) -> u32 {
        x[0]
    }
    #[inline(always)]
    fn add_bits(self, a: u32, b: u32) -> u32 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn sub_bits(self, a: u32, b: u32) -> u32 {
        a.wrapping_sub(b)
    }
    #[inline(always)]
    fn and_bits(self, a: u32, b: u32) -> u32 {
        a & b
    }
    #[inline(always)]
    fn or_bits(self, a: u32, b: u32) -> u32 {
        a | b
    }
    #[inline(always)]
    fn xor_bits(self, a: u32, b: u32) -> u32 {
        a ^ b
    }
    #[inline(always)]
    fn shl_bits(self, a: u32, n: u32) -> u32 {
        a << n
    }
    #[inline(always)]
    fn shr_bits(self, a: u32, n: u32) -> u32 {
        a >> n
    }
}
