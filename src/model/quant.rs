//! Latents as integers and decoder weights as half floats: what a stored model keeps, and what it costs (SPEC section 4).

use super::lanes::Lanes;
use super::mlp::{Row, STRIP};
use super::structure::{Level, Structure};

/// Selector value number `k` of 2^`bits` on the grid in [-1, 1].
#[inline(always)]
pub fn grid_value(k: u32, bits: u32) -> f32 {
    -1.0 + (2 * k) as f32 / ((1u32 << bits) - 1) as f32
}

/// The number of the grid value nearest to `z`; ties go away from zero of the index scale.
#[inline(always)]
pub fn grid_index(z: f32, bits: u32) -> u32 {
    let last = ((1u32 << bits) - 1) as f32;
    index((z + 1.0) * 0.5 * last, last)
}

/// Rounds half away from zero after limiting to 0..=last; NaN gives 0.
fn index(x: f32, last: f32) -> u32 {
    let x = if x > 0.0 { x } else { 0.0 };
    let x = if x < last { x } else { last };
    let whole = x.trunc();
    (whole + if x - whole >= 0.5 { 1.0 } else { 0.0 }) as u32
}

/// A level as stored: one integer a value and how to read it back.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantizedLevel {
    /// Bits of each channel.
    pub bits: Vec<u32>,
    /// Smallest value and range of each channel; `None` for a fixed grid in [-1, 1].
    pub ranges: Option<Vec<(f32, f32)>>,
    /// (y, x, channel), channel fastest.
    pub indices: Vec<u16>,
}

impl QuantizedLevel {
    /// Quantizes `values` of `level`: selectors by their own depths on the fixed grid, the rest by `qbits` between each
    /// channel's smallest and largest value.
    pub fn new(level: &Level, values: &[f32], qbits: u32) -> Self {
        let channels = level.channels;
        if level.is_selector() {
            let bits = level.selector_bits.clone();
            let indices = values.iter().enumerate().map(|(i, &z)| grid_index(z, bits[i % channels]) as u16).collect();
            return QuantizedLevel { bits, ranges: None, indices };
        }
        let mut limits = vec![(f32::INFINITY, f32::NEG_INFINITY); channels];
        for (i, &z) in values.iter().enumerate() {
            let (lo, hi) = &mut limits[i % channels];
            *lo = if z < *lo { z } else { *lo };
            *hi = if z > *hi { z } else { *hi };
        }
        let range = |(lo, hi): (f32, f32)| (lo, if hi - lo > 1e-6 { hi - lo } else { 1e-6 });
        let ranges: Vec<_> = limits.into_iter().map(range).collect();
        let last = ((1u32 << qbits) - 1) as f32;
        let quantize = |(i, &z): (usize, &f32)| {
            let (lo, range) = ranges[i % channels];
            index((z - lo) / range * last, last) as u16
        };
        let indices = values.iter().enumerate().map(quantize).collect();
        QuantizedLevel { bits: vec![qbits; channels], ranges: Some(ranges), indices }
    }

    /// The values that a reader gets.
    pub fn values(&self) -> Vec<f32> {
        let channels = self.bits.len();
        let value = |(i, &k): (usize, &u16)| match &self.ranges {
            None => grid_value(u32::from(k), self.bits[i % channels]),
            Some(ranges) => {
                let (lo, range) = ranges[i % channels];
                lo + f32::from(k) / ((1u32 << self.bits[i % channels]) - 1) as f32 * range
            }
        };
        self.indices.iter().enumerate().map(value).collect()
    }

    /// Bits of one channel's indices at their order-0 entropy.
    fn entropy_bits(&self, channel: usize) -> f64 {
        let mut counts = vec![0u64; 1 << self.bits[channel]];
        self.indices.iter().skip(channel).step_by(self.bits.len()).for_each(|&k| counts[k as usize] += 1);
        let total = (self.indices.len() / self.bits.len()) as f64;
        let bits = |&n: &u64| if n == 0 { 0.0 } else { -(n as f64) * (n as f64 / total).log2() };
        counts.iter().map(bits).sum()
    }
}

/// Decoder weights as the file keeps them: rounded to half floats.
pub fn round_to_half(parameters: &[f32]) -> Vec<f32> {
    parameters.iter().map(|&w| half::f16::from_f32(w).to_f32()).collect()
}

/// Estimated rates in bits per source texel position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Every index at its full depth, 64 bits a channel of a min/max level, 16 a decoder weight.
    pub raw: f64,
    /// The same with the order-0 entropy of the indices of each level and channel.
    pub entropy: f64,
}

/// What storing the quantized levels and `parameters` decoder weights would cost.
pub fn rates(structure: &Structure, levels: &[QuantizedLevel], parameters: usize) -> Rates {
    let texels = (structure.source_width * structure.source_height) as f64;
    let ranges = |q: &QuantizedLevel| q.ranges.as_ref().map_or(0.0, |r| 64.0 * r.len() as f64);
    let side = 16.0 * parameters as f64 + levels.iter().map(ranges).sum::<f64>();
    let full = |q: &QuantizedLevel| {
        let values = q.indices.len() / q.bits.len();
        q.bits.iter().map(|&b| f64::from(b) * values as f64).sum::<f64>()
    };
    let coded = |q: &QuantizedLevel| (0..q.bits.len()).map(|c| q.entropy_bits(c)).sum::<f64>();
    Rates {
        raw: (side + levels.iter().map(full).sum::<f64>()) / texels,
        entropy: (side + levels.iter().map(coded).sum::<f64>()) / texels,
    }
}

/// Rounds outputs to `depth` bits as a written file holds them, in place: limited to [0, 1], times 2^depth - 1, rounded
/// half away from zero, divided again. NaN becomes 0.
pub fn round_rows<L: Lanes>(l: L, depth: u32, rows: &mut [Row]) {
    l.enter(
        #[inline(always)]
        || {
            let (zero, one) = (l.splat(0.0), l.splat(1.0));
            let most = l.splat(((1u32 << depth) - 1) as f32);
            for row in rows {
                let mut at = 0;
                while at < STRIP {
                    let x = l.load(&row.0[at..]);
                    let x = l.select(l.lt(zero, x), x, zero);
                    let x = l.mul(l.select(l.lt(x, one), x, one), most);
                    let whole = l.trunc(x);
                    let up = l.le(l.splat(0.5), l.sub(x, whole));
                    let level = l.select(up, l.add(whole, one), whole);
                    l.store(l.div(level, most), &mut row.0[at..]);
                    at += L::N;
                }
            }
        },
    );
}
