//! The loss of a texel as an integer, so that sums over texels do not depend on their order (DESIGN section 5, rule 4).

use super::lanes::Lanes;
use super::mlp::{Row, STRIP};
use super::structure::TextureInfo;

/// A loss of 1 in the integers that losses are summed in: 2^36.
pub const UNIT: f64 = (1u64 << 36) as f64;

/// Most texels whose losses can be summed without overflow.
pub const MOST_TEXELS: usize = 1 << 26;

/// Relative loss weight of texture `t`: an absent `weights` means 1 for every texture.
pub fn weight_of(weights: &[f32], t: usize) -> f64 {
    weights.get(t).map_or(1.0, |w| f64::from(*w))
}

/// The factor of each output in a texel's loss, in output order: n w_t / (C_t sum of w) for an output that is n of the C_t
/// written channels of texture t.
///
/// An absent `weights` means 1 for every texture.
pub fn channel_weights(textures: &[TextureInfo], weights: &[f32]) -> Vec<f32> {
    let weight = |t: usize| weight_of(weights, t);
    let sum: f64 = (0..textures.len()).map(weight).sum();
    let of = |t: usize, copies: usize| (weight(t) * copies as f64 / (textures[t].channels as f64 * sum)) as f32;
    (0..textures.len()).flat_map(|t| textures[t].copies().into_iter().map(move |n| of(t, n))).collect()
}

/// l = sum over c of w_c (out_c - target_c)^2, times 2^36 and rounded half to even: an integer-valued f32 up to 2^37.
/// NaN becomes the largest value, so that it never wins.
#[inline(always)]
pub fn texel_loss<L: Lanes>(l: L, weights: &[f32], out: &[Row], target: &[Row], at: usize) -> L::F {
    let mut sum = l.splat(0.0);
    for ((w, out), target) in weights.iter().zip(out).zip(target) {
        let d = l.sub(l.load(&out.0[at..]), l.load(&target.0[at..]));
        sum = l.fma(l.mul(l.splat(*w), d), d, sum);
    }
    round_loss(l, sum)
}

/// A loss in [0, 2] as an integer-valued f32 in units of 2^-36, halves to even.
#[inline(always)]
pub fn round_loss<L: Lanes>(l: L, loss: L::F) -> L::F {
    let cap = l.splat((2.0 * UNIT) as f32);
    let v = l.mul(loss, l.splat(UNIT as f32));
    let v = l.select(l.le(v, cap), v, cap);
    // Below 2^23 adding 2^23 rounds to an integer, halves to even; above, an f32 is one already.
    let whole = l.splat(8_388_608.0);
    l.select(l.lt(v, whole), l.sub(l.add(v, whole), whole), v)
}

/// Integer losses of a strip: [`texel_loss`] of every texel.
pub fn strip_loss<L: Lanes>(l: L, weights: &[f32], out: &[Row], target: &[Row], loss: &mut Row) {
    l.enter(
        #[inline(always)]
        || {
            let mut at = 0;
            while at < STRIP {
                l.store(texel_loss(l, weights, out, target, at), &mut loss.0[at..]);
                at += L::N;
            }
        },
    );
}

/// The sum of the first `n` integer losses of a strip.
#[inline(always)]
pub fn sum_losses(loss: &Row, n: usize) -> i64 {
    loss.0[..n].iter().map(|&x| x as i64).sum()
}

/// `d[i] = plus[i] - minus[i]` as integers.
///
/// By way of f64, where every value and difference is exact, and the bits of 1.5 2^52 + d: this form vectorises on every
/// level, a conversion from f32 to i64 does not.
#[inline(always)]
pub fn differences(plus: &Row, minus: &Row, d: &mut [i64; STRIP]) {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    for ((d, plus), minus) in d.iter_mut().zip(&plus.0).zip(&minus.0) {
        let difference = f64::from(*plus) - f64::from(*minus);
        *d = (difference + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()) as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::lanes::Scalar;

    #[test]
    fn rounding_is_half_to_even_in_every_range() {
        let unit = UNIT as f32;
        for (x, want) in [(0.5f32, 0.0), (1.5, 2.0), (2.5, 2.0), (0.75, 1.0), (4_194_304.5, 4_194_304.0), (1e9, 1e9)] {
            assert_eq!(round_loss(Scalar, x / unit), want, "{x}");
        }
        let mut state = 1u32;
        for _ in 0..100_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let x = f32::from_bits(state % 0x3f80_0001);
            assert_eq!(f64::from(round_loss(Scalar, x)), (f64::from(x) * UNIT).round_ties_even(), "{x:e}");
        }
        assert_eq!(round_loss(Scalar, f32::NAN), 2.0 * unit);
        assert_eq!(round_loss(Scalar, f32::INFINITY), 2.0 * unit);
    }

    #[test]
    fn differences_are_exact() {
        let (mut a, mut b, mut d) = (Row::ZERO, Row::ZERO, [0; STRIP]);
        for i in 0..STRIP {
            a.0[i] = (i as f32 * 1_073_741_824.0).trunc();
            b.0[i] = (i as f32 * 77_777.0).trunc();
        }
        b.0[0] = 137_438_953_472.0;
        differences(&a, &b, &mut d);
        for (i, d) in d.iter().enumerate() {
            assert_eq!(*d, a.0[i] as i64 - b.0[i] as i64);
        }
    }

    #[test]
    fn weights_are_normalised_per_texture_and_channel() {
        let t = |channels| TextureInfo { name: "t".into(), channels, depth: 8, role: None, sources: vec![] };
        assert_eq!(channel_weights(&[t(3), t(1)], &[1.0, 3.0]), [1.0 / 12.0, 1.0 / 12.0, 1.0 / 12.0, 0.75]);
        assert_eq!(channel_weights(&[t(2)], &[]), [0.5, 0.5]);
        assert_eq!(channel_weights(&[t(1), t(1)], &[0.0, 2.0]), [0.0, 1.0]);
    }
}
