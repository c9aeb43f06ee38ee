//! Elementary functions in the [`Lanes`] arithmetic: the same bits on every instruction level, thread and device.
//!
//! Every function takes its token first and reads "for each lane". Accuracy is stated in units in the last place of the
//! f32 result (ulp; 2^-149 below the normal range) against the real function, and holds for all inputs of the stated
//! range: `tests/simd_math.rs` measures all 2^32 in a release build, the unit tests a stride of a million.
//! A NaN gives the one quiet NaN `0x7fc00000`, chosen by comparison, so that payloads never depend on the machine.
//!
//! Polynomials: minimax in relative error by the Remez exchange at 40 digits, coefficients then rounded to f32 and
//! moved by single ulps in a random search that lowers the maximum error. The error named beside each table is that of
//! the rounded polynomial in real arithmetic. Range reduction is Cody and Waite's (Software Manual for the Elementary
//! Functions, 1980), with fused multiply-adds in place of short constants.

use crate::model::lanes::Lanes;

/// Bound of [`exp`], in ulp, for every input (measured: 1.03).
pub const EXP_ULP: f64 = 1.5;
/// Bound of [`ln`], in ulp, for every positive input, denormals too (measured: 0.95).
pub const LN_ULP: f64 = 1.5;
/// Bound of [`sigmoid`], in ulp, for x >= -88 (measured: 2.49); below, the error is less than 2^-126.
pub const SIGMOID_ULP: f64 = 3.0;
/// Bound of [`tanh`], in ulp, for every input (measured: 2.65).
pub const TANH_ULP: f64 = 3.0;
/// Bound of [`sin`] and [`cos`], in ulp, for |x| <= [`SIN_RANGE`] (measured: 1.55).
pub const SIN_ULP: f64 = 2.0;
/// Largest |x|, in radians, for which [`SIN_ULP`] holds.
pub const SIN_RANGE: f32 = 65536.0;
/// Bound of [`sin_cos_turns`], in ulp, for multiples of 2^-24 in [0, 1) (measured: 1.97).
pub const TURNS_ULP: f64 = 2.0;

/// 1.5 * 2^23: added to |x| < 2^22 it leaves round-half-even(x) in the low bits of the sum.
const MAGIC: f32 = 12_582_912.0;
/// [`MAGIC`] plus the exponent bias, so that the sum's low bits are the exponent field of 2^n.
const MAGIC_BIASED: f32 = 12_583_039.0;
const SIGN: u32 = 0x8000_0000;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 to 24 bits, and what is missing.
const LN_2: [f32; 2] = [std::f32::consts::LN_2, -1.904_654_2e-9];
/// pi / 2 to 24 bits, and what is missing, twice: 72 bits together.
const PI_2: [f32; 3] = [std::f32::consts::FRAC_PI_2, -4.371_139e-8, -1.715_124_5e-15];
const TWO_OVER_PI: f32 = std::f32::consts::FRAC_2_PI;

/// (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, constant term first: 4.3e-9 relative to e^r.
const EXP: [f32; 5] = [0.5, 0.166_664_88, 0.041_665_554, 0.008_372_293, 0.001_403_539_7];
/// (ln(1 + f) - f) / f^2 on |f| <= 1/3, constant term first: 5.1e-9 relative to ln(1 + f).
const LN: [f32; 9] = [
    -0.5,
    0.333_331_97,
    -0.249_999_21,
    0.200_114_85,
    -0.166_742_85,
    0.139_879_63,
    -0.122_780_35,
    0.140_741_45,
    -0.124_530_76,
];
/// (sin r - r) / r^3 in r^2 on |r| <= 1.003 pi / 4, constant term first: 4.4e-9 relative to sin r.
const SIN: [f32; 3] = [-0.166_666_54, 0.008_332_136, -0.000_195_134_46];
/// (cos r - 1 + r^2 / 2) / r^4 in r^2 on the same range, constant term first: 1.4e-10 relative to cos r.
const COS: [f32; 3] = [0.041_666_646, -0.001_388_730_2, 2.443_097_8e-5];

/// c[0] + c[1] x + ... by Horner's rule, one fused multiply-add a coefficient.
#[inline(always)]
fn horner<L: Lanes>(l: L, x: L::F, c: &[f32]) -> L::F {
    let last = c.len() - 1;
    let mut sum = l.splat(c[last]);
    for &next in c[..last].iter().rev() {
        sum = l.fma(sum, x, l.splat(next));
    }
    sum
}

/// `y`, or the one quiet NaN in the lanes where `x` is NaN.
#[inline(always)]
fn nan_of<L: Lanes>(l: L, x: L::F, y: L::F) -> L::F {
    l.select(l.le(x, x), y, l.splat(f32::NAN))
}

/// `x` kept within [low, high] by selects; NaN becomes `low`.
#[inline(always)]
fn within<L: Lanes>(l: L, x: L::F, low: f32, high: f32) -> L::F {
    let x = l.select(l.lt(l.splat(low), x), x, l.splat(low));
    l.select(l.lt(x, l.splat(high)), x, l.splat(high))
}

/// 2^n, where the low bits of `t` are n + 127: n = 128 gives infinity, n below -126 is not allowed.
#[inline(always)]
fn pow2<L: Lanes>(l: L, t: L::U) -> L::F {
    l.from_bits(l.shl_bits(t, 23))
}

/// z = n ln 2 + r for |z| < 150: (the biased sum that holds n, n, e^r - 1), |r| <= 0.3466.
#[inline(always)]
fn exp_parts<L: Lanes>(l: L, z: L::F) -> (L::F, L::F, L::F) {
    let t = l.fma(z, l.splat(LOG2_E), l.splat(MAGIC_BIASED));
    let n = l.sub(t, l.splat(MAGIC_BIASED));
    // The first difference is exact: both terms are multiples of 2^-25 and nearly cancel.
    let r = l.fma(n, l.splat(-LN_2[0]), z);
    let r = l.fma(n, l.splat(-LN_2[1]), r);
    let q = l.fma(horner(l, r, &EXP), l.mul(r, r), r);
    (t, n, q)
}

/// e^x, within [`EXP_ULP`]; 0 from -104 down, infinity from 88.73 up, denormal results rounded once.
#[inline(always)]
pub fn exp<L: Lanes>(l: L, x: L::F) -> L::F {
    let z = within(l, x, -104.0, 89.0);
    let (t, n, q) = exp_parts(l, z);
    let p = l.add(q, l.splat(1.0));
    // 2^n may lie outside the normal range: two factors of about 2^(n/2), of which only the second can round.
    let half = l.fma(n, l.splat(0.5), l.splat(MAGIC_BIASED));
    let rest = l.add_bits(l.sub_bits(l.bits(t), l.bits(half)), l.splat_bits(127));
    let y = l.mul(l.mul(p, pow2(l, l.bits(half))), pow2(l, rest));
    nan_of(l, x, y)
}

/// The logistic function 1 / (1 + e^-x), in [0, 1], within [`SIGMOID_ULP`]; exactly 0 from -88.4 down.
#[inline(always)]
pub fn sigmoid<L: Lanes>(l: L, x: L::F) -> L::F {
    let one = l.splat(1.0);
    // At 89 the power of two is infinite and the quotient 0; at -87 the sum is already 1.
    let z = within(l, l.neg(x), -87.0, 89.0);
    let (t, _, q) = exp_parts(l, z);
    let y = l.div(one, l.fma(l.add(q, one), pow2(l, l.bits(t)), one));
    nan_of(l, x, y)
}

/// Hyperbolic tangent, odd to the bit, in [-1, 1], within [`TANH_ULP`].
#[inline(always)]
pub fn tanh<L: Lanes>(l: L, x: L::F) -> L::F {
    // e^2|x| - 1 keeps its relative accuracy near 0, and so does the quotient by itself plus 2.
    let a = l.abs(x);
    let z = within(l, l.add(a, a), 0.0, 20.0);
    let (t, _, q) = exp_parts(l, z);
    let s = pow2(l, l.bits(t));
    let e = l.fma(s, q, l.sub(s, l.splat(1.0)));
    let y = l.div(e, l.add(e, l.splat(2.0)));
    let sign = l.and_bits(l.bits(x), l.splat_bits(SIGN));
    nan_of(l, x, l.from_bits(l.xor_bits(l.bits(y), sign)))
}

/// ln(x 2^k) for normal positive `x`, where `offset` = 2^23 + 127 - k.
#[inline(always)]
fn ln_scaled<L: Lanes>(l: L, x: L::F, offset: L::F) -> L::F {
    // x = 2^e m with m in [2/3, 4/3): the bits of 2/3 are subtracted, and the bias added back.
    const TWO_THIRDS: u32 = 0x3f2a_aaab;
    let w = l.add_bits(l.bits(x), l.splat_bits(0x3f80_0000 - TWO_THIRDS));
    let biased = l.or_bits(l.shr_bits(w, 23), l.splat_bits(0x4b00_0000));
    let e = l.sub(l.from_bits(biased), offset);
    let m = l.add_bits(l.and_bits(w, l.splat_bits(0x007f_ffff)), l.splat_bits(TWO_THIRDS));
    let f = l.sub(l.from_bits(m), l.splat(1.0));
    let y = l.fma(horner(l, f, &LN), l.mul(f, f), f);
    l.fma(e, l.splat(LN_2[0]), y)
}

/// [`ln`] for positive normal finite `x` only: the same bits there, without the special cases; anything elsewhere.
#[inline(always)]
pub fn ln_normal<L: Lanes>(l: L, x: L::F) -> L::F {
    ln_scaled(l, x, l.splat(8_388_735.0))
}

/// Natural logarithm, within [`LN_ULP`]; ln(+-0) = -infinity, and NaN below 0.
#[inline(always)]
pub fn ln<L: Lanes>(l: L, x: L::F) -> L::F {
    let denormal = l.lt(x, l.splat(f32::MIN_POSITIVE));
    let scaled = l.select(denormal, l.mul(x, l.splat(8_388_608.0)), x);
    let offset = l.select(denormal, l.splat(8_388_758.0), l.splat(8_388_735.0));
    let y = ln_scaled(l, scaled, offset);
    let y = l.select(l.lt(x, l.splat(f32::INFINITY)), y, l.splat(f32::INFINITY));
    let y = l.select(l.lt(l.splat(0.0), x), y, l.splat(f32::NEG_INFINITY));
    l.select(l.le(l.splat(0.0), x), y, l.splat(f32::NAN))
}

/// (sin, cos) of n pi/2 + r for |r| <= 1.003 pi/4, where the two low bits of `t` are n mod 4.
#[inline(always)]
fn quadrant<L: Lanes>(l: L, t: L::U, r: L::F) -> (L::F, L::F) {
    let z = l.mul(r, r);
    let s = l.fma(l.mul(horner(l, z, &SIN), z), r, r);
    let c = l.fma(horner(l, z, &COS), z, l.splat(-0.5));
    let c = l.fma(c, z, l.splat(1.0));
    // Odd n: 2.0, else 0.0. The sine is negative for n = 2, 3, the cosine for n = 1, 2.
    let n = l.shl_bits(t, 30);
    let odd = l.lt(l.splat(1.0), l.from_bits(l.and_bits(n, l.splat_bits(0x4000_0000))));
    let sin_sign = l.and_bits(n, l.splat_bits(SIGN));
    let cos_sign = l.and_bits(l.add_bits(n, l.splat_bits(0x4000_0000)), l.splat_bits(SIGN));
    let sin = l.xor_bits(l.bits(l.select(odd, c, s)), sin_sign);
    let cos = l.xor_bits(l.bits(l.select(odd, s, c)), cos_sign);
    (l.from_bits(sin), l.from_bits(cos))
}

/// (sin x, cos x) for `x` in radians, each within [`SIN_ULP`] for |x| <= [`SIN_RANGE`]; sin is odd, cos even, to the bit.
///
/// From there to 2^22 the absolute error stays below 1e-5; larger finite arguments count as 0; NaN for infinities.
#[inline(always)]
pub fn sin_cos<L: Lanes>(l: L, x: L::F) -> (L::F, L::F) {
    let a = l.abs(x);
    let inside = l.select(l.le(a, l.splat(4_194_304.0)), a, l.splat(0.0));
    let t = l.fma(inside, l.splat(TWO_OVER_PI), l.splat(MAGIC));
    let n = l.sub(t, l.splat(MAGIC));
    // The first difference is exact (multiples of 2^-24 that nearly cancel); the other two round relative to r.
    let r = l.fma(n, l.splat(-PI_2[0]), inside);
    let r = l.fma(n, l.splat(-PI_2[1]), r);
    let r = l.fma(n, l.splat(-PI_2[2]), r);
    let (sin, cos) = quadrant(l, l.bits(t), r);
    let sign = l.and_bits(l.bits(x), l.splat_bits(SIGN));
    let sin = l.from_bits(l.xor_bits(l.bits(sin), sign));
    let finite = l.lt(a, l.splat(f32::INFINITY));
    let nan = l.splat(f32::NAN);
    (l.select(finite, sin, nan), l.select(finite, cos, nan))
}

/// Sine of `x` radians: the first value of [`sin_cos`].
#[inline(always)]
pub fn sin<L: Lanes>(l: L, x: L::F) -> L::F {
    sin_cos(l, x).0
}

/// Cosine of `x` radians: the second value of [`sin_cos`].
#[inline(always)]
pub fn cos<L: Lanes>(l: L, x: L::F) -> L::F {
    sin_cos(l, x).1
}

/// (sin, cos) of `t` full turns for `t` in [0, 1), within [`TURNS_ULP`]: the reduction to an eighth of a turn is exact.
#[inline(always)]
pub fn sin_cos_turns<L: Lanes>(l: L, t: L::F) -> (L::F, L::F) {
    let quarters = l.mul(t, l.splat(4.0));
    let n = l.add(quarters, l.splat(MAGIC));
    let rest = l.sub(quarters, l.sub(n, l.splat(MAGIC)));
    quadrant(l, l.bits(n), l.mul(rest, l.splat(PI_2[0])))
}

/// The nearest integer, halves away from zero; exact for every finite input, infinities stay, the sign of zero is kept.
#[inline(always)]
pub fn round_away<L: Lanes>(l: L, x: L::F) -> L::F {
    let t = l.trunc(x);
    let sign = l.and_bits(l.bits(x), l.splat_bits(SIGN));
    let unit = l.from_bits(l.or_bits(sign, l.splat_bits(0x3f80_0000)));
    // Infinity minus infinity is NaN and compares false.
    let up = l.le(l.splat(0.5), l.abs(l.sub(x, t)));
    nan_of(l, x, l.select(up, l.add(t, unit), t))
}

#[cfg(test)]
mod tests {
    //! Limits and special values; `tests/simd_math.rs` holds the error bounds and the equality of the levels.
    use super::*;
    use crate::model::lanes::Scalar;

    /// Every 4093rd bit pattern (a prime, so that the low bits vary), without the NaNs.
    fn numbers() -> impl Iterator<Item = f32> {
        (0..=u32::MAX).step_by(4093).map(f32::from_bits).filter(|x| !x.is_nan())
    }

    #[test]
    fn values_stay_within_their_ranges_and_keep_their_symmetry() {
        for x in numbers() {
            assert!(exp(Scalar, x) >= 0.0, "{x:e}");
            assert!((0.0..=1.0).contains(&sigmoid(Scalar, x)), "{x:e}");
            let y = tanh(Scalar, x);
            assert!(y.abs() <= 1.0, "{x:e}");
            assert_eq!(tanh(Scalar, -x).to_bits(), (-y).to_bits(), "{x:e}");
            let (s, c) = sin_cos(Scalar, x);
            assert_eq!(s.is_nan() || c.is_nan(), x.is_infinite(), "{x:e}");
            assert!(x.is_infinite() || s.abs() <= 1.0 && c.abs() <= 1.0, "{x:e}");
            if x.is_finite() {
                assert_eq!(sin(Scalar, -x).to_bits(), (-s).to_bits(), "{x:e}");
            }
        }
    }

    #[test]
    fn ln_normal_is_ln_without_the_special_cases() {
        for x in numbers().filter(|&x| x >= f32::MIN_POSITIVE && x.is_finite()) {
            assert_eq!(ln(Scalar, x).to_bits(), ln_normal(Scalar, x).to_bits(), "{x:e}");
        }
    }

    #[test]
    fn turns_meet_the_axes_exactly() {
        for (t, axis) in [(0.0, (0.0, 1.0)), (0.25, (1.0, 0.0)), (0.5, (0.0, -1.0)), (0.75, (-1.0, 0.0))] {
            assert_eq!(sin_cos_turns(Scalar, t), axis);
        }
    }

    #[test]
    fn round_away_is_the_standard_rounding() {
        for x in numbers().chain([0.5, -0.5, 1.5, 2.5, -2.5, 0.499_999_97, 8_388_607.5, -0.0]) {
            assert_eq!(round_away(Scalar, x).to_bits(), x.round().to_bits(), "{x:e}");
        }
    }

    #[test]
    fn limits_are_exact() {
        let infinity = f32::INFINITY;
        assert_eq!((exp(Scalar, -infinity), exp(Scalar, infinity), exp(Scalar, 0.0)), (0.0, infinity, 1.0));
        assert_eq!((exp(Scalar, f32::MIN), exp(Scalar, f32::MAX)), (0.0, infinity));
        assert_eq!((sigmoid(Scalar, -infinity), sigmoid(Scalar, infinity)), (0.0, 1.0));
        assert_eq!((sigmoid(Scalar, f32::MIN), sigmoid(Scalar, f32::MAX), sigmoid(Scalar, 0.0)), (0.0, 1.0, 0.5));
        assert_eq!((tanh(Scalar, -infinity), tanh(Scalar, infinity)), (-1.0, 1.0));
        assert_eq!(tanh(Scalar, -0.0).to_bits(), SIGN);
        assert_eq!(sin(Scalar, -0.0).to_bits(), SIGN);
        assert_eq!((ln(Scalar, 0.0), ln(Scalar, -0.0), ln(Scalar, infinity)), (-infinity, -infinity, infinity));
        assert_eq!(ln(Scalar, 1.0).to_bits(), 0);
        assert!(ln(Scalar, -1e-40).is_nan() && ln(Scalar, -infinity).is_nan());
    }

    #[test]
    fn every_nan_gives_the_same_nan() {
        let functions = [exp, ln, sigmoid, tanh, sin, cos, round_away];
        for bits in [0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xff81_2345, 0x7fff_ffff] {
            for f in functions {
                assert_eq!(f(Scalar, f32::from_bits(bits)).to_bits(), 0x7fc0_0000, "{bits:#x}");
            }
        }
    }
}
