//! A decoder step by evolution strategies: every perturbed decoder on a minibatch.

use super::Cpu;
use crate::estimate::minibatch::Chunk;
use crate::model::decode::Geometry;
use crate::model::lanes::{Lanes, Scalar};
use crate::model::loss::sum_losses;
use crate::model::mlp::{Row, forward};

/// A decoder step's perturbed decoders, packed, one after the other.
pub(super) struct BatchProblem<'a> {
    pub(super) cpu: &'a Cpu,
    pub(super) decoders: &'a [f32],
}

pub(super) struct BatchScratch {
    pub(super) chunk: Chunk,
    pub(super) a: Vec<Row>,
    pub(super) b: Vec<Row>,
    pub(super) out: Vec<Vec<Row>>,
    pub(super) loss: Row,
}

impl BatchScratch {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let chunk = Chunk::new(geometry);
        let rows = |n| vec![Row::ZERO; n];
        let widest = geometry.network.widest();
        let out = vec![rows(geometry.network.outputs()); chunk.inputs.len()];
        BatchScratch { chunk, a: rows(widest), b: rows(widest), out, loss: Row::ZERO }
    }
}

impl BatchProblem<'_> {
    /// Adds every decoder's loss over `texels` to its sum.
    #[inline(always)]
    pub(super) fn add_chunk<L: Lanes>(&self, l: L, scratch: &mut BatchScratch, texels: &[u32], sums: &mut [i64]) {
        let Cpu { geometry, target, weights, .. } = self.cpu;
        let levels = &self.cpu.seen().levels;
        let BatchScratch { chunk, a, b, out, loss } = scratch;
        chunk.gather(Scalar, geometry, levels, target, texels);
        let parameters = geometry.network.parameters();
        for (packed, sum) in self.decoders.chunks_exact(parameters).zip(sums) {
            for (inputs, out) in chunk.inputs.iter().zip(out.iter_mut()) {
                forward(l, &geometry.network, packed, inputs, (a, b), out);
            }
            chunk.loss(l, weights, out, loss);
            *sum += sum_losses(loss, texels.len());
        }
    }
}
