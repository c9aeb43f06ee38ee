//! Exact exhaustive search of level 0's selectors, cell by cell: channel by channel, or all channels jointly (SPEC
//! section 4).

use crate::model::decode::{Geometry, InputReader};
use crate::model::lanes::Lanes;
use crate::model::latent::cell_of;
use crate::model::loss::strip_loss;
use crate::model::mlp::{Row, STRIP, Start, Weights, dense, forward_from, hidden_layer};
use crate::model::price::Prices;
use crate::model::quant::{grid_index, grid_value};

/// Scratch of one thread.
#[derive(Clone, Debug)]
pub struct Search {
    reader: InputReader,
    inputs: Vec<Row>,
    strips: Vec<SearchStrip>,
    a: Vec<Row>,
    b: Vec<Row>,
    out: Vec<Row>,
    loss: Row,
    /// Errors \[candidate]\[cell] in units of 2^-36.
    errors: Vec<i64>,
}

/// A run of texels of one image row inside the searched cells.
#[derive(Clone, Debug)]
struct SearchStrip {
    /// First column and number of columns.
    start: usize,
    count: usize,
    /// First-layer sums of everything but level 0's channels from the searched one on.
    prefix: Vec<Row>,
    spare: Vec<Row>,
    /// Level 0's channels, one row each.
    selectors: Vec<Row>,
    target: Vec<Row>,
}

impl Search {
    /// Room for one thread.
    pub fn new(geometry: &Geometry) -> Self {
        let rows = |n: usize| vec![Row::ZERO; n];
        let widest = geometry.network.widest();
        Search {
            reader: InputReader::new(geometry),
            inputs: rows(geometry.network.inputs()),
            strips: vec![],
            a: rows(widest),
            b: rows(widest),
            out: rows(geometry.network.outputs()),
            loss: Row::ZERO,
            errors: vec![],
        }
    }

    /// Searches one row of cells; `selectors` is level 0's row (cells x channels), updated in place.
    /// Returns how many values changed.
    ///
    /// `problem` is the decoder as packed, the loss weights and the target planes.
    pub fn search_row<L: Lanes>(
        &mut self,
        l: L,
        geometry: &Geometry,
        problem: &Problem,
        cell_row: usize,
        selectors: &mut [f32],
    ) -> usize {
        let (cw, _) = cell_of(&geometry.structure, 0);
        let cells = geometry.structure.levels[0].width;
        let run = (STRIP / cw).max(1);
        (0..cells)
            .step_by(run)
            .map(|first| {
                let last = (first + run).min(cells);
                self.search_cells(l, geometry, problem, cell_row, first..last, selectors)
            })
            .sum()
    }

    fn search_cells<L: Lanes>(
        &mut self,
        l: L,
        geometry: &Geometry,
        problem: &Problem,
        cell_row: usize,
        cells: std::ops::Range<usize>,
        selectors: &mut [f32],
    ) -> usize {
        self.prepare(l, geometry, problem, cell_row, cells.clone());
        let level = &geometry.structure.levels[0];
        let groups: Vec<_> = if problem.joint {
            std::iter::once(0..level.channels).collect()
        } else {
            (0..level.channels).map(|c| c..c + 1).collect()
        };
        let mut changed = 0;
        for group in groups {
            let bits = &level.selector_bits[group.clone()];
            self.evaluate(l, geometry, problem, group.clone(), bits, &cells);
            for (k, cell) in cells.clone().enumerate() {
                let values = &mut selectors[cell * level.channels..][group.clone()];
                let first = (cell_row * level.width + cell) * level.channels + group.start;
                if let Some(prices) = problem.prices {
                    for (candidate, errors) in self.errors.chunks_exact_mut(cells.len()).enumerate() {
                        let price = |(c, index)| prices.of(first + c, index);
                        errors[k] += digits(candidate as u32, bits).enumerate().map(price).sum::<i64>();
                    }
                }
                changed += choose(&self.errors, cells.len(), k, values, bits);
            }
            self.settle(l, geometry, problem, group, selectors);
        }
        changed
    }

    /// Moves the chosen channels of `group` into every strip's constant part.
    fn settle<L: Lanes>(
        &mut self,
        l: L,
        geometry: &Geometry,
        problem: &Problem,
        group: std::ops::Range<usize>,
        selectors: &[f32],
    ) {
        let (cw, _) = cell_of(&geometry.structure, 0);
        let channels = geometry.network.channels[0];
        let column = geometry.network.columns(0).start + group.start;
        let weights = Weights::of(problem.packed, &geometry.network.layers[0], column);
        for strip in &mut self.strips {
            for c in group.clone() {
                for lane in 0..strip.count {
                    strip.selectors[c].0[lane] = selectors[(strip.start + lane) / cw * channels + c];
                }
            }
            dense(l, weights, Start::Rows(&strip.prefix), &strip.selectors[group.clone()], &mut strip.spare, None);
            std::mem::swap(&mut strip.prefix, &mut strip.spare);
        }
    }

    /// Reads the cells' texels and sums the part of the first layer that does not change.
    fn prepare<L: Lanes>(
        &mut self,
        l: L,
        geometry: &Geometry,
        problem: &Problem,
        cell_row: usize,
        cells: std::ops::Range<usize>,
    ) {
        let (cw, ch) = cell_of(&geometry.structure, 0);
        let network = &geometry.network;
        let first = &network.layers[0];
        let columns = network.columns(0);
        let across = ((cells.end - cells.start) * cw).div_ceil(STRIP);
        let fresh = || SearchStrip {
            start: 0,
            count: 0,
            prefix: vec![Row::ZERO; first.outputs],
            spare: vec![Row::ZERO; first.outputs],
            selectors: vec![Row::ZERO; network.channels[0]],
            target: vec![Row::ZERO; network.outputs()],
        };
        self.strips.resize_with(across * ch, fresh);
        for (k, strip) in self.strips.iter_mut().enumerate() {
            // Down the rows first, so that the reader keeps its latent rows.
            let y = cell_row * ch + k % ch;
            strip.start = cells.start * cw + k / ch * STRIP;
            strip.count = STRIP.min(cells.end * cw - strip.start);
            if k % ch == 0 {
                self.reader.reset();
            }
            l.enter(
                #[inline(always)]
                || self.reader.read(l, geometry, problem.levels, strip.start, y, &mut self.inputs),
            );
            let bias = Start::Bias(&problem.packed[first.biases..][..first.outputs]);
            dense(
                l,
                Weights::of(problem.packed, first, 0),
                bias,
                &self.inputs[..columns.start],
                &mut strip.prefix,
                None,
            );
            strip.selectors.copy_from_slice(&self.inputs[columns.clone()]);
            load_target(problem.target, geometry.structure.width, strip.start, strip.count, y, &mut strip.target);
        }
    }

    /// Fills `errors` with every cell's error at every combination of the values of `group`'s channels.
    fn evaluate<L: Lanes>(
        &mut self,
        l: L,
        geometry: &Geometry,
        problem: &Problem,
        group: std::ops::Range<usize>,
        bits: &[u32],
        cells: &std::ops::Range<usize>,
    ) {
        let (cw, _) = cell_of(&geometry.structure, 0);
        let network = &geometry.network;
        let weights = Weights::of(problem.packed, &network.layers[0], network.columns(0).start + group.start);
        self.errors.clear();
        self.errors.resize(cells.len() << bits.iter().sum::<u32>(), 0);
        for (candidate, errors) in self.errors.chunks_exact_mut(cells.len()).enumerate() {
            for strip in &mut self.strips {
                for (c, index) in group.clone().zip(digits(candidate as u32, bits)) {
                    strip.selectors[c] = Row([grid_value(index, bits[c - group.start]); STRIP]);
                }
                let units = network.layers[0].outputs;
                hidden_layer(
                    l,
                    network,
                    weights,
                    Start::Rows(&strip.prefix),
                    &strip.selectors[group.start..],
                    &mut self.a[..units],
                );
                forward_from(l, network, problem.packed, 0, (&mut self.a, &mut self.b), &mut self.out);
                strip_loss(l, problem.weights, &self.out, &strip.target, &mut self.loss);
                for lane in 0..strip.count {
                    errors[(strip.start + lane) / cw - cells.start] += self.loss.0[lane] as i64;
                }
            }
        }
    }
}

/// What a search reads and does not change.
#[derive(Clone, Copy)]
pub struct Problem<'a> {
    /// Decoder parameters as [`crate::model::mlp::Network::pack`] lays them out.
    pub packed: &'a [f32],
    /// Latent values of all levels before the search.
    pub levels: &'a [Vec<f32>],
    /// Loss weight of each output.
    pub weights: &'a [f32],
    /// One plane an output.
    pub target: &'a [Vec<f32>],
    /// All channels at once in place of one after the other; their depths add up to at most
    /// [`crate::model::quant::MOST_JOINT_BITS`].
    pub joint: bool,
    /// What values cost beside their error.
    pub prices: Option<&'a Prices>,
}

/// The index of each channel in combination `candidate`: the first channel's index varies slowest.
fn digits(candidate: u32, bits: &[u32]) -> impl Iterator<Item = u32> {
    let mut below: u32 = bits.iter().sum();
    bits.iter().map(move |&bits| {
        below -= bits;
        candidate >> below & ((1 << bits) - 1)
    })
}

/// Sets one cell's `values` to the best combination: the current one first, then the others ascending, each taken only
/// where its error is strictly lower. Returns how many values changed.
fn choose(errors: &[i64], cells: usize, cell: usize, values: &mut [f32], bits: &[u32]) -> usize {
    let error = |candidate: u32| errors[candidate as usize * cells + cell];
    let now = values.iter().zip(bits).fold(0, |now, (&z, &bits)| now << bits | grid_index(z, bits));
    let (mut best, mut least) = (now, error(now));
    for candidate in (0..1 << bits.iter().sum::<u32>()).filter(|&k| k != now) {
        if error(candidate) < least {
            (best, least) = (candidate, error(candidate));
        }
    }
    let mut changed = 0;
    for ((z, &bits), index) in values.iter_mut().zip(bits).zip(digits(best, bits)) {
        let value = grid_value(index, bits);
        changed += usize::from(value != *z);
        *z = value;
    }
    changed
}

/// Copies `count` targets of row `y` from column `start` on into one row an output.
#[inline(always)]
pub fn load_target(target: &[Vec<f32>], width: usize, start: usize, count: usize, y: usize, rows: &mut [Row]) {
    for (row, plane) in rows.iter_mut().zip(target) {
        row.0[..count].copy_from_slice(&plane[y * width + start..][..count]);
    }
}
