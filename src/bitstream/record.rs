//! What a file holds, and the way to bytes and back.

use super::container::{self, Section};
use super::context::{Blocks, Grid, latents, selectors};
use super::halves::HalfCoder;
use super::header::{self, Header};
use super::range_coder::{Coder, DECISIONS_PER_BYTE, Decoder, Encoder, Tally};
use super::{Result, fixed, refuse};
use crate::model::latent::cell_of;
use crate::model::mlp::{Layer, Network};
use crate::model::position::PositionSpec;
use crate::model::quant::{QuantizedLevel, Rates, decoder_bits, layer_indices, layers_of, rates, round_decoder};
use crate::model::structure::{Coding, Parameters, Structure};
use half::f16;

/// Decoder weights as plain half floats.
pub(super) const WEIGHTS: [u8; 4] = *b"WRAW";
/// Decoder weights of 8 bits: each layer's scale as a half float, its weights, its biases as half floats.
pub(super) const SMALL_WEIGHTS: [u8; 4] = *b"WGT8";
/// Decoder weights behind the range coder.
const CODED_WEIGHTS: [u8; 4] = *b"WRNG";
/// Levels behind the range coder.
const CODED_LEVELS: [[u8; 4]; 2] = [*b"RNG0", *b"RNG1"];

/// A model as a file holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What it looks like.
    pub structure: Structure,
    /// How it is coded.
    pub coding: Coding,
    /// Latents and selectors.
    pub levels: Vec<QuantizedLevel>,
    /// Decoder parameters as [`round_decoder`] leaves them.
    pub decoder: Vec<f32>,
}

/// Where the bits of a file went.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Bits of each channel of each level.
    pub levels: Vec<Vec<f64>>,
    /// Bits of the decoder's weights.
    pub weights: f64,
    /// Everything else: header, lengths, checksums, and what is left of last bytes.
    pub header: f64,
}

impl Record {
    /// Quantizes a model.
    pub fn new(structure: &Structure, parameters: &Parameters, coding: Coding) -> Self {
        let quantize = |(level, values): (_, &Vec<f32>)| QuantizedLevel::new(level, values, structure.qbits);
        let levels = structure.levels.iter().zip(&parameters.levels).map(quantize).collect();
        let layers = layers_of(structure, parameters.decoder.len());
        let decoder = round_decoder(&layers, structure.mlp_bits, &parameters.decoder);
        Record { structure: structure.clone(), coding, levels, decoder }
    }

    /// The values that a reader gets.
    pub fn parameters(&self) -> Parameters {
        let levels = self.levels.iter().map(QuantizedLevel::values).collect();
        Parameters { levels, decoder: self.decoder.clone() }
    }

    /// Bits of the decoder's weights at their full depth.
    pub fn weight_bits(&self) -> f64 {
        decoder_bits(&layers_of(&self.structure, self.decoder.len()), self.structure.mlp_bits)
    }

    /// Estimated rates.
    pub fn rates(&self) -> Rates {
        rates(&self.structure, &self.levels, self.weight_bits())
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// A value that the format cannot hold: one that is not finite, or a size beyond its fields.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let small = self.structure.mlp_bits == 8;
        // A small weight may be beyond half floats: its scale is not.
        let finite = self.decoder.iter().all(|&w| if small { w.is_finite() } else { f16::from_f32(w).is_finite() });
        let ranges: Vec<_> = self.levels.iter().map(|level| level.ranges.clone()).collect();
        let sane = |&(low, range): &(f32, f32)| range > 0.0 && (low + range).is_finite();
        if !finite || !ranges.iter().flatten().flatten().all(sane) {
            return refuse("a value is not finite, or beyond half floats".into());
        }
        let header = Header { coding: self.coding, structure: self.structure.clone(), ranges };
        let mut sections = vec![(header::KIND, header::write(&header)?)];
        sections.extend(header::write_roles(&self.structure.textures).map(|roles| (header::ROLES, roles)));
        sections.extend(header::write_channels(&self.structure.textures).map(|bytes| (header::CHANNELS, bytes)));
        if small {
            sections.push((SMALL_WEIGHTS, small_weights(&layers(&self.structure)?, &self.decoder)));
        }
        match self.coding {
            Coding::Fixed => {
                if !small {
                    sections.push((WEIGHTS, self.halves().flat_map(u16::to_le_bytes).collect()));
                }
                sections.extend(fixed::write(&self.structure, &self.levels));
            }
            Coding::Range => {
                if !small {
                    let mut encoder = Encoder::new();
                    let layers = layers(&self.structure)?;
                    code_weights(&mut encoder, &layers, &mut self.halves().collect::<Vec<_>>());
                    sections.push((CODED_WEIGHTS, encoder.finish()));
                }
                for (level, kind) in CODED_LEVELS.iter().enumerate().take(self.levels.len()).rev() {
                    let mut encoder = Encoder::new();
                    self.code_level(&mut encoder, level, 0);
                    sections.push((*kind, encoder.finish()));
                }
            }
        }
        container::write(&sections)
    }

    /// Reads a file of at most `max_texels` texels, padding included.
    ///
    /// # Errors
    /// Bytes that are no file of this format, whatever they are, in words that follow the file's name.
    pub fn decode(bytes: &[u8], max_texels: usize) -> Result<Record> {
        Record::of_sections(&container::read(bytes)?, max_texels)
    }

    /// As [`Record::decode`], from the sections of a file.
    pub(super) fn of_sections(sections: &[Section], max_texels: usize) -> Result<Record> {
        let Header { coding, mut structure, ranges } = header::read(container::find(sections, header::KIND)?)?;
        check_texels(&structure, max_texels)?;
        if sections.iter().any(|section| section.kind == header::ROLES) {
            header::read_roles(container::find(sections, header::ROLES)?, &mut structure.textures)?;
        }
        if sections.iter().any(|section| section.kind == header::CHANNELS) {
            header::read_channels(container::find(sections, header::CHANNELS)?, &mut structure.textures)?;
        }
        let layers = layers(&structure)?;
        let indices = match coding {
            Coding::Fixed => fixed_levels(sections, &structure)?,
            Coding::Range => coded_levels(sections, &structure)?,
        };
        let floats = |halves: Vec<u16>| halves.into_iter().map(|w| f16::from_bits(w).to_f32()).collect::<Vec<_>>();
        let decoder = match coding {
            _ if structure.mlp_bits == 8 => read_small_weights(container::find(sections, SMALL_WEIGHTS)?, &layers)?,
            Coding::Fixed => floats(plain_weights(sections, &layers)?),
            Coding::Range => floats(coded_weights(sections, &layers)?),
        };
        if decoder.iter().any(|w| !w.is_finite()) {
            return refuse("has a decoder weight that is no number".into());
        }
        let quantized = |((level, ranges), indices): ((_, _), Vec<u16>)| {
            let bits = fixed::bits_of(&structure, level);
            QuantizedLevel { bits, ranges, indices }
        };
        let levels = structure.levels.iter().zip(ranges).zip(indices).map(quantized).collect();
        Ok(Record { structure, coding, levels, decoder })
    }

    /// Where the bits of the file went; `bytes` is its length.
    pub fn cost(&self, bytes: usize) -> Result<Cost> {
        let total = 8.0 * bytes as f64;
        let accounts = |q: &QuantizedLevel| q.bits.len();
        let (weights, levels) = match self.coding {
            Coding::Fixed => {
                let plain = |q: &QuantizedLevel| {
                    let texels = (q.indices.len() / q.bits.len().max(1)) as f64;
                    q.bits.iter().map(|&b| f64::from(b) * texels).collect()
                };
                (16.0 * self.decoder.len() as f64, self.levels.iter().map(plain).collect::<Vec<Vec<f64>>>())
            }
            Coding::Range => {
                let mut tally = Tally::new(1);
                code_weights(&mut tally, &layers(&self.structure)?, &mut self.halves().collect::<Vec<_>>());
                let level = |(k, q): (usize, &QuantizedLevel)| {
                    let mut tally = Tally::new(accounts(q));
                    self.code_level(&mut tally, k, 0);
                    tally.bits
                };
                (tally.bits.iter().sum(), self.levels.iter().enumerate().map(level).collect())
            }
        };
        let weights = if self.structure.mlp_bits == 8 { self.weight_bits() } else { weights };
        let header = total - weights - levels.iter().flatten().sum::<f64>();
        Ok(Cost { levels, weights, header })
    }

    /// Binary decisions of the levels behind the range coder.
    pub fn decisions(&self) -> u64 {
        let count = |k: usize| {
            let mut tally = Tally::new(0);
            self.code_level(&mut tally, k, 0);
            tally.decisions
        };
        (0..self.levels.len()).map(count).sum()
    }

    /// Bits of the decoder's parameters as half floats.
    fn halves(&self) -> impl Iterator<Item = u16> {
        self.decoder.iter().map(|&w| f16::from_f32(w).to_bits())
    }

    fn code_level(&self, coder: &mut impl Coder, level: usize, account: usize) {
        let Some(q) = self.levels.get(level) else { return };
        let (mut indices, below) = (q.indices.clone(), self.levels.get(1).map(|q| q.indices.as_slice()));
        code_level(coder, &self.structure, level, &mut indices, below, account);
    }
}

/// Refuses more texels than `--max-pixels`.
pub(super) fn check_texels(structure: &Structure, most: usize) -> Result<()> {
    let (width, height) = (structure.width, structure.height);
    if structure.texels() <= most {
        return Ok(());
    }
    refuse(format!("has {width}x{height} texels; --max-pixels is {most}"))
}

/// Codes the indices of `level` in place; `below` are those of level 1. Returns false where bytes were missing.
fn code_level(
    coder: &mut impl Coder,
    structure: &Structure,
    level: usize,
    indices: &mut [u16],
    below: Option<&[u16]>,
    account: usize,
) -> bool {
    let Some(shape) = structure.levels.get(level) else { return false };
    let bits = fixed::bits_of(structure, shape);
    let mut grid = Grid { width: shape.width, height: shape.height, bits: &bits, indices };
    if !shape.is_selector() {
        return latents(coder, &mut grid, account);
    }
    let block_bits = structure.levels.get(1).map(|level| fixed::bits_of(structure, level)).unwrap_or_default();
    selectors(coder, &mut grid, blocks_of(structure, &block_bits, below), account)
}

/// What selectors know of level 1, whose channels have `bits` and indices `below`.
pub(super) fn blocks_of<'a>(structure: &Structure, bits: &'a [u32], below: Option<&'a [u16]>) -> Option<Blocks<'a>> {
    let blocks = structure.levels.get(1).zip(below);
    blocks.map(|(level, indices)| Blocks { width: level.width, height: level.height, bits, indices })
}

/// The decoder's layers.
fn layers(structure: &Structure) -> Result<Vec<Layer>> {
    let position: PositionSpec = structure.position.parse().map_err(|e: crate::error::Error| e.to_string())?;
    Ok(Network::new(structure, position.count(cell_of(structure, 0))).layers)
}

fn code_weights(coder: &mut impl Coder, layers: &[Layer], halves: &mut [u16]) {
    let mut model = HalfCoder::new();
    for (k, layer) in layers.iter().enumerate() {
        let end = layer.biases + layer.outputs;
        for (biases, part) in [(false, layer.weights..layer.biases), (true, layer.biases..end)] {
            if let Some(values) = halves.get_mut(part) {
                model.code(coder, k, biases, values);
            }
        }
    }
}

/// Number of decoder parameters.
fn parameters(layers: &[Layer]) -> usize {
    layers.iter().map(|layer| (layer.inputs + 1) * layer.outputs).sum()
}

fn plain_weights(sections: &[Section], layers: &[Layer]) -> Result<Vec<u16>> {
    let (payload, count) = (container::find(sections, WEIGHTS)?, parameters(layers));
    if payload.len() != 2 * count {
        return refuse(format!("section WRAW has {} bytes for {count} weights", payload.len()));
    }
    Ok(payload.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b)).collect())
}

/// The bytes of [`SMALL_WEIGHTS`].
fn small_weights(layers: &[Layer], decoder: &[f32]) -> Vec<u8> {
    let mut bytes = vec![];
    let half = |w: f32| f16::from_f32(w).to_bits().to_le_bytes();
    for layer in layers {
        let (scale, indices) = layer_indices(decoder.get(layer.weights..layer.biases).unwrap_or(&[]));
        bytes.extend(half(scale));
        bytes.extend(indices.into_iter().flat_map(i8::to_le_bytes));
        let biases = decoder.get(layer.biases..layer.biases + layer.outputs).unwrap_or(&[]);
        bytes.extend(biases.iter().flat_map(|&w| half(w)));
    }
    bytes
}

/// The reverse of [`small_weights`]. Only what that writes is taken, so that what was read comes back as it was.
fn read_small_weights(bytes: &[u8], layers: &[Layer]) -> Result<Vec<f32>> {
    let mut cursor = container::Cursor::new(bytes);
    let mut decoder = vec![];
    for layer in layers {
        let at = cursor.at();
        let scale = f16::from_bits(cursor.u16()?).to_f32();
        let indices = cursor.take(layer.inputs * layer.outputs)?.iter().map(|&w| i8::from_le_bytes([w]));
        let weights: Vec<_> = indices.clone().map(|k| f32::from(k) * scale).collect();
        let (own, kept) = layer_indices(&weights);
        if own.to_bits() != scale.to_bits() || !indices.eq(kept) {
            return refuse(format!("section WGT8, byte {at}: {scale} is not the scale of its layer's weights"));
        }
        decoder.extend(weights);
        for _ in 0..layer.outputs {
            decoder.push(f16::from_bits(cursor.u16()?).to_f32());
        }
    }
    cursor.end()?;
    Ok(decoder)
}

fn fixed_levels(sections: &[Section], structure: &Structure) -> Result<Vec<Vec<u16>>> {
    let wanted = fixed::Layout::new(structure).sections();
    let payloads: Vec<_> = wanted.iter().map(|(kind, _)| container::find(sections, *kind)).collect::<Result<_>>()?;
    fixed::read(structure, &payloads)
}

fn coded_weights(sections: &[Section], layers: &[Layer]) -> Result<Vec<u16>> {
    let payload = container::find(sections, CODED_WEIGHTS)?;
    let mut halves = zeros(CODED_WEIGHTS, payload, parameters(layers))?;
    let mut decoder = Decoder::new(payload);
    code_weights(&mut decoder, layers, &mut halves);
    complete(CODED_WEIGHTS, &decoder)?;
    Ok(halves)
}

fn coded_levels(sections: &[Section], structure: &Structure) -> Result<Vec<Vec<u16>>> {
    let mut levels: Vec<Vec<u16>> = vec![];
    // Level 1 first: level 0 is read with its help.
    for (k, kind) in CODED_LEVELS.iter().enumerate().take(structure.levels.len()).rev() {
        let payload = container::find(sections, *kind)?;
        let values = structure.levels.get(k).map_or(0, |level| level.values());
        let mut indices = zeros(*kind, payload, values)?;
        let mut decoder = Decoder::new(payload);
        code_level(&mut decoder, structure, k, &mut indices, levels.first().map(Vec::as_slice), 0);
        complete(*kind, &decoder)?;
        levels.insert(0, indices);
    }
    Ok(levels)
}

/// Room for `count` values, each of one decision or more, where `payload` can hold them.
fn zeros(kind: [u8; 4], payload: &[u8], count: usize) -> Result<Vec<u16>> {
    if count as u64 > payload.len() as u64 * DECISIONS_PER_BYTE {
        let kind = container::name(kind);
        return refuse(format!("section {kind} of {} bytes cannot hold {count} values", payload.len()));
    }
    Ok(vec![0; count])
}

fn complete(kind: [u8; 4], decoder: &Decoder) -> Result<()> {
    let kind = container::name(kind);
    if decoder.is_complete() { Ok(()) } else { refuse(format!("section {kind} is too short or too long")) }
}
