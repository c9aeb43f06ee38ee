//! The state as it is stored, which steps see once a grid or rounded weights are asked for.

use super::Cuda;
use super::layout::Scene;
use super::memory::Buffer;
use crate::backend::Seen;
use crate::error::Result;
use crate::model::quant::round_decoder;

/// Copies of what is not seen as it is.
#[derive(Default)]
pub struct View {
    seen: Seen,
    /// By level.
    levels: [Option<Buffer<f32>>; 2],
    /// Weights, and their packed copy.
    decoder: Option<[Buffer<f32>; 2]>,
}

impl Cuda {
    /// Bits of a level's grid; `None` = free.
    pub(super) fn seen_grid(&self, level: usize) -> Option<u32> {
        self.view.seen.grid[level]
    }

    /// The scene whose latents steps see.
    pub(super) fn seen_scene(&self) -> Scene {
        let mut scene = self.scene();
        for (level, copy) in scene.level.iter_mut().zip(&self.view.levels) {
            if let Some(copy) = copy {
                level.values = copy.address();
            }
        }
        scene
    }

    /// The weights that steps see, and their packed copy.
    pub(super) fn seen_decoder(&self) -> (&Buffer<f32>, &Buffer<f32>) {
        self.view.decoder.as_ref().map_or((&self.decoder.w, &self.packed), |[w, packed]| (w, packed))
    }

    /// Sees the state as `seen` from now on.
    pub(super) fn see(&mut self, seen: Seen) -> Result<()> {
        self.view.seen = seen;
        self.refresh()
    }

    /// Rounds again after the state has changed. Weights are few and rounded on the host.
    pub(super) fn refresh(&mut self) -> Result<()> {
        let stream = &self.launcher.stream;
        for ((group, copy), bits) in self.levels.iter().zip(&mut self.view.levels).zip(self.view.seen.grid) {
            let Some(bits) = bits else {
                *copy = None;
                continue;
            };
            let to = match copy.take() {
                Some(to) => to,
                None => Buffer::zeros(stream, "latents on their grid", group.count)?,
            };
            self.launcher.snap_values(&group.w, group.count, bits, &to)?;
            *copy = Some(to);
        }
        let Some(bits) = self.view.seen.decoder else {
            self.view.decoder = None;
            return Ok(());
        };
        let rounded = round_decoder(&self.geometry.network.layers, bits, &self.decoder.w.get(self.decoder.count)?);
        let w = Buffer::of(stream, "the rounded decoder", &rounded)?;
        let packed = Buffer::zeros(stream, "the rounded decoder", self.launcher.shape.packed)?;
        self.launcher.pack_decoder(&w, &self.place, self.decoder.count, &packed)?;
        self.view.decoder = Some([w, packed]);
        Ok(())
    }
}
