//! Which decisions stand for decoder weights as half floats.

use super::mixing::Mixture;
use super::range_coder::Coder;

/// One layer's half floats.
#[derive(Clone, Copy, Debug)]
struct Halves {
    /// Exponent of the largest magnitude.
    scale: u32,
    /// Context of the layer, its weights and biases apart.
    class: usize,
}

/// The model of half floats.
#[derive(Debug)]
pub struct HalfCoder {
    mixture: Mixture<2>,
}

impl HalfCoder {
    /// Contexts of one number's decisions: steps below the scale, the sign, the first two digits.
    const NODES: usize = 64;
    const SIGN: usize = 32;
    const DIGITS: usize = 33;
    /// Layers with contexts of their own, weights and biases apart.
    const CLASSES: usize = 8;

    /// Nothing learnt yet.
    pub fn new() -> Self {
        HalfCoder { mixture: Mixture::new([Self::NODES, Self::NODES * Self::CLASSES], Self::NODES) }
    }

    /// Codes the bits of finite half floats, one part (weights or biases) of a layer.
    pub fn code(&mut self, coder: &mut impl Coder, layer: usize, biases: bool, values: &mut [u16]) {
        let scale = values.iter().map(|v| u32::from(v >> 10 & 31)).max().unwrap_or(0);
        let part = Halves { scale: coder.code_even(scale, 5), class: 2 * layer.min(3) + usize::from(biases) };
        for value in values {
            if coder.sound() {
                *value = self.one(coder, part, *value);
            }
        }
    }

    fn one(&mut self, coder: &mut impl Coder, Halves { scale, class }: Halves, value: u16) -> u16 {
        let mut decide = |node: usize, bit: bool| {
            self.mixture.code(coder, [node, class * Self::NODES + node], node, u32::from(bit)) != 0
        };
        let steps = scale.saturating_sub(u32::from(value >> 10 & 31));
        let mut read = 0;
        while read < scale && decide(read as usize, read < steps) {
            read += 1;
        }
        let negative = decide(Self::SIGN, value >> 15 != 0);
        let kind = Self::DIGITS + 3 * read.min(3) as usize;
        let first = decide(kind, value >> 9 & 1 != 0);
        let second = decide(kind + 1 + usize::from(first), value >> 8 & 1 != 0);
        let rest = coder.code_even(u32::from(value & 255), 8) as u16;
        let exponent = (scale - read) as u16;
        u16::from(negative) << 15 | exponent << 10 | u16::from(first) << 9 | u16::from(second) << 8 | rest
    }
}
