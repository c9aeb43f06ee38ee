//! Gauss-Newton steps: sums over texels on the device, the small systems on the host by the CPU backend's code.

use super::layout::Batch;
use super::memory::Buffer;
use super::{Cuda, signed};
use crate::backend::cpu::gauss_newton::{LatentSearch, LevelNormal, Machine, Normal, decoder_step};
use crate::backend::simd::SimdLevel;
use crate::backend::{DecoderGn, DecoderReport, LatentGn, LatentReport};
use crate::config::Simd;
use crate::error::Result;
use crate::estimate::gauss_newton::decoder::{CHUNK, Layout};
use crate::estimate::gauss_newton::latent::Elements;
use crate::model::decode::Geometry;
use cudarc::driver::CudaStream;
use std::sync::Arc;

/// The elements of a level on the device.
struct Tables {
    elements: Elements,
    /// Element of each image column and row.
    of: [Buffer<u32>; 2],
    /// Texel positions of each element across and down.
    ranges: [Buffer<u32>; 2],
}

/// What the steps hold besides the state.
pub struct Room {
    roots: Buffer<f32>,
    levels: Vec<Tables>,
    /// Trial values of a level, of the decoder, and its packed copy.
    trial: Buffer<f32>,
    packed: Buffer<f32>,
    errors: Buffer<u64>,
    columns: Buffer<f32>,
    sums: Buffer<f32>,
    rows: Buffer<f32>,
    factors: [Buffer<f32>; 2],
    /// Sums of each product, and of each layer's right-hand side.
    products: Vec<Buffer<f64>>,
    rights: Vec<Buffer<f64>>,
    simd: SimdLevel,
}

impl Room {
    /// Room for `geometry` under the loss weights of its outputs.
    pub fn new(stream: &Arc<CudaStream>, geometry: &Geometry, weights: &[f32], packed: usize) -> Result<Self> {
        let structure = &geometry.structure;
        let tables = |level: usize| -> Result<Tables> {
            let elements = Elements::new(geometry, level);
            let extents = [structure.width, structure.height];
            let mut of = extents.map(|extent| vec![0; extent]);
            let mut flat = [vec![], vec![]];
            for (axis, ranges) in elements.ranges().into_iter().enumerate() {
                for (e, &(first, last)) in ranges.iter().enumerate() {
                    of[axis][first..last].fill(e as u32);
                    flat[axis].extend([first as u32, last as u32]);
                }
            }
            let upload = |table: &[Vec<u32>; 2]| -> Result<[Buffer<u32>; 2]> {
                Ok([Buffer::of(stream, "elements", &table[0])?, Buffer::of(stream, "elements", &table[1])?])
            };
            let (of, ranges) = (upload(&of)?, upload(&flat)?);
            Ok(Tables { elements, of, ranges })
        };
        let floats = |what| Buffer::zeros(stream, what, 0);
        let roots: Vec<f32> = weights.iter().map(|w| w.sqrt()).collect();
        Ok(Room {
            roots: Buffer::of(stream, "loss weights", &roots)?,
            levels: (0..structure.levels.len()).map(tables).collect::<Result<_>>()?,
            trial: floats("trial values")?,
            packed: Buffer::zeros(stream, "a trial decoder", packed)?,
            errors: Buffer::zeros(stream, "errors of elements", 0)?,
            columns: floats("sums of columns")?,
            sums: floats("sums of elements")?,
            rows: floats("sensitivities")?,
            factors: [floats("products of sensitivities")?, floats("products of inputs")?],
            products: vec![],
            rights: vec![],
            simd: SimdLevel::new(Simd::Auto)?,
        })
    }
}

/// The machine of a step; `texels` is the drawn minibatch of a decoder step: their number and the list's address.
struct Sums<'a> {
    cuda: &'a mut Cuda,
    texels: (usize, u64),
}

impl Sums<'_> {
    /// Uploads a trial decoder and packs it.
    fn pack_trial(&mut self, decoder: &[f32]) -> Result<()> {
        let cuda = &mut *self.cuda;
        cuda.room.trial.reserve(decoder.len())?;
        cuda.room.trial.set(decoder)?;
        cuda.launcher.pack_decoder(&cuda.room.trial, &cuda.place, decoder.len(), &cuda.room.packed)
    }

    /// The elements' errors where the level's values are those of the trial.
    fn errors(&mut self, level: usize) -> Result<Vec<i64>> {
        let cuda = &mut *self.cuda;
        let mut scene = cuda.scene();
        let room = &mut cuda.room;
        scene.level[level].values = room.trial.address();
        let Tables { elements, of, .. } = &room.levels[level];
        let count = elements.rows() * elements.columns();
        room.errors.reserve(count)?;
        room.errors.clear()?;
        let of = [&of[0], &of[1]];
        cuda.launcher.gn_element_errors(&scene, &cuda.packed, of, elements.columns(), &room.errors)?;
        Ok(signed(room.errors.get(count)?))
    }
}

impl Machine for Sums<'_> {
    fn level_normal(&mut self, elements: &Elements, values: &[f32], h: f32) -> Result<LevelNormal> {
        let level = elements.level;
        let errors = self.element_errors(elements, values)?;
        let cuda = &mut *self.cuda;
        let mut scene = cuda.scene();
        let room = &mut cuda.room;
        scene.level[level].values = room.trial.address();
        let (width, columns, rows) = (scene.width as usize, elements.columns(), elements.rows());
        let (stride, column) = (elements.stride(), elements.column());
        let at_once = cuda.options.scratch / 4 / (width * column + columns * stride);
        let at_once = at_once.clamp(1, rows.min(super::ROWS));
        room.columns.reserve(at_once * width * column)?;
        room.sums.reserve(at_once * columns * stride)?;
        let tables = &room.levels[level];
        let mut sums = Vec::with_capacity(rows * columns * stride);
        for first in (0..rows).step_by(at_once) {
            let count = at_once.min(rows - first);
            let (roots, down) = ((&room.roots, h), &tables.ranges[1]);
            cuda.launcher.gn_columns(&scene, &cuda.packed, roots, level, down, (first, count), &room.columns)?;
            let (of, across) = ((level, elements.channels), (&tables.ranges[0], columns));
            cuda.launcher.gn_elements(&scene, of, &room.columns, across, (count, stride), &room.sums)?;
            sums.extend(room.sums.get(count * columns * stride)?);
        }
        Ok(LevelNormal::assemble(elements, &sums, errors))
    }

    fn element_errors(&mut self, elements: &Elements, values: &[f32]) -> Result<Vec<i64>> {
        self.cuda.room.trial.reserve(values.len())?;
        self.cuda.room.trial.set(values)?;
        self.errors(elements.level)
    }

    fn decoder_normal(&mut self, decoder: &[f32], step: &DecoderGn) -> Result<Normal> {
        self.pack_trial(decoder)?;
        let (count, list) = self.texels;
        let cuda = &mut *self.cuda;
        let scene = cuda.scene();
        let layout = Layout::new(&cuda.geometry.network);
        let mut batch = cuda.batch_of(CHUNK, 0)?;
        cuda.room.rows.reserve(layout.rows * CHUNK)?;
        let pairs = cuda.room.reserve_products(&cuda.launcher.stream, &layout, &cuda.geometry)?;
        let (room, launcher, layers) = (&cuda.room, &cuda.launcher, &cuda.geometry.network.layers);
        let outputs = cuda.geometry.network.outputs();
        let mut done = 0;
        for first in (0..count).step_by(CHUNK) {
            cuda.gather("gauss_newton.cu", &scene, list, first, count, &mut batch)?;
            launcher.gn_rows(&scene, &batch, &room.packed, (&room.roots, step.h), &room.rows)?;
            for (k, (layer, g)) in layers.iter().zip(&room.rights).enumerate() {
                let size = (layer.inputs + 1, layer.outputs);
                launcher.gn_right(&room.rows, &batch, layout.rows_of(k), size, g)?;
            }
            if done >= step.batch {
                continue;
            }
            done += batch.count as usize;
            let [left, right] = &room.factors;
            for ([units, inputs], sums) in pairs.iter().zip(&room.products) {
                launcher.gn_pairs(&room.rows, &batch, (&units.0, units.1), outputs, left)?;
                launcher.gn_pairs(&room.rows, &batch, (&inputs.0, inputs.1), 1, right)?;
                launcher.gn_multiply((left, units.1), (right, inputs.1), &batch, sums)?;
            }
        }
        let network = &cuda.geometry.network;
        let mut matrix = vec![0.0; decoder.len() * decoder.len()];
        for (k, ([units, inputs], sums)) in pairs.iter().zip(&room.products).enumerate() {
            layout.scatter(network, &layout.task_of(k, sums.get(units.1 * inputs.1)?), &mut matrix);
        }
        let mut right = vec![0.0; decoder.len()];
        for (k, (layer, g)) in layers.iter().zip(&room.rights).enumerate() {
            let g = g.get((layer.inputs + 1) * layer.outputs)?;
            layout.place_gradient(network, k, &g, &mut right);
        }
        right.iter_mut().for_each(|g| *g *= done as f64 / count as f64);
        Ok(Normal { matrix, right, texels: done })
    }

    fn batch_loss(&mut self, decoder: &[f32]) -> Result<i64> {
        self.pack_trial(decoder)?;
        let (count, list) = self.texels;
        let cuda = &mut *self.cuda;
        let scene = cuda.scene();
        let mut batch: Batch = cuda.batch(count, 0)?;
        cuda.scratch.count.clear()?;
        for part in (0..count).step_by(batch.stride as usize) {
            cuda.gather("decoder_es.cu", &scene, list, part, count, &mut batch)?;
            cuda.launcher.decoder_es_losses(&scene, &batch, (&cuda.room.packed, 1), &cuda.scratch.count)?;
        }
        Ok(signed(cuda.scratch.count.get(1)?)[0])
    }
}

/// Pairs of rows on the device, and their number.
type Pairs = (Buffer<u32>, usize);

impl Room {
    /// Zeroed sums of every product and right-hand side, room for a chunk's factors, and the pairs of rows to multiply.
    fn reserve_products(
        &mut self,
        stream: &Arc<CudaStream>,
        layout: &Layout,
        geometry: &Geometry,
    ) -> Result<Vec<[Pairs; 2]>> {
        let mut all = vec![];
        self.products.clear();
        self.rights.clear();
        for product in layout.products() {
            let [units, inputs] = layout.row_pairs(product);
            let upload = |pairs: &[[u32; 2]]| -> Result<Pairs> {
                Ok((Buffer::of(stream, "pairs of rows", pairs.as_flattened())?, pairs.len()))
            };
            self.products.push(Buffer::zeros(stream, "the normal matrix", units.len() * inputs.len())?);
            self.factors[0].reserve(units.len() * CHUNK)?;
            self.factors[1].reserve(inputs.len() * CHUNK)?;
            all.push([upload(&units)?, upload(&inputs)?]);
        }
        for layer in &geometry.network.layers {
            self.rights.push(Buffer::zeros(stream, "the right-hand side", (layer.inputs + 1) * layer.outputs)?);
        }
        Ok(all)
    }
}

impl Cuda {
    pub(super) fn step_decoder_gn(&mut self, step: &DecoderGn) -> Result<DecoderReport> {
        let texels = self.draw_texels(step.step, Some(step.batch.max(step.right)))?;
        let before = self.decoder.w.get(self.decoder.count)?;
        let (layers, mu) = (self.geometry.network.layers.clone(), self.dampings.decoder);
        let done = decoder_step(&mut Sums { cuda: self, texels }, &layers, step, before, mu)?;
        self.decoder.w.set(&done.decoder)?;
        self.dampings.decoder = Some(done.report.statistic);
        self.pack()?;
        self.refresh()?;
        Ok(done.report)
    }

    /// Calls `search` with the sums of `level` and its values, and keeps the values that it returns.
    fn with_level<R>(
        &mut self,
        level: usize,
        search: impl FnOnce(LatentSearch, &mut Sums, Vec<f32>) -> Result<(R, Vec<f32>)>,
    ) -> Result<R> {
        let elements = self.room.levels[level].elements.clone();
        let prices = self.prices.clone();
        let values = self.levels[level].w.get(self.levels[level].count)?;
        let start = LatentSearch {
            elements: &elements,
            simd: self.room.simd,
            texels: self.geometry.structure.texels(),
            prices: prices.get(level).and_then(Option::as_ref),
        };
        let (result, values) = search(start, &mut Sums { cuda: self, texels: (0, 0) }, values)?;
        self.levels[level].w.set(&values)?;
        self.refresh()?;
        Ok(result)
    }

    pub(super) fn step_latent_gn(&mut self, step: &LatentGn) -> Result<LatentReport> {
        let mut mu = self.dampings.take(step.level, self.levels.len());
        let report = self.with_level(step.level, |search, sums, values| search.step(sums, step, values, &mut mu))?;
        self.dampings.levels[step.level] = mu;
        Ok(report)
    }

    pub(super) fn search_grid_step(&mut self, level: usize, bits: u32) -> Result<LatentReport> {
        self.with_level(level, |search, sums, values| search.coordinates(sums, bits, values))
    }
}
