//! Latents as integers and decoder weights as half floats: what a stored model keeps, and what it costs (SPEC section 4).

use super::lanes::Lanes;
use super::mlp::{Layer, Network, Row, STRIP};
use super::structure::{Level, Parameters, Structure};

/// Most bits of all channels together in a joint search of selectors: 256 combinations a cell.
pub const MOST_JOINT_BITS: u32 = 8;

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
    /// Quantizes `values` of `level`: selectors and levels with a grid by their own depths on the fixed grid, the rest by
    /// `qbits` between each channel's smallest and largest value.
    pub fn new(level: &Level, values: &[f32], qbits: u32) -> Self {
        let channels = level.channels;
        if level.is_selector() || level.grid_bits.is_some() {
            let bits = level.grid_bits.map_or_else(|| level.selector_bits.clone(), |bits| vec![bits; channels]);
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
    pub fn entropy_bits(&self, channel: usize) -> f64 {
        let mut counts = vec![0u64; 1 << self.bits[channel]];
        self.indices.iter().skip(channel).step_by(self.bits.len()).for_each(|&k| counts[k as usize] += 1);
        let total = (self.indices.len() / self.bits.len()) as f64;
        let bits = |&n: &u64| if n == 0 { 0.0 } else { -(n as f64) * (n as f64 / total).log2() };
        counts.iter().map(bits).sum()
    }
}

/// Decoder weights as the file keeps them: rounded to half floats, beyond their range to the largest.
pub fn round_to_half(parameters: &[f32]) -> Vec<f32> {
    let largest = half::f16::MAX.to_f32();
    // `clamp` keeps NaN: a state that is no number must not look like one.
    parameters.iter().map(|&w| half::f16::from_f32(w.clamp(-largest, largest)).to_f32()).collect()
}

/// The half-float scale of a layer's 8-bit weights: at least the largest magnitude / 127.
fn layer_scale(weights: &[f32]) -> f32 {
    let most = weights.iter().fold(0.0f32, |most, w| if w.abs() > most { w.abs() } else { most });
    let scale = half::f16::from_f32(most / 127.0);
    if scale.to_f32() * 127.0 < most { half::f16::from_bits(scale.to_bits() + 1).to_f32() } else { scale.to_f32() }
}

/// Decoder parameters as stored with `bits` bits: 16 = half floats; 8 = integers in -127..=127 times a half-float scale
/// for each layer, the biases half floats.
///
/// Rounding what was rounded changes nothing.
pub fn round_decoder(layers: &[Layer], bits: u32, parameters: &[f32]) -> Vec<f32> {
    let mut rounded = round_to_half(parameters);
    if bits == 16 {
        return rounded;
    }
    for layer in layers {
        let range = layer.weights..layer.biases;
        let (scale, indices) = layer_indices(&parameters[range.clone()]);
        for (out, index) in rounded[range].iter_mut().zip(indices) {
            *out = f32::from(index) * scale;
        }
    }
    rounded
}

/// A layer's weights as 8-bit integers, and the half-float scale that they are multiplied by.
pub fn layer_indices(weights: &[f32]) -> (f32, Vec<i8>) {
    let scale = layer_scale(weights);
    let index = |w: &f32| if scale > 0.0 { (w / scale).round() as i8 } else { 0 };
    (scale, weights.iter().map(index).collect())
}

/// Bits that storing the decoder takes.
pub fn decoder_bits(layers: &[Layer], bits: u32) -> f64 {
    let of = |layer: &Layer| match bits {
        16 => 16 * (layer.inputs + 1) * layer.outputs,
        _ => (bits as usize * layer.inputs + 16) * layer.outputs + 16,
    };
    layers.iter().map(of).sum::<usize>() as f64
}

/// Estimated rates in bits per source texel position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Every index at its full depth, 64 bits a channel of a min/max level, 16 a decoder weight.
    pub raw: f64,
    /// The same with the order-0 entropy of the indices of each level and channel.
    pub entropy: f64,
}

/// What storing the quantized levels and the decoder would cost, the decoder taking `decoder` bits.
pub fn rates(structure: &Structure, levels: &[QuantizedLevel], decoder: f64) -> Rates {
    let texels = (structure.source_width * structure.source_height) as f64;
    let ranges = |q: &QuantizedLevel| q.ranges.as_ref().map_or(0.0, |r| 64.0 * r.len() as f64);
    let side = decoder + levels.iter().map(ranges).sum::<f64>();
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

/// The layers of a decoder of `structure` with `parameters` parameters, whatever its position features are.
pub fn layers_of(structure: &Structure, parameters: usize) -> Vec<Layer> {
    let empty = Network::new(structure, 0);
    // Each position feature adds one weight to every unit of the first layer.
    let features = parameters.saturating_sub(empty.parameters()) / empty.layers[0].outputs;
    Network::new(structure, features).layers
}

/// A model as a reader of the stored form gets it: quantized latents, half-float weights; and what storing it costs.
pub fn stored(structure: &Structure, parameters: &Parameters) -> (Parameters, Rates) {
    let levels = structure.levels.iter().zip(&parameters.levels);
    let quantized: Vec<_> = levels.map(|(level, z)| QuantizedLevel::new(level, z, structure.qbits)).collect();
    let layers = layers_of(structure, parameters.decoder.len());
    let rates = rates(structure, &quantized, decoder_bits(&layers, structure.mlp_bits));
    let levels = quantized.iter().map(QuantizedLevel::values).collect();
    (Parameters { levels, decoder: round_decoder(&layers, structure.mlp_bits, &parameters.decoder) }, rates)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::lanes::Scalar;
    use crate::model::structure::Filter;

    fn level(width: usize, channels: usize, selector_bits: Vec<u32>) -> Level {
        Level { width, height: 1, channels, filter: Filter::Nearest, selector_bits, grid_bits: None }
    }

    #[test]
    fn the_grid_has_its_ends_at_one_and_indices_come_back() {
        assert_eq!(
            (0..4).map(|k| grid_value(k, 2)).collect::<Vec<_>>(),
            [-1.0, -1.0 + 2.0 / 3.0, -1.0 + 4.0 / 3.0, 1.0]
        );
        for bits in 1..=8 {
            for k in 0..1 << bits {
                assert_eq!(grid_index(grid_value(k, bits), bits), k);
            }
        }
        assert_eq!((grid_index(9.0, 3), grid_index(-9.0, 3), grid_index(f32::NAN, 3)), (7, 0, 0));
    }

    #[test]
    fn min_max_quantization_by_hand() {
        // 2 bits between -1 and 2: steps of 1; 0.5 lies half way between indices 1 and 2 and goes up.
        let q = QuantizedLevel::new(&level(4, 1, vec![]), &[-1.0, 2.0, 0.5, 0.4], 2);
        assert_eq!(q.indices, [0, 3, 2, 1]);
        assert_eq!(q.values(), [-1.0, 2.0, 1.0, 0.0]);
        // A constant channel has the least range.
        let q = QuantizedLevel::new(&level(2, 1, vec![]), &[0.25, 0.25], 8);
        assert_eq!(q.values(), [0.25, 0.25]);
    }

    #[test]
    fn rates_by_hand() {
        let structure = Structure {
            width: 4,
            height: 2,
            source_width: 4,
            source_height: 2,
            textures: vec![],
            levels: vec![level(4, 2, vec![1, 3]), level(2, 1, vec![])],
            position: "none".into(),
            hidden: vec![],
            activation: crate::model::structure::Activation::Relu,
            leak: 0.0,
            clamp: false,
            deblock: None,
            qbits: 4,
            mlp_bits: 16,
        };
        let selectors = QuantizedLevel::new(&structure.levels[0], &[-1.0, -1.0, 1.0, -1.0, -1.0, -1.0, 1.0, -1.0], 4);
        let free = QuantizedLevel::new(&structure.levels[1], &[0.0, 1.0], 4);
        let rates = rates(&structure, &[selectors, free], 160.0);
        // 4 (1 + 3) selector bits, 2 x 4 bits and 64 bits of range, 160 bits of weights, over 8 texels.
        assert_eq!(rates.raw, (16.0 + 8.0 + 64.0 + 160.0) / 8.0);
        // Channel 0 is half and half (4 bits), channel 1 constant (0), the free level two different values (2 bits).
        assert_eq!(rates.entropy, (4.0 + 2.0 + 64.0 + 160.0) / 8.0);
    }

    #[test]
    fn a_fixed_grid_has_no_ranges_and_eight_bit_weights_come_back() {
        let level = Level { grid_bits: Some(3), ..level(2, 2, vec![]) };
        let q = QuantizedLevel::new(&level, &[-1.0, 0.2, 5.0, 1.0], 8);
        assert_eq!(
            (q.ranges.as_ref(), q.bits.as_slice(), q.indices.as_slice()),
            (None, &[3, 3][..], &[0, 4, 7, 7][..])
        );
        // One layer of 2 inputs and 2 units: the scale is 1.27 / 127 rounded up to a half float.
        let layer = Layer { inputs: 2, outputs: 2, weights: 0, biases: 4 };
        let rounded = round_decoder(&[layer], 8, &[1.27, -0.004, 0.5, -0.62, 0.1, 7.0]);
        for (w, want) in rounded.iter().zip([1.27, 0.0, 0.5, -0.62, 0.1, 7.0]) {
            assert!((w - want).abs() < 2e-3, "{rounded:?}");
        }
        assert_eq!(round_decoder(&[layer], 8, &rounded), rounded);
        assert_eq!(decoder_bits(&[layer], 8), 4.0 * 8.0 + 2.0 * 16.0 + 16.0);
        assert_eq!(decoder_bits(&[layer], 16), 96.0);
    }

    #[test]
    fn outputs_round_half_away_and_nan_is_black() {
        let mut rows = [Row::ZERO];
        rows[0].0[..6].copy_from_slice(&[0.5, f32::NAN, -1.0, 2.0, 0.5 / 255.0, 0.49 / 255.0]);
        round_rows(Scalar, 8, &mut rows);
        assert_eq!(rows[0].0[..6], [128.0 / 255.0, 0.0, 0.0, 1.0, 1.0 / 255.0, 0.0]);
    }
}
