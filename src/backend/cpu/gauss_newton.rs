//! Gauss-Newton steps: chunks of a minibatch for the decoder, rows of elements for the latents. Every sum over texels
//! has a fixed order, so the thread count changes no bit; equality across CPUs is not promised (DESIGN section 5, rule 8).

mod driver;
mod latent;

use super::Cpu;
use super::batch::{BatchProblem, BatchScratch};
use crate::backend::{DecoderGn, DecoderReport, LatentFd, LatentGn, LatentReport};
use crate::error::Result;
use crate::estimate::gauss_newton::decoder::{Bumps, CHUNK, Layout};
use crate::estimate::gauss_newton::latent::{Elements, Sampler};
use crate::estimate::minibatch::Chunk;
use crate::estimate::selector_search::Problem;
use crate::model::lanes::Scalar;
use crate::model::mlp::{Row, STRIP};
use crate::with_level;
pub use driver::{LevelNormal, Machine, Normal, decoder_step};
pub use latent::{LatentSearch, snap};
use rayon::prelude::*;

impl Cpu {
    /// Sums the decoder's normal equations: the matrix over the first `products` of `texels` in whole chunks, the
    /// right-hand side, which costs far less, over all of them, scaled to as many.
    fn decoder_normal(&self, packed: &[f32], h: f32, texels: &[u32], products: usize) -> Normal {
        let network = &self.geometry.network;
        let (level, layout) = (self.options.level, Layout::new(network));
        let roots: Vec<f32> = self.weights.iter().map(|w| w.sqrt()).collect();
        let mut tasks = layout.tasks();
        let mut rights: Vec<Vec<f32>> =
            layout.products().iter().map(|product| vec![0.0; product.columns() * CHUNK]).collect();
        let parameters = network.parameters();
        let mut right = vec![0.0; parameters];
        let mut done = 0;
        for texels in texels.chunks(CHUNK) {
            let strips: Vec<(Vec<Row>, Vec<f64>)> = texels
                .par_chunks(STRIP)
                .map_init(
                    || (Chunk::new(&self.geometry), Bumps::new(network)),
                    |(chunk, bumps), texels| {
                        let (mut rows, mut g) = (vec![Row::ZERO; layout.rows], vec![0.0; parameters]);
                        with_level!(level, l => {
                            chunk.gather(Scalar, &self.geometry, &self.state.parameters.levels, &self.target, texels);
                            bumps.fill(l, network, (packed, &roots), h, (&layout, chunk), &mut rows);
                            layout.add_gradient(network, &rows, &mut g)
                        });
                        (rows, g)
                    },
                )
                .collect();
            let (strips, gradients): (Vec<_>, Vec<_>) = strips.into_iter().unzip();
            for g in gradients {
                right.iter_mut().zip(g).for_each(|(a, b)| *a += b);
            }
            if done >= products {
                continue;
            }
            done += texels.len();
            let texels = strips.len() * STRIP;
            for (product, rows) in layout.products().iter().zip(&mut rights) {
                rows[..product.columns() * texels].par_chunks_mut(texels).enumerate().for_each(|(pair, row)| {
                    with_level!(level, l => {
                        let _ = l;
                        layout.input_pair(product, pair, &strips, row)
                    });
                });
            }
            tasks.par_iter_mut().for_each(|task| {
                let right = &rights[task.product];
                with_level!(level, l => {
                    let _ = l;
                    layout.multiply(task, &strips, right)
                });
            });
        }
        right.iter_mut().for_each(|g| *g *= done as f64 / texels.len() as f64);
        let mut matrix = vec![0.0; parameters * parameters];
        tasks.iter().for_each(|task| layout.scatter(network, task, &mut matrix));
        Normal { matrix, right, texels: done }
    }

    /// The mean loss of a decoder over `texels`, as an integer sum.
    fn batch_loss(&self, decoder: &[f32], texels: &[u32]) -> i64 {
        let packed = self.packed(decoder);
        let problem = BatchProblem { cpu: self, decoders: &packed };
        let each = texels.par_chunks(STRIP).map_init(
            || BatchScratch::new(&self.geometry),
            |scratch, texels| {
                let mut sum = [0i64];
                with_level!(self.options.level, l => problem.add_chunk(l, scratch, texels, &mut sum));
                sum[0]
            },
        );
        each.sum()
    }

    pub(super) fn step_decoder_gn(&mut self, step: &DecoderGn) -> Result<DecoderReport> {
        let (_, texels) = self.draw(step.step, 0, Some(step.batch.max(step.right)));
        let this = &*self;
        let before = this.state.parameters.decoder.clone();
        let mut sums = Sums { cpu: this, packed: vec![], levels: vec![], texels: &texels };
        let layers = &this.geometry.network.layers;
        let mu = this.state.dampings.decoder;
        let done = this.pool.install(|| decoder_step(&mut sums, layers, step, before, mu))?;
        self.state.parameters.decoder = done.decoder;
        self.state.dampings.decoder = Some(done.report.statistic);
        Ok(done.report)
    }

    /// The errors of all elements with `levels` in place of the state's.
    fn element_errors(&self, packed: &[f32], levels: &[Vec<f32>], elements: &Elements) -> Vec<i64> {
        let problem =
            Problem { packed, levels, weights: &self.weights, target: &self.target, joint: false, prices: None };
        let mut errors = vec![0; elements.rows() * elements.columns()];
        let rows = errors.par_chunks_mut(elements.columns()).enumerate();
        rows.for_each_init(
            || Sampler::new(&self.geometry, 0),
            |sampler, (ey, errors)| {
                with_level!(self.options.level, l => {
                    sampler.errors(l, &self.geometry, &problem, elements, ey, errors)
                });
            },
        );
        errors
    }

    fn level_normal(&self, packed: &[f32], levels: &[Vec<f32>], elements: &Elements, h: f32) -> LevelNormal {
        let problem =
            Problem { packed, levels, weights: &self.weights, target: &self.target, joint: false, prices: None };
        let roots: Vec<f32> = self.weights.iter().map(|w| w.sqrt()).collect();
        let columns = elements.columns();
        let mut errors = vec![0; elements.rows() * columns];
        let mut sums = vec![0.0; errors.len() * elements.stride()];
        let rows = sums.par_chunks_mut(columns * elements.stride()).zip(errors.par_chunks_mut(columns)).enumerate();
        rows.for_each_init(
            || Sampler::new(&self.geometry, elements.channels),
            |sampler, (ey, (sums, errors))| {
                with_level!(self.options.level, l => {
                    sampler.sums(l, &self.geometry, &problem, (&roots, h), elements, ey, sums, errors)
                });
            },
        );
        LevelNormal::assemble(elements, &sums, errors)
    }

    /// The gradient of the mean loss is 2 / texels J^T r.
    pub(super) fn step_latents_fd(&mut self, step: &LatentFd) -> Result<()> {
        let shapes = &self.geometry.structure.levels;
        let free: Vec<usize> = (0..shapes.len()).filter(|&k| !shapes[k].is_selector()).collect();
        let packed = self.packed(&self.seen().decoder);
        let scale = 2.0 / self.geometry.structure.texels() as f32;
        let mut gradient = vec![vec![]; shapes.len()];
        for &k in &free {
            let elements = Elements::new(&self.geometry, k);
            let normal = self.pool.install(|| self.level_normal(&packed, &self.seen().levels, &elements, step.h));
            gradient[k] = normal.right.into_iter().map(|g| scale * g).collect();
        }
        self.step_latents((step.rate, step.step), &free, &gradient)
    }

    /// Calls `search` with the sums of `level` at the state's values, and keeps the values that it returns.
    fn with_level<R: Send>(
        &mut self,
        level: usize,
        search: impl FnOnce(LatentSearch, &mut Sums, Vec<f32>) -> Result<(R, Vec<f32>)> + Send,
    ) -> Result<R> {
        let elements = Elements::new(&self.geometry, level);
        let this = &*self;
        let packed = this.packed(&this.state.parameters.decoder);
        let levels = this.state.parameters.levels.clone();
        let values = levels[level].clone();
        let mut sums = Sums { cpu: this, packed, levels, texels: &[] };
        let texels = this.geometry.structure.texels();
        let start = LatentSearch {
            elements: &elements,
            simd: this.options.level,
            texels,
            prices: this.prices.get(level).and_then(Option::as_ref),
        };
        let (result, values) = this.pool.install(|| search(start, &mut sums, values))?;
        self.state.parameters.levels[level] = values;
        Ok(result)
    }

    pub(super) fn step_latent_gn(&mut self, step: &LatentGn) -> Result<LatentReport> {
        let mut mu = self.state.dampings.take(step.level, self.geometry.structure.levels.len());
        let report = self.with_level(step.level, |search, sums, values| search.step(sums, step, values, &mut mu))?;
        self.state.dampings.levels[step.level] = mu;
        Ok(report)
    }

    pub(super) fn search_grid_step(&mut self, level: usize, bits: u32) -> Result<LatentReport> {
        self.with_level(level, |search, sums, values| search.coordinates(sums, bits, values))
    }
}

/// The sums of Gauss-Newton steps on this backend.
struct Sums<'a> {
    cpu: &'a Cpu,
    /// The decoder of latent steps.
    packed: Vec<f32>,
    levels: Vec<Vec<f32>>,
    /// The minibatch of decoder steps.
    texels: &'a [u32],
}

impl Machine for Sums<'_> {
    fn level_normal(&mut self, elements: &Elements, values: &[f32], h: f32) -> Result<LevelNormal> {
        self.levels[elements.level].copy_from_slice(values);
        Ok(self.cpu.level_normal(&self.packed, &self.levels, elements, h))
    }

    fn element_errors(&mut self, elements: &Elements, values: &[f32]) -> Result<Vec<i64>> {
        self.levels[elements.level].copy_from_slice(values);
        Ok(self.cpu.element_errors(&self.packed, &self.levels, elements))
    }

    fn decoder_normal(&mut self, decoder: &[f32], step: &DecoderGn) -> Result<Normal> {
        Ok(self.cpu.decoder_normal(&self.cpu.packed(decoder), step.h, self.texels, step.batch))
    }

    fn batch_loss(&mut self, decoder: &[f32]) -> Result<i64> {
        Ok(self.cpu.batch_loss(decoder, self.texels))
    }
}

#[cfg(test)]
mod tests;
