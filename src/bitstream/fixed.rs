//! `--coding fixed`: every value at a computable bit offset.
//!
//! Where level 1 is nearest and a latent texel of it covers whole latent texels of a nearest level 0, the two share
//! *packets*: section PACK holds, for each latent texel of level 1 in raster order, its channels and then those of the
//! latent texels of level 0 in its cell, in raster order. Any other level is a plain grid of its own: GRD0, GRD1.

use super::pack::{BitWriter, bits_at};
use super::{Result, refuse};
use crate::model::quant::QuantizedLevel;
use crate::model::structure::{Filter, Structure};

/// Section of shared packets.
pub const PACKETS: [u8; 4] = *b"PACK";
/// Sections of plain grids.
pub const GRIDS: [[u8; 4]; 2] = [*b"GRD0", *b"GRD1"];

/// Where the values of a model lie.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Bits of each channel, for each level.
    pub bits: Vec<Vec<u32>>,
    /// Latent texels across and down, for each level.
    pub sizes: Vec<(usize, usize)>,
    /// Latent texels of level 0 across and down in a packet, where there are packets.
    pub cell: Option<(usize, usize)>,
}

impl Layout {
    /// The layout of `structure`.
    pub fn new(structure: &Structure) -> Self {
        let bits = structure.levels.iter().map(|l| bits_of(structure, l)).collect();
        let sizes: Vec<_> = structure.levels.iter().map(|l| (l.width, l.height)).collect();
        let nearest = structure.levels.iter().all(|l| l.filter == Filter::Nearest);
        let cell = match sizes[..] {
            [(w0, h0), (w1, h1)] if nearest && w1 > 0 && h1 > 0 && w0.is_multiple_of(w1) && h0.is_multiple_of(h1) => {
                Some((w0 / w1, h0 / h1))
            }
            _ => None,
        };
        Layout { bits, sizes, cell }
    }

    /// Bits of one latent texel of `level`.
    fn texel_bits(&self, level: usize) -> u64 {
        self.bits.get(level).map_or(0, |bits| bits.iter().map(|&b| u64::from(b)).sum())
    }

    /// Bits of one packet.
    fn packet_bits(&self, (width, height): (usize, usize)) -> u64 {
        self.texel_bits(1) + self.texel_bits(0) * (width * height) as u64
    }

    fn size(&self, level: usize) -> (usize, usize) {
        self.sizes.get(level).copied().unwrap_or((0, 0))
    }

    /// Sections and their lengths in bytes.
    pub fn sections(&self) -> Vec<([u8; 4], u64)> {
        let texels = |level: usize| (self.size(level).0 * self.size(level).1) as u64;
        match self.cell {
            Some(cell) => vec![(PACKETS, (texels(1) * self.packet_bits(cell)).div_ceil(8))],
            None => {
                let grid =
                    |(level, kind): (usize, &[u8; 4])| (*kind, (texels(level) * self.texel_bits(level)).div_ceil(8));
                GRIDS.iter().enumerate().take(self.sizes.len()).map(grid).collect()
            }
        }
    }

    /// Index of the section that holds `level`.
    pub fn section_of(&self, level: usize) -> usize {
        if self.cell.is_some() { 0 } else { level }
    }

    /// Bit offset of the first channel of latent texel (x, y) of `level` in its section.
    pub fn offset(&self, level: usize, x: usize, y: usize) -> u64 {
        let raster = |x: usize, y: usize, width: usize| (y * width + x) as u64;
        let Some((cw, ch)) = self.cell else { return raster(x, y, self.size(level).0) * self.texel_bits(level) };
        let across = self.size(1).0;
        if level == 1 {
            return raster(x, y, across) * self.packet_bits((cw, ch));
        }
        let packet = raster(x / cw, y / ch, across) * self.packet_bits((cw, ch));
        packet + self.texel_bits(1) + raster(x % cw, y % ch, cw) * self.texel_bits(0)
    }

    /// Bytes of its section that hold the latent texels of `level` in row `y` and `columns`.
    pub fn bytes_of_row(&self, level: usize, columns: std::ops::Range<usize>, y: usize) -> std::ops::Range<usize> {
        let Some(last) = columns.clone().next_back() else { return 0..0 };
        let end = (self.offset(level, last, y) + self.texel_bits(level)).div_ceil(8);
        (self.offset(level, columns.start, y) / 8) as usize..end as usize
    }

    /// Appends the values of latent texel (x, y) of `level` from its section.
    pub fn texel(&self, level: usize, (x, y): (usize, usize), section: &[u8], into: &mut Vec<u16>) {
        let mut at = self.offset(level, x, y);
        for &bits in self.bits.get(level).map_or(&[][..], Vec::as_slice) {
            into.push(bits_at(section, at, bits));
            at += u64::from(bits);
        }
    }
}

/// Bits of each channel of a level.
pub fn bits_of(structure: &Structure, level: &crate::model::structure::Level) -> Vec<u32> {
    if level.is_selector() {
        return level.selector_bits.clone();
    }
    vec![level.grid_bits.unwrap_or(structure.qbits); level.channels]
}

/// The sections of quantized levels.
pub fn write(structure: &Structure, levels: &[QuantizedLevel]) -> Vec<([u8; 4], Vec<u8>)> {
    let layout = Layout::new(structure);
    let put = |writer: &mut BitWriter, level: usize, x: usize, y: usize| {
        let Some(q) = levels.get(level) else { return };
        let from = (y * layout.size(level).0 + x) * q.bits.len();
        let texel = q.indices.get(from..).unwrap_or(&[]);
        texel.iter().zip(&q.bits).for_each(|(&index, &bits)| writer.put(index, bits));
    };
    let raster = |(width, height): (usize, usize)| (0..height).flat_map(move |y| (0..width).map(move |x| (x, y)));
    let section = |(k, (kind, _)): (usize, ([u8; 4], u64))| {
        let mut writer = BitWriter::default();
        match layout.cell {
            None => raster(layout.size(k)).for_each(|(x, y)| put(&mut writer, k, x, y)),
            Some((cw, ch)) => raster(layout.size(1)).for_each(|(bx, by)| {
                put(&mut writer, 1, bx, by);
                raster((cw, ch)).for_each(|(x, y)| put(&mut writer, 0, bx * cw + x, by * ch + y));
            }),
        }
        (kind, writer.finish())
    };
    layout.sections().into_iter().enumerate().map(section).collect()
}

/// The indices of every level; `sections` are the payloads in the order of [`Layout::sections`].
pub fn read(structure: &Structure, sections: &[&[u8]]) -> Result<Vec<Vec<u16>>> {
    let layout = Layout::new(structure);
    for ((kind, length), payload) in layout.sections().into_iter().zip(sections) {
        if payload.len() as u64 != length {
            let kind = super::container::name(kind);
            return refuse(format!("section {kind} has {} bytes and should have {length}", payload.len()));
        }
    }
    let level = |k: usize| {
        let (width, height) = layout.size(k);
        let section = sections.get(layout.section_of(k)).copied().unwrap_or(&[]);
        let mut indices = Vec::with_capacity(width * height * layout.bits.get(k).map_or(0, Vec::len));
        for y in 0..height {
            (0..width).for_each(|x| layout.texel(k, (x, y), section, &mut indices));
        }
        indices
    };
    Ok((0..layout.sizes.len()).map(level).collect())
}
