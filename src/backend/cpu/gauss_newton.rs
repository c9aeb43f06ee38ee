//! Gauss-Newton steps: chunks of a minibatch for the decoder, rows of elements for the latents. Every sum over texels
//! has a fixed order, so the thread count changes no bit; equality across CPUs is not promised (DESIGN section 5, rule 8).

mod latent;

use super::batch::{BatchProblem, BatchScratch};
use super::{Cpu, not_finite};
use crate::backend::{DecoderGn, DecoderReport, LatentFd, LatentGn, LatentReport};
use crate::error::Result;
use crate::estimate::gauss_newton::decoder::{Bumps, CHUNK, Layout};
use crate::estimate::gauss_newton::latent::{Elements, Sampler};
use crate::estimate::minibatch::Chunk;
use crate::estimate::selector_search::Problem;
use crate::model::lanes::Scalar;
use crate::model::loss::UNIT;
use crate::model::mlp::{Row, STRIP};
use crate::model::quant::round_decoder;
use crate::with_level;
use faer::linalg::solvers::Solve;
use faer::{Mat, MatRef, Side};
use latent::LatentSearch;
pub use latent::snap;
use rayon::prelude::*;

/// The decoder's normal equations: the lower triangle of J^T J, column-major, and J^T r.
struct Normal {
    matrix: Vec<f64>,
    right: Vec<f64>,
    /// Texels that the matrix is from.
    texels: usize,
}

/// A level's normal equations and errors at its present values.
struct LevelNormal {
    /// Stencils \[latent texel].
    blocks: Vec<f32>,
    /// J^T r, \[latent texel]\[channel].
    right: Vec<f32>,
    /// Errors of the elements in units of 2^-36.
    errors: Vec<i64>,
}

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
        let layers = self.geometry.network.layers.clone();
        let stored = |w: Vec<f32>| match step.bits {
            Some(bits) => round_decoder(&layers, bits, &w),
            None => w,
        };
        self.state.parameters.decoder = stored(std::mem::take(&mut self.state.parameters.decoder));
        let this = &*self;
        let before = &this.state.parameters.decoder;
        let parameters = before.len();
        let damping = step.damping;
        let mut mu = this.state.dampings.decoder.unwrap_or(f64::from(damping.start)) as f32;
        let (found, loss) = this.pool.install(|| {
            let normal = this.decoder_normal(&this.packed(before), step.h, &texels, step.batch);
            let mut loss = this.batch_loss(before, &texels);
            let matrix = MatRef::from_column_major_slice(&normal.matrix, parameters, parameters);
            let right = MatRef::from_column_major_slice(&normal.right, parameters, 1);
            for _ in 0..step.tries {
                let mut damped = matrix.to_owned();
                (0..parameters).for_each(|i| damped[(i, i)] += f64::from(mu) * normal.texels as f64);
                if let Ok(factor) = damped.llt(Side::Lower) {
                    let d: Mat<f64> = factor.solve(right);
                    let moved: Vec<f32> = (0..parameters).map(|i| before[i] - d[(i, 0)] as f32).collect();
                    if moved.iter().all(|w| w.is_finite()) {
                        let moved = stored(moved);
                        let after = this.batch_loss(&moved, &texels);
                        if after < loss {
                            (mu, loss) = (damping.next(mu, true), after);
                            return (Some(moved), loss);
                        }
                    }
                }
                mu = damping.next(mu, false);
            }
            (None, loss)
        });
        if let Some(moved) = found {
            self.state.parameters.decoder = moved;
        }
        if !self.state.parameters.decoder.iter().all(|w| w.is_finite()) {
            return Err(not_finite("decoder weights", "--gn-tries", step.step));
        }
        self.state.dampings.decoder = Some(f64::from(mu));
        Ok(DecoderReport { loss: loss as f64 / (UNIT * texels.len() as f64), statistic: f64::from(mu) })
    }

    /// The errors of all elements with `levels` in place of the state's.
    fn element_errors(&self, packed: &[f32], levels: &[Vec<f32>], elements: &Elements) -> Vec<i64> {
        let problem = Problem { packed, levels, weights: &self.weights, target: &self.target, joint: false };
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
        let problem = Problem { packed, levels, weights: &self.weights, target: &self.target, joint: false };
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
        let ((width, height), c) = (elements.size, elements.channels);
        let mut blocks = vec![0.0; width * height * elements.stencil()];
        let mut right = vec![0.0; width * height * c];
        let rows = blocks.par_chunks_mut(width * elements.stencil()).zip(right.par_chunks_mut(width * c));
        rows.enumerate().for_each(|(y, (blocks, right))| elements.assemble_row(&sums, y, blocks, right));
        LevelNormal { blocks, right, errors }
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

    pub(super) fn step_latent_gn(&mut self, step: &LatentGn) -> Result<LatentReport> {
        let elements = Elements::new(&self.geometry, step.level);
        let latents = elements.size.0 * elements.size.1;
        let dampings = &mut self.state.dampings.levels;
        dampings.resize_with(self.geometry.structure.levels.len().max(dampings.len()), Vec::new);
        let mut mu = std::mem::take(&mut dampings[step.level]);
        if mu.len() != latents {
            mu = vec![step.damping.start; latents];
        }
        let this = &*self;
        let packed = this.packed(&this.state.parameters.decoder);
        let mut levels = this.state.parameters.levels.clone();
        if let Some(bits) = step.grid {
            snap(&mut levels[step.level], bits);
        }
        let (report, levels) = this.pool.install(|| {
            let normal = this.level_normal(&packed, &levels, &elements, step.h);
            let mut search = LatentSearch { cpu: this, packed: &packed, elements: &elements, normal, levels };
            let report = match (step.grid, elements.corners) {
                (None, 1) => search.blocks(step, &mut mu),
                (None, _) => search.conjugate_gradients(step, &mut mu),
                (Some(_), _) => search.phase_by_phase(step, None, &mut mu),
            };
            (report, search.levels)
        });
        if !levels[step.level].iter().all(|z| z.is_finite()) {
            return Err(not_finite("latents", "--gn-h", 0));
        }
        self.state.parameters.levels = levels;
        self.state.dampings.levels[step.level] = mu;
        Ok(report)
    }

    pub(super) fn search_grid_step(&mut self, level: usize, bits: u32) -> LatentReport {
        let elements = Elements::new(&self.geometry, level);
        let this = &*self;
        let packed = this.packed(&this.state.parameters.decoder);
        let mut levels = this.state.parameters.levels.clone();
        snap(&mut levels[level], bits);
        let (report, levels) = this.pool.install(|| {
            let errors = this.element_errors(&packed, &levels, &elements);
            let normal = LevelNormal { blocks: vec![], right: vec![], errors };
            let mut search = LatentSearch { cpu: this, packed: &packed, elements: &elements, normal, levels };
            let report = search.coordinates(bits);
            (report, search.levels)
        });
        self.state.parameters.levels = levels;
        report
    }
}

#[cfg(test)]
mod tests;
