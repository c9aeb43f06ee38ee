//! Prices of a model's values by the models of the range coding, for searches that weigh rate against error.
#![allow(clippy::indexing_slicing)] // reads no file: indices come from the structure

use super::context::{Grid, latent_costs, selector_costs};
use super::fixed::bits_of;
use super::record::blocks_of;
use crate::model::price::Prices;
use crate::model::quant::QuantizedLevel;
use crate::model::structure::{Parameters, Structure};

/// Prices of every level at `lambda` squared 8-bit levels a bit, from the values as they stand; `None` for a level of
/// floats that is not on a grid.
pub fn prices(structure: &Structure, parameters: &Parameters, lambda: f32) -> Vec<Option<Prices>> {
    let levels: Vec<_> = structure
        .levels
        .iter()
        .zip(&parameters.levels)
        .map(|(level, values)| QuantizedLevel::new(level, values, structure.qbits))
        .collect();
    let unit = Prices::unit(lambda);
    let price = |k: usize| {
        let level = &structure.levels[k];
        let bits = bits_of(structure, level);
        let mut indices = levels[k].indices.clone();
        let mut grid = Grid { width: level.width, height: level.height, bits: &bits, indices: &mut indices };
        if !level.is_selector() {
            level.grid_bits?;
            let (first, window, costs) = latent_costs(&mut grid);
            return Some(Prices { first, window, costs, unit });
        }
        let below = levels.get(1).map(|q| q.indices.as_slice());
        let block_bits = structure.levels.get(1).map(|level| bits_of(structure, level)).unwrap_or_default();
        let (window, costs) = selector_costs(&mut grid, blocks_of(structure, &block_bits, below));
        Some(Prices { first: vec![0; level.values()], window, costs, unit })
    };
    (0..structure.levels.len()).map(price).collect()
}
