//! A plain decode of the image, for errors or for planes.

use super::{Cpu, load_target_at};
use crate::model::decode::{InputReader, Strip, Window, sweep_strip};
use crate::model::lanes::Lanes;
use crate::model::loss::strip_loss;
use crate::model::mlp::{Row, forward};
use crate::model::quant::round_rows;
use crate::model::structure::TextureInfo;

/// A plain decode of the image, for errors or for planes.
pub(super) struct Evaluation<'a> {
    pub(super) cpu: &'a Cpu,
    pub(super) packed: &'a [f32],
    pub(super) levels: &'a [Vec<f32>],
    pub(super) round: bool,
    /// Columns that are asked for; strips beside them are left out.
    pub(super) columns: (usize, usize),
}

impl Evaluation<'_> {
    /// Decodes a band and hands on each finished strip: (strip, y, outputs).
    #[inline(always)]
    pub(super) fn sweep<L: Lanes>(&self, l: L, band: (usize, usize), mut take: impl FnMut(Strip, usize, &[Row])) {
        let geometry = &self.cpu.geometry;
        let network = &geometry.network;
        let mut window = Window::new(geometry, 1);
        let mut reader = InputReader::new(geometry);
        let rows = |n: usize| vec![Row::ZERO; n];
        let (mut inputs, mut a, mut b) = (rows(network.inputs()), rows(network.widest()), rows(network.widest()));
        let asked = |strip: &Strip| strip.first < self.columns.1 && strip.first + strip.count > self.columns.0;
        for strip in geometry.strips().filter(asked) {
            reader.reset();
            sweep_strip(
                l,
                geometry,
                strip,
                band,
                &mut window,
                #[inline(always)]
                |y: usize, out: &mut [Row]| {
                    reader.read(l, geometry, self.levels, strip.start, y, &mut inputs);
                    forward(l, network, self.packed, &inputs, (&mut a, &mut b), out);
                },
                #[inline(always)]
                |_, y, out: &[Row]| take(strip, y, out),
            );
        }
    }

    /// Adds each texture's squared error over the source extent, in units of 2^-36, to `sums`.
    #[inline(always)]
    pub(super) fn errors<L: Lanes>(&self, l: L, band: (usize, usize), sums: &mut [i64]) {
        let Cpu { geometry, target, .. } = self.cpu;
        let structure = &geometry.structure;
        let mut rows = vec![Row::ZERO; structure.outputs()];
        let mut rounded = rows.clone();
        let mut loss = Row::ZERO;
        let shares: Vec<_> = structure.textures.iter().map(TextureInfo::shares).collect();
        self.sweep(
            l,
            band,
            #[inline(always)]
            |strip, y, out| {
                let count = strip.count.min(structure.source_width.saturating_sub(strip.first));
                if count == 0 {
                    return;
                }
                load_target_at(target, structure.width, strip.first, count, y, strip.offset(), &mut rows);
                let mut first = 0;
                for ((texture, shares), sum) in structure.textures.iter().zip(&shares).zip(sums.iter_mut()) {
                    let channels = first..first + shares.len();
                    first = channels.end;
                    let mut decoded = &out[channels.clone()];
                    if self.round {
                        rounded[channels.clone()].copy_from_slice(decoded);
                        round_rows(l, texture.depth, &mut rounded[channels.clone()]);
                        decoded = &rounded[channels.clone()];
                    }
                    strip_loss(l, shares, decoded, &rows[channels], &mut loss);
                    let counted = &loss.0[strip.offset()..][..count];
                    *sum += counted.iter().map(|&x| x as i64).sum::<i64>();
                }
            },
        );
    }

    /// Writes a band of each output plane.
    #[inline(always)]
    pub(super) fn planes<L: Lanes>(&self, l: L, band: (usize, usize), planes: &mut [&mut [f32]]) {
        let width = self.cpu.geometry.structure.width;
        self.sweep(
            l,
            band,
            #[inline(always)]
            |strip, y, out| {
                for (plane, row) in planes.iter_mut().zip(out) {
                    let at = (y - band.0) * width + strip.first;
                    plane[at..at + strip.count].copy_from_slice(&row.0[strip.offset()..][..strip.count]);
                }
            },
        );
    }
}
