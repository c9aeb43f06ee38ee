//! Probabilities that learn: adaptive counters and a logistic mixture of them, in integers alone.
//!
//! Each model is a table of counters, of which its context chooses one. The counters' log odds are weighted and added;
//! the weights, of which another context chooses a set, follow the gradient of the coding cost (Mahoney, PAQ).

use super::range_coder::{Coder, ONE};
use std::sync::LazyLock;

/// Log odds in units of 1/256 are kept within +-LIMIT.
const LIMIT: i32 = 2047;
/// 4096 / (1 + e^-(x / 256)) at x = -2048, -1920, .. 2048.
const LOGISTIC: [i32; 33] = [
    1, 2, 3, 6, 10, 16, 27, 45, 73, 120, 194, 310, 488, 747, 1101, 1546, 2047, 2549, 2994, 3348, 3607, 3785, 3901,
    3975, 4022, 4050, 4068, 4079, 4085, 4089, 4092, 4093, 4094,
];
/// [`squash`] of every argument, from -2048 on.
static SQUASH: [i16; 4096] = squash_table();
/// [`stretch`] of every probability.
static STRETCH: [i16; 4096] = stretch_table();
/// Share of the difference that a counter takes on its n-th change, in 1/65536: 1 / (n + 1.6).
static RATE: [i32; 256] = rate_table();

/// Bits, in 1/1024, of a decision of probability p / 4096.
static COST: LazyLock<Vec<i32>> = LazyLock::new(|| {
    let bits = |p: u32| (-1024.0 * (f64::from(p.max(1)) / f64::from(ONE)).log2()).round() as i32;
    (0..=ONE).map(bits).collect()
});

/// Odds of an untouched counter.
const EVEN: u16 = 1 << 15;
/// Counters stay this far from certainty.
const EDGE: i32 = 32;
/// The constant input.
const BIAS: i32 = 256;
/// Sum of the weights at the start, in 1/65536.
const START: i32 = 78_643;
/// Weights stay within +- this.
const MOST: i32 = 1 << 22;
/// Step of the weights.
const STEP: i32 = 10;

#[allow(clippy::indexing_slicing)] // evaluated by the compiler, which would refuse an index beyond the table
const fn squash_table() -> [i16; 4096] {
    let mut table = [0; 4096];
    let mut k = 0;
    while k < 4096 {
        let (whole, part) = (k >> 7, (k & 127) as i32);
        table[k] = ((LOGISTIC[whole] * (128 - part) + LOGISTIC[whole + 1] * part + 64) >> 7) as i16;
        k += 1;
    }
    table
}

#[allow(clippy::indexing_slicing)] // as above
const fn stretch_table() -> [i16; 4096] {
    let squash = squash_table();
    let mut table = [LIMIT as i16; 4096];
    let (mut p, mut x) = (0, -LIMIT);
    while x <= LIMIT {
        let reached = squash[(x + 2048) as usize] as usize;
        while p <= reached {
            table[p] = x as i16;
            p += 1;
        }
        x += 1;
    }
    table
}

#[allow(clippy::indexing_slicing)] // as above
const fn rate_table() -> [i32; 256] {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        table[n] = 655_360 / (10 * n as i32 + 16);
        n += 1;
    }
    table
}

/// The probability, in 1/4096, of log odds `x` in 1/256.
fn squash(x: i32) -> i32 {
    SQUASH.get((x + 2048) as usize).map_or(ONE as i32 / 2, |&p| i32::from(p))
}

/// The least log odds, in 1/256, whose [`squash`] is at least `p` of 4096.
fn stretch(p: usize) -> i32 {
    STRETCH.get(p).map_or(0, |&x| i32::from(x))
}

/// The probability of a 1, in 1/65536, after `count` decisions (255 at most).
#[derive(Clone, Copy, Debug)]
struct Counter {
    p: u16,
    count: u8,
}

impl Counter {
    fn update(&mut self, bit: u32) {
        let (target, p) = (if bit != 0 { 65535 } else { 0 }, i64::from(self.p));
        let rate = RATE.get(usize::from(self.count)).map_or(0, |&rate| i64::from(rate));
        let moved = (p + (((target - p) * rate) >> 16)) as i32;
        self.p = moved.clamp(EDGE, 65535 - EDGE) as u16;
        self.count = self.count.saturating_add(1);
    }
}

/// A mixture of `N` models.
#[derive(Clone, Debug)]
pub struct Mixture<const N: usize> {
    counters: [Vec<Counter>; N],
    /// Sets of weights in 1/65536; the last counts for the constant input.
    weights: Vec<([i32; N], i32)>,
}

impl<const N: usize> Mixture<N> {
    /// Models of `sizes` contexts each, and `sets` sets of weights.
    pub fn new(sizes: [usize; N], sets: usize) -> Self {
        let counters = sizes.map(|size| vec![Counter { p: EVEN, count: 0 }; size]);
        Mixture { counters, weights: vec![([START / N as i32; N], 0); sets] }
    }

    /// The inputs and the probability of a 1, in 1/4096, in the given contexts.
    #[inline(always)]
    fn expect(&self, contexts: [usize; N], (weights, bias): &([i32; N], i32)) -> ([i32; N], i32) {
        let mut inputs = [0; N];
        let mut sum = i64::from(*bias) * i64::from(BIAS);
        let looked_up = self.counters.iter().zip(contexts);
        for ((input, weight), (counters, context)) in inputs.iter_mut().zip(weights.iter()).zip(looked_up) {
            *input = counters.get(context).map_or(0, |counter| stretch(usize::from(counter.p >> 4)));
            sum += i64::from(*input) * i64::from(*weight);
        }
        let odds = (sum >> 16).clamp(i64::from(-LIMIT), i64::from(LIMIT)) as i32;
        (inputs, squash(odds).clamp(1, ONE as i32 - 1))
    }

    /// What a decision would cost in the given contexts, in 1/1024 bit; nothing is learnt.
    #[inline]
    pub fn cost(&self, contexts: [usize; N], set: usize, bit: u32) -> i32 {
        let p = self.weights.get(set).map_or(ONE as i32 / 2, |set| self.expect(contexts, set).1);
        let p = if bit != 0 { p } else { ONE as i32 - p };
        COST.get(p as usize).copied().unwrap_or(0)
    }

    /// Codes one decision in the given context of each model, and learns from it.
    ///
    /// A context beyond its table is a mistake of the caller; it counts as even odds.
    #[inline]
    pub fn code(&mut self, coder: &mut impl Coder, contexts: [usize; N], set: usize, bit: u32) -> u32 {
        let Some(chosen) = self.weights.get(set) else { return coder.code(bit, ONE / 2) };
        let (inputs, p) = self.expect(contexts, chosen);
        let bit = coder.code(bit, p as u32);
        let error = (((bit as i32) << 12) - p) * STEP;
        let learn = |weight: &mut i32, input: i32| {
            *weight = (*weight + ((input * error + 0x2000) >> 14)).clamp(-MOST, MOST);
        };
        if let Some((weights, bias)) = self.weights.get_mut(set) {
            weights.iter_mut().zip(inputs).for_each(|(weight, input)| learn(weight, input));
            learn(bias, BIAS);
        }
        for (counters, context) in self.counters.iter_mut().zip(contexts) {
            if let Some(counter) = counters.get_mut(context) {
                counter.update(bit);
            }
        }
        bit
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::bitstream::range_coder::Tally;

    #[test]
    fn tables_by_their_formulas() {
        assert_eq!((squash(-2047), squash(0), squash(2047)), (1, 2047, 4094));
        assert_eq!((stretch(0), stretch(2047), stretch(4095)), (-2047, 0, 2047));
        for x in -2047..=2047 {
            let exact = 4096.0 / (1.0 + (-f64::from(x) / 256.0).exp());
            assert!((f64::from(squash(x)) - exact).abs() < 14.0, "{x}");
            assert!(stretch(squash(x) as usize) <= x);
        }
        assert_eq!((RATE[0], RATE[1], RATE[255]), (40_960, 25_206, 255));
        let crc = |table: &[i16]| {
            let bytes: Vec<u8> = table.iter().flat_map(|v| v.to_le_bytes()).collect();
            crc32fast::hash(&bytes)
        };
        // A file written once must decode for ever.
        assert_eq!((crc(&SQUASH), crc(&STRETCH)), (0xea57_ab0d, 0xf30d_ef04));
    }

    #[test]
    fn a_mixture_finds_the_model_that_knows() {
        // The first context tells nothing, the second tells the decision nine times in ten.
        let mut mixture = Mixture::new([1, 2], 1);
        let mut tally = Tally::new(1);
        let n = 20_000;
        for k in 0..n {
            let bit = k * 7919 % 31 % 2;
            let hint = if k % 10 == 0 { 1 - bit } else { bit };
            mixture.code(&mut tally, [0, hint as usize], 0, bit);
        }
        // The entropy of 0.1 is 0.469 bits.
        let each = tally.bits[0] / f64::from(n);
        assert!((0.46..0.5).contains(&each), "{each}");
    }

    #[test]
    fn a_cost_is_what_coding_would_take() {
        let (mut mixture, mut tally) = (Mixture::new([3, 2], 2), Tally::new(1));
        for k in 0..500usize {
            let (contexts, bit) = ([k % 3, k % 2], u32::from(k % 7 < 4));
            let (before, cost) = (tally.bits[0], mixture.cost(contexts, k % 2, bit));
            mixture.code(&mut tally, contexts, k % 2, bit);
            assert!((tally.bits[0] - before - f64::from(cost) / 1024.0).abs() < 1e-3, "{k}");
        }
    }

    #[test]
    fn counters_stay_off_certainty() {
        for bit in [0, 1] {
            let mut counter = Counter { p: EVEN, count: 0 };
            (0..10_000).for_each(|_| counter.update(bit));
            // Steps round down, so the way up ends where the last rate no longer moves.
            assert_eq!(counter.p, if bit == 0 { EDGE as u16 } else { 65377 });
        }
    }
}
