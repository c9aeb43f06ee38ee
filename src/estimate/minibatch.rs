//! Texels picked for a decoder step, gathered into strips.

use crate::model::decode::{Geometry, deblock_one, sample};
use crate::model::lanes::Lanes;
use crate::model::loss::strip_loss;
use crate::model::mlp::{Row, STRIP};

/// Up to [`STRIP`] texels with their decoder inputs and targets.
///
/// With deblocking the four neighbours' inputs are gathered too, so that the filter stands inside the loss.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Texels that count; the lanes behind them repeat the last one.
    pub count: usize,
    /// Inputs in summation order, for the texel itself, and with deblocking for its left, right, upper and lower
    /// neighbour (clamped at the border).
    pub inputs: Vec<Vec<Row>>,
    /// Targets, one row an output.
    pub target: Vec<Row>,
    wh: Row,
    wv: Row,
}

impl Chunk {
    /// Room for one chunk.
    pub fn new(geometry: &Geometry) -> Self {
        let points = if geometry.deblock.is_some() { 5 } else { 1 };
        Chunk {
            count: 0,
            inputs: vec![vec![Row::ZERO; geometry.network.inputs()]; points],
            target: vec![Row::ZERO; geometry.network.outputs()],
            wh: Row::ZERO,
            wv: Row::ZERO,
        }
    }

    /// Gathers 1 to [`STRIP`] texels given by their raster index; `target` holds one plane an output.
    ///
    /// `l` is a level of one lane, whatever the level of the rest.
    #[inline(always)]
    pub fn gather<L: Lanes<F = f32>>(
        &mut self,
        l: L,
        geometry: &Geometry,
        levels: &[Vec<f32>],
        target: &[Vec<f32>],
        texels: &[u32],
    ) {
        let (width, height) = (geometry.structure.width, geometry.structure.height);
        self.count = texels.len();
        for lane in 0..STRIP {
            let texel = texels[lane.min(texels.len() - 1)] as usize;
            let (px, py) = (texel % width, texel / width);
            let near = [
                (px, py),
                (px.saturating_sub(1), py),
                ((px + 1).min(width - 1), py),
                (px, py.saturating_sub(1)),
                (px, (py + 1).min(height - 1)),
            ];
            for (inputs, (x, y)) in self.inputs.iter_mut().zip(near) {
                gather_inputs(l, geometry, levels, (x, y), inputs, lane);
            }
            for (row, plane) in self.target.iter_mut().zip(target) {
                row.0[lane] = plane[texel];
            }
            if let Some((wx, wy)) = &geometry.deblock {
                self.wh.0[lane] = wx[px];
                self.wv.0[lane] = wy[py];
            }
        }
    }

    /// Integer losses of the chunk from the outputs of each of its points; `out[0]` is overwritten by the filtered output.
    pub fn loss<L: Lanes>(&self, l: L, weights: &[f32], out: &mut [Vec<Row>], loss: &mut Row) {
        if let [centre, left, right, above, below] = out {
            l.enter(
                #[inline(always)]
                || {
                    for c in 0..centre.len() {
                        let mut at = 0;
                        while at < STRIP {
                            let horizontal = [l.load(&left[c].0[at..]), l.load(&right[c].0[at..])];
                            let vertical = [l.load(&above[c].0[at..]), l.load(&below[c].0[at..])];
                            let (wh, wv) = (l.load(&self.wh.0[at..]), l.load(&self.wv.0[at..]));
                            let x = deblock_one(l, l.load(&centre[c].0[at..]), horizontal, vertical, wh, wv);
                            l.store(x, &mut centre[c].0[at..]);
                            at += L::N;
                        }
                    }
                },
            );
        }
        strip_loss(l, weights, &out[0], &self.target, loss);
    }
}

/// One texel's decoder inputs into one lane, in summation order.
#[inline(always)]
fn gather_inputs<L: Lanes<F = f32>>(
    l: L,
    geometry: &Geometry,
    levels: &[Vec<f32>],
    (px, py): (usize, usize),
    inputs: &mut [Row],
    lane: usize,
) {
    for (feature, row) in geometry.features.iter().zip(inputs.iter_mut()) {
        row.0[lane] = feature.at(px, py);
    }
    for (level, values) in levels.iter().enumerate() {
        for (c, row) in inputs[geometry.network.columns(level)].iter_mut().enumerate() {
            row.0[lane] = sample(l, geometry, level, values, (px, py), c);
        }
    }
}
