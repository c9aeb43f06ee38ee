//! Launches of kernels/gauss_newton.cu.

use super::{Buffer, Launcher, Name, ROWS, SHARED, THREADS};
use crate::backend::cuda::layout::{Batch, Scene};
use crate::error::Result;
use std::ffi::c_void;

/// The file of all kernels here.
pub const FILE: &str = "gauss_newton.cu";
/// Rows and columns of a block's square of sums (kernels/gauss_newton.cu).
const SQUARE: usize = 32;
const _: () = assert!(2 * SQUARE * (SQUARE + 1) * 4 <= SHARED);

impl Launcher {
    /// Adds the errors of texels to their elements; `of` are the elements of image columns and rows.
    pub fn gn_element_errors(
        &self,
        scene: &Scene,
        packed: &Buffer<f32>,
        of: [&Buffer<u32>; 2],
        columns: usize,
        errors: &Buffer<u64>,
    ) -> Result<()> {
        let texels = scene.width as usize * scene.height as usize;
        launch!(self, (FILE, "gn_element_errors"), (texels.div_ceil(THREADS), 1), self.shape.stage();
            scene: Scene = *scene,
            packed: u64 = packed.address(),
            element_x: u64 = of[0].address(),
            element_y: u64 = of[1].address(),
            columns: u32 = columns as u32,
            errors: u64 = errors.address(),
        )
    }

    /// Sums of image columns in `count` rows of elements from `first` on.
    #[allow(clippy::too_many_arguments)]
    pub fn gn_columns(
        &self,
        scene: &Scene,
        packed: &Buffer<f32>,
        (roots, h): (&Buffer<f32>, f32),
        level: usize,
        rows: &Buffer<u32>,
        (first, count): (usize, usize),
        columns: &Buffer<f32>,
    ) -> Result<()> {
        let across = (scene.width as usize).div_ceil(THREADS);
        launch!(self, (FILE, "gn_columns"), (across, count), self.shape.stage();
            scene: Scene = *scene,
            packed: u64 = packed.address(),
            roots: u64 = roots.address(),
            h: f32 = h,
            which: i32 = level as i32,
            rows: u64 = rows.address(),
            first: u32 = first as u32,
            columns: u64 = columns.address(),
        )
    }

    /// Sums of `count` rows of elements from those of their image columns; `values` is what an element keeps.
    pub fn gn_elements(
        &self,
        scene: &Scene,
        (level, channels): (usize, usize),
        columns: &Buffer<f32>,
        (across, elements): (&Buffer<u32>, usize),
        (count, values): (usize, usize),
        sums: &Buffer<f32>,
    ) -> Result<()> {
        launch!(self, (FILE, "gn_elements"), ((elements * values).div_ceil(THREADS), count), 0;
            columns: u64 = columns.address(),
            fx: u64 = scene.level[level].fx,
            across: u64 = across.address(),
            elements: u32 = elements as u32,
            width: i32 = scene.width,
            channels: i32 = channels as i32,
            nearest: i32 = scene.level[level].nearest,
            sums: u64 = sums.address(),
        )
    }

    /// A gathered batch's rows.
    pub fn gn_rows(
        &self,
        scene: &Scene,
        batch: &Batch,
        packed: &Buffer<f32>,
        (roots, h): (&Buffer<f32>, f32),
        into: &Buffer<f32>,
    ) -> Result<()> {
        let units: usize = self.shape.widths[1..].iter().sum();
        let across = (batch.count as usize).div_ceil(THREADS);
        launch!(self, (FILE, "gn_rows"), (across, 1 + units), self.shape.stage();
            scene: Scene = *scene,
            batch: Batch = *batch,
            packed: u64 = packed.address(),
            roots: u64 = roots.address(),
            h: f32 = h,
            into: u64 = into.address(),
        )
    }

    /// Adds the right-hand side of a layer of (inputs and bias, units), whose rows begin at `rows`, to `g`.
    pub fn gn_right(
        &self,
        from: &Buffer<f32>,
        batch: &Batch,
        rows: [usize; 3],
        (width, units): (usize, usize),
        g: &Buffer<f64>,
    ) -> Result<()> {
        launch!(self, (FILE, "gn_right"), (width.div_ceil(THREADS), units), 0;
            from: u64 = from.address(),
            count: u32 = batch.count,
            stride: u32 = batch.stride,
            inputs: u32 = rows[0] as u32,
            width: u32 = width as u32,
            sensitivities: u32 = rows[1] as u32,
            residuals: u32 = rows[2] as u32,
            g: u64 = g.address(),
        )
    }

    /// Products of `count` pairs of rows, each summed over `terms` rows.
    pub fn gn_pairs(
        &self,
        from: &Buffer<f32>,
        batch: &Batch,
        (list, count): (&Buffer<u32>, usize),
        terms: usize,
        into: &Buffer<f32>,
    ) -> Result<()> {
        let across = (batch.count as usize).div_ceil(THREADS);
        for first in (0..count).step_by(ROWS) {
            launch!(self, (FILE, "gn_pairs"), (across, ROWS.min(count - first)), 0;
                from: u64 = from.address(),
                pairs: u64 = list.address() + (first * 2 * size_of::<u32>()) as u64,
                terms: u32 = terms as u32,
                count: u32 = batch.count,
                stride: u32 = batch.stride,
                out: u64 = into.address() + (first * batch.stride as usize * size_of::<f32>()) as u64,
            )?;
        }
        Ok(())
    }

    /// Adds the products of all rows of `left` and all rows of `right` to `sums`.
    pub fn gn_multiply(
        &self,
        (left, height): (&Buffer<f32>, usize),
        (right, width): (&Buffer<f32>, usize),
        batch: &Batch,
        sums: &Buffer<f64>,
    ) -> Result<()> {
        let grid = (width.div_ceil(SQUARE), height.div_ceil(SQUARE));
        launch!(self, (FILE, "gn_multiply"), grid, 2 * SQUARE * (SQUARE + 1) * size_of::<f32>();
            left: u64 = left.address(),
            right: u64 = right.address(),
            count: u32 = batch.count,
            stride: u32 = batch.stride,
            height: u32 = height as u32,
            width: u32 = width as u32,
            sums: u64 = sums.address(),
        )
    }

    /// `from` on the grid of `bits` bits.
    pub fn snap_values(&self, from: &Buffer<f32>, count: usize, bits: u32, to: &Buffer<f32>) -> Result<()> {
        launch!(self, (FILE, "snap_values"), (count.div_ceil(THREADS), 1), 0;
            from: u64 = from.address(),
            count: u64 = count as u64,
            bits: u32 = bits,
            to: u64 = to.address(),
        )
    }

    /// Values limited to [-1, 1].
    pub fn limit_values(&self, values: &Buffer<f32>, count: usize) -> Result<()> {
        launch!(self, (FILE, "limit_values"), (count.div_ceil(THREADS), 1), 0;
            values: u64 = values.address(),
            count: u64 = count as u64,
        )
    }
}
