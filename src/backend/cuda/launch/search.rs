//! Launch of kernels/selector_search.cu.

use super::{Buffer, CANDIDATES, Launcher, Name, SHARED, THREADS};
use crate::backend::cuda::layout::Scene;
use crate::error::Result;
use crate::model::price::Prices;
use std::ffi::c_void;

impl Launcher {
    /// One pass over level 0's cells of `cell` texels, channel by channel or `joint`ly, by error and, where
    /// there are some, `prices`.
    pub fn search_selectors(
        &self,
        scene: &Scene,
        packed: &Buffer<f32>,
        (values, changed): (&Buffer<f32>, &Buffer<u64>),
        bits: (&Buffer<u32>, usize),
        (cell, joint): ((usize, usize), bool),
        prices: Option<(&Prices, &Buffer<i32>)>,
    ) -> Result<()> {
        let mut lanes = (cell.0 * cell.1).next_power_of_two().min(THREADS);
        let shared =
            |slots: usize| self.shape.stage() + slots * (CANDIDATES * size_of::<u64>() + bits.1 * size_of::<f32>());
        while shared(THREADS / lanes) > SHARED && lanes < THREADS {
            lanes *= 2;
        }
        let slots = THREADS / lanes;
        let cells = (scene.width as usize / cell.0) * (scene.height as usize / cell.1);
        launch!(self, ("selector_search.cu", "search_selectors"), (cells.div_ceil(slots), 1), shared(slots);
            scene: Scene = *scene,
            packed: u64 = packed.address(),
            values: u64 = values.address(),
            bits: u64 = bits.0.address(),
            cell_w: i32 = cell.0 as i32,
            cell_h: i32 = cell.1 as i32,
            lanes: i32 = lanes as i32,
            joint: i32 = i32::from(joint),
            costs: u64 = prices.map_or(0, |p| p.1.address()),
            cost_unit: i64 = prices.map_or(0, |p| p.0.unit),
            cost_window: i32 = prices.map_or(0, |p| p.0.window as i32),
            changed: u64 = changed.address(),
        )
    }
}
