//! Texels of a decoder step: drawn, and gathered in parts that fit the scratch memory.

use super::Cuda;
use super::layout::{Batch, Scene};
use crate::error::Result;
use crate::noise::hash::Stream as NoiseStream;

impl Cuda {
    /// Draws a minibatch, or takes all texels; returns their number and the address of the list (0 = all).
    pub(super) fn draw_texels(&mut self, step: u32, batch: Option<usize>) -> Result<(usize, u64)> {
        let all = self.geometry.structure.texels();
        let Some(count) = batch else { return Ok((all, 0)) };
        self.scratch.texels.reserve(count)?;
        self.launcher.fill_indices(self.draw(NoiseStream::Batch, step), &self.scratch.texels, count, all)?;
        Ok((count, self.scratch.texels.address()))
    }

    /// Room for `count` texels of a minibatch, or fewer where they would not fit the scratch memory; `rows` floats are
    /// held for each point of a texel besides its inputs.
    pub(super) fn batch(&mut self, count: usize, rows: usize) -> Result<Batch> {
        let shape = &self.launcher.shape;
        let (points, inputs, outputs) = (self.launcher.points(), shape.inputs, shape.outputs);
        let floats = points * (inputs + rows) + outputs + 2;
        self.batch_of((self.options.scratch / 4 / floats).clamp(1, count.max(1)), rows)
    }

    /// Room for `stride` texels of a minibatch.
    pub(super) fn batch_of(&mut self, stride: usize, rows: usize) -> Result<Batch> {
        let shape = &self.launcher.shape;
        let (points, inputs, outputs) = (self.launcher.points(), shape.inputs, shape.outputs);
        let scratch = &mut self.scratch;
        scratch.inputs.reserve(points * inputs * stride)?;
        scratch.target.reserve(outputs * stride)?;
        scratch.wh.reserve(stride)?;
        scratch.wv.reserve(stride)?;
        scratch.traces.reserve(points * rows * stride)?;
        Ok(Batch {
            inputs: scratch.inputs.address(),
            target: scratch.target.address(),
            wh: scratch.wh.address(),
            wv: scratch.wv.address(),
            count: 0,
            stride: stride as u32,
        })
    }

    /// Gathers the part of a minibatch from texel `first` on.
    pub(super) fn gather(
        &self,
        file: &'static str,
        scene: &Scene,
        list: u64,
        first: usize,
        count: usize,
        batch: &mut Batch,
    ) -> Result<()> {
        batch.count = (count - first).min(batch.stride as usize) as u32;
        let texels = if list == 0 { 0 } else { list + (first * size_of::<u32>()) as u64 };
        self.launcher.gather_batch(file, scene, texels, first, batch)
    }
}
