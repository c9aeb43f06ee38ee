//! The CPU backend: rayon over bands of image rows or chunks of a minibatch, each running the generic definitions at one
//! instruction level. Sums over texels are integers, so thread count and band size do not change a bit.

mod batch;
mod draws;
pub(in crate::backend) mod gauss_newton;
mod image;
mod latent;
mod update;

use super::simd::SimdLevel;
use super::{
    Backend, DecoderEs, DecoderFd, DecoderGn, DecoderReport, LatentEs, LatentFd, LatentGn, LatentReport, Perturbation,
    Seen, State,
};
use crate::error::{Error, Result};
use crate::estimate::adam;
use crate::estimate::decoder_fd::Differences;
use crate::estimate::minibatch::Chunk;
use crate::estimate::selector_search::{self, Search, load_target};
use crate::estimate::{decoder_es, decoder_fd, latent_es};
use crate::model::decode::Geometry;
use crate::model::lanes::Scalar;
use crate::model::loss::{UNIT, channel_weights};
use crate::model::mlp::{Row, STRIP};
use crate::model::price::Prices;
use crate::model::quant::round_decoder;
use crate::model::structure::{Parameters, Structure};
use crate::noise::Noise;
use crate::noise::mersenne::Mersenne;
use crate::with_level;
use batch::{BatchProblem, BatchScratch};
use draws::Draws;
use image::Evaluation;
use latent::LatentProblem;
use rayon::prelude::*;

/// Pairs whose noise is held at once in a latent step.
const PAIRS_AT_ONCE: usize = 4;

/// How the CPU backend runs; none of it changes a bit of the result.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// Instruction level.
    pub level: SimdLevel,
    /// Worker threads; 0 = all.
    pub threads: usize,
    /// Image rows of a task.
    pub band_rows: usize,
}

impl CpuOptions {
    /// `level` on `threads` threads.
    pub fn new(level: SimdLevel, threads: usize) -> Self {
        CpuOptions { level, threads, band_rows: 16 }
    }
}

/// State and target in memory, steps on a thread pool.
pub struct Cpu {
    options: CpuOptions,
    pool: rayon::ThreadPool,
    geometry: Geometry,
    /// One plane an output over the padded extent.
    target: Vec<Vec<f32>>,
    /// Loss weight of each output.
    weights: Vec<f32>,
    noise: Noise,
    state: State,
    perturbation: Perturbation,
    seen: Seen,
    /// The parameters as `seen` says; `None` where they are the state's own.
    view: Option<Parameters>,
    prices: Vec<Option<Prices>>,
}

impl Cpu {
    /// A backend for `geometry` with `target` planes, relative texture weights (empty = all 1) and an initial state.
    ///
    /// # Errors
    /// No threads to be had.
    pub fn new(
        options: CpuOptions,
        geometry: Geometry,
        target: Vec<Vec<f32>>,
        texture_weights: &[f32],
        noise: Noise,
        state: State,
    ) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build();
        let pool = pool.map_err(|e| Error::Backend(format!("--threads {}: {e}", options.threads)))?;
        let weights = channel_weights(&geometry.structure.textures, texture_weights);
        let (perturbation, seen) = (Perturbation::default(), Seen::default());
        Ok(Cpu {
            options,
            pool,
            geometry,
            target,
            weights,
            noise,
            state,
            perturbation,
            seen,
            view: None,
            prices: vec![],
        })
    }

    /// The parameters that steps are taken around.
    fn seen(&self) -> &Parameters {
        self.view.as_ref().unwrap_or(&self.state.parameters)
    }

    /// Rounds the view again after the state has changed.
    fn refresh(&mut self) {
        if self.seen == Seen::default() {
            self.view = None;
            return;
        }
        let mut view = self.state.parameters.clone();
        for (values, bits) in view.levels.iter_mut().zip(self.seen.grid) {
            if let Some(bits) = bits {
                self.pool.install(|| gauss_newton::snap(values, bits));
            }
        }
        if let Some(bits) = self.seen.decoder {
            view.decoder = round_decoder(&self.geometry.network.layers, bits, &view.decoder);
        }
        self.view = Some(view);
    }

    fn packed(&self, decoder: &[f32]) -> Vec<f32> {
        let mut packed = vec![0.0; decoder.len()];
        self.geometry.network.pack(decoder, &mut packed);
        packed
    }

    /// Rows `y0..y1` of the decode, one plane an output, as wide as the padded extent; only what lies in the columns
    /// `x0..x1` is sure to be filled. `parameters` takes the place of the state.
    pub fn decode_part(
        &self,
        parameters: Option<&Parameters>,
        columns: (usize, usize),
        (y0, y1): (usize, usize),
    ) -> Vec<Vec<f32>> {
        let parameters = parameters.unwrap_or(&self.state.parameters);
        let packed = self.packed(&parameters.decoder);
        let structure = &self.geometry.structure;
        let task = Evaluation { cpu: self, packed: &packed, levels: &parameters.levels, round: false, columns };
        let mut planes = vec![vec![0.0f32; structure.width * (y1 - y0)]; structure.outputs()];
        let bands = bands(y1 - y0, self.options.band_rows);
        let mut parts: Vec<Vec<&mut [f32]>> = bands.iter().map(|_| vec![]).collect();
        let rows = self.options.band_rows.max(1) * structure.width;
        for plane in &mut planes {
            for (part, into) in plane.chunks_mut(rows).zip(&mut parts) {
                into.push(part);
            }
        }
        self.pool.install(|| {
            bands.par_iter().zip(parts).for_each(|(&(from, to), mut parts)| {
                let band = (y0 + from, y0 + to);
                with_level!(self.options.level, l => task.planes(l, band, &mut parts));
            });
        });
        planes
    }

    /// A decoder step's draws: `pairs` rows of normals, and the raster indices of its texels.
    fn draw(&mut self, step: u32, pairs: usize, batch: Option<usize>) -> (Vec<f32>, Vec<u32>) {
        let parameters = self.state.parameters.decoder.len();
        let texels = self.geometry.structure.texels() as u32;
        let mut draws = Draws::new(&mut self.noise, self.options.level, step, self.perturbation);
        self.pool.install(|| {
            let mut e = vec![0.0; pairs * parameters];
            if pairs > 0 {
                draws.decoder(parameters, &mut e);
            }
            let Some(n) = batch else { return (e, (0..texels).collect()) };
            let mut picked = vec![0; n];
            draws.texels(texels, &mut picked);
            (e, picked)
        })
    }
}

/// (first, last + 1) image rows of each task.
fn bands(height: usize, rows: usize) -> Vec<(usize, usize)> {
    let step = rows.max(1);
    (0..height).step_by(step).map(|y| (y, (y + step).min(height))).collect()
}

pub(in crate::backend) fn not_finite(what: &str, flag: &str, step: u32) -> Error {
    Error::State(format!("{what} are no longer finite at iteration {step}; lower {flag} or the sigma of that step"))
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn device(&self) -> String {
        self.options.level.name().into()
    }

    fn decoder_es(&mut self, step: &DecoderEs) -> Result<DecoderReport> {
        let parameters = self.state.parameters.decoder.len();
        let level = self.options.level;
        let (e, texels) = self.draw(step.step, step.pairs, step.batch);

        // Perturbed decoders, packed: plus and minus of each pair in turn.
        let mut decoders = vec![0.0; 2 * e.len()];
        let (w, network) = (&self.seen().decoder, &self.geometry.network);
        self.pool.install(|| {
            let pairs = decoders.par_chunks_mut(2 * parameters).zip(e.par_chunks(parameters));
            pairs.for_each_init(
                || vec![0.0; 2 * parameters],
                |scratch, (pair, e)| {
                    let (plus, minus) = scratch.split_at_mut(parameters);
                    with_level!(level, l => {
                        let _ = l;
                        decoder_es::perturb(w, e, step.sigma, plus, minus)
                    });
                    network.pack(plus, &mut pair[..parameters]);
                    network.pack(minus, &mut pair[parameters..]);
                },
            );
        });

        let problem = BatchProblem { cpu: self, decoders: &decoders };
        let sums = self.pool.install(|| {
            let chunks = texels.par_chunks(STRIP);
            chunks
                .map_init(
                    || BatchScratch::new(&problem.cpu.geometry),
                    |scratch, texels| {
                        let mut sums = vec![0i64; 2 * step.pairs];
                        with_level!(level, l => problem.add_chunk(l, scratch, texels, &mut sums));
                        sums
                    },
                )
                .reduce(|| vec![0; 2 * step.pairs], add)
        });
        let unit = 1.0 / (UNIT * texels.len() as f64);
        let d: Vec<f32> = sums.chunks_exact(2).map(|s| (s[0] - s[1]) as f32 * unit as f32).collect();
        let mut g = vec![0.0; parameters];
        let scale = (1.0 / (2.0 * step.pairs as f64 * f64::from(step.sigma))) as f32;
        with_level!(level, l => {
            let _ = l;
            decoder_es::gradient(&e, &d, scale, &mut g)
        });
        self.step_decoder(step.rate, &g, step.step)?;
        let mean = sums.iter().map(|&s| s as f64).sum::<f64>() * unit / sums.len() as f64;
        Ok(DecoderReport { loss: mean, statistic: decoder_es::spread(&d) })
    }

    fn decoder_fd(&mut self, step: &DecoderFd) -> Result<DecoderReport> {
        let level = self.options.level;
        let (_, texels) = self.draw(step.step, 0, step.batch);
        let packed = self.packed(&self.seen().decoder);
        let parameters = packed.len();
        let this = &*self;
        let decoder = decoder_fd::Decoder { packed: &packed, weights: &self.weights, h: step.h };
        let (sums, loss) = self.pool.install(|| {
            let chunks = texels.par_chunks(STRIP);
            let each = chunks.map_init(
                || (Chunk::new(&this.geometry), Differences::new(&this.geometry)),
                |(chunk, differences), texels| {
                    let mut sums = vec![0; parameters];
                    let loss = with_level!(level, l => {
                        chunk.gather(Scalar, &this.geometry, &this.seen().levels, &this.target, texels);
                        differences.add_chunk(l, &this.geometry, decoder, chunk, &mut sums)
                    });
                    (sums, loss)
                },
            );
            each.reduce(|| (vec![0; parameters], 0), |(a, x), (b, y)| (add(a, b), x + y))
        });
        let unit = 1.0 / (UNIT * texels.len() as f64);
        let w = &self.seen().decoder;
        let quotient = |(sum, &w): (&i64, &f32)| {
            let [plus, minus] = decoder_fd::realised_steps(w, step.h);
            let distance = plus - minus;
            if distance == 0.0 { 0.0 } else { *sum as f32 * unit as f32 / distance }
        };
        let g: Vec<f32> = sums.iter().zip(w).map(quotient).collect();
        self.step_decoder(step.rate, &g, step.step)?;
        let rms = (g.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>() / g.len() as f64).sqrt();
        Ok(DecoderReport { loss: loss as f64 * unit, statistic: rms })
    }

    fn reset_decoder_adam(&mut self) -> Result<()> {
        self.state.adam_decoder = adam::Adam::new(self.state.parameters.decoder.len());
        Ok(())
    }

    fn latent_es(&mut self, step: &LatentEs) -> Result<()> {
        let level = self.options.level;
        let levels = &self.geometry.structure.levels;
        let noisy: Vec<usize> = (0..levels.len()).filter(|&k| !levels[k].is_selector()).collect();
        if noisy.is_empty() {
            return Ok(());
        }
        let perturbed = |pair: usize| match step.alternate {
            true => vec![latent_es::alternate(&noisy, pair, step.step as usize)],
            false => noisy.clone(),
        };
        let packed = self.packed(&self.seen().decoder);
        let mut gradient: Vec<Vec<f32>> = levels.iter().map(|level| vec![0.0; level.values()]).collect();
        let mut hits = [0usize; 2];
        // A pair of a phase reaches one latent texel in four.
        let share = if self.perturbation.phases { 4 } else { 1 };
        let mut draws = Draws::new(&mut self.noise, level, step.step, self.perturbation);
        let all: Vec<usize> = (0..step.pairs).collect();
        for pairs in all.chunks(PAIRS_AT_ONCE) {
            let mut noise = vec![];
            for &pair in pairs {
                let mut e = vec![vec![]; levels.len()];
                for k in perturbed(pair) {
                    hits[k] += 1;
                    e[k] = vec![0.0; levels[k].values()];
                }
                self.pool.install(|| draws.latents(pair as u32, levels, &mut e));
                noise.push(e);
            }
            let problem = LatentProblem {
                geometry: &self.geometry,
                target: &self.target,
                weights: &self.weights,
                levels: &self.view.as_ref().unwrap_or(&self.state.parameters).levels,
                packed: &packed,
                sigma: step.sigma,
                noise: &noise,
            };
            let credits = problem.credits(&self.pool, level, self.options.band_rows, &noisy);
            for (&k, credits) in noisy.iter().zip(&credits) {
                let channels = levels[k].channels;
                let texels = levels[k].texels();
                for (e, credits) in noise.iter().zip(credits.chunks_exact(texels)).filter(|(e, _)| !e[k].is_empty()) {
                    const PART: usize = 4096;
                    self.pool.install(|| {
                        let parts = gradient[k].par_chunks_mut(PART * channels);
                        let parts = parts.zip(e[k].par_chunks(PART * channels)).zip(credits.par_chunks(PART));
                        parts.for_each(|((g, e), credits)| {
                            with_level!(level, l => {
                                let _ = l;
                                latent_es::accumulate(credits, e, channels, g)
                            })
                        });
                    });
                }
            }
        }
        let texels = self.geometry.structure.texels();
        for &k in noisy.iter().filter(|&&k| hits[k] > 0) {
            let scale = latent_es::gradient_scale(hits[k] / share, step.sigma[k], texels);
            gradient[k].iter_mut().for_each(|g| *g *= scale);
        }
        self.step_latents((step.rate, step.step), &noisy, &gradient)
    }

    fn search_selectors(&mut self, joint: bool) -> Result<usize> {
        let level = self.options.level;
        let packed = self.packed(&self.seen().decoder);
        let shape = &self.geometry.structure.levels[0];
        let mut selectors = self.state.parameters.levels[0].clone();
        let problem = selector_search::Problem {
            packed: &packed,
            levels: &self.seen().levels,
            weights: &self.weights,
            target: &self.target,
            joint,
            prices: self.prices.first().and_then(Option::as_ref),
        };
        let geometry = &self.geometry;
        let changed = self.pool.install(|| {
            let rows = selectors.par_chunks_mut(shape.width * shape.channels).enumerate();
            rows.map_init(
                || Search::new(geometry),
                |search, (row, selectors)| {
                    with_level!(level, l => search.search_row(l, geometry, &problem, row, selectors))
                },
            )
            .sum()
        });
        self.state.parameters.levels[0] = selectors;
        self.refresh();
        Ok(changed)
    }

    fn see_as_stored(&mut self, seen: Seen) -> Result<()> {
        if self.seen != seen {
            self.seen = seen;
            self.refresh();
        }
        Ok(())
    }

    fn perturb(&mut self, how: Perturbation) -> Result<()> {
        self.perturbation = how;
        Ok(())
    }

    fn price(&mut self, prices: Vec<Option<Prices>>) -> Result<()> {
        self.prices = prices;
        Ok(())
    }

    fn latent_fd(&mut self, step: &LatentFd) -> Result<()> {
        self.step_latents_fd(step)
    }

    fn decoder_gn(&mut self, step: &DecoderGn) -> Result<DecoderReport> {
        self.step_decoder_gn(step)
    }

    fn latent_gn(&mut self, step: &LatentGn) -> Result<LatentReport> {
        self.step_latent_gn(step)
    }

    fn search_grid(&mut self, level: usize, bits: u32) -> Result<LatentReport> {
        self.search_grid_step(level, bits)
    }

    fn evaluate(&mut self, parameters: Option<&Parameters>, round: bool) -> Result<Vec<f64>> {
        let parameters = parameters.unwrap_or(&self.state.parameters);
        let packed = self.packed(&parameters.decoder);
        let structure = &self.geometry.structure;
        let bands = bands(structure.source_height, self.options.band_rows);
        let task =
            Evaluation { cpu: self, packed: &packed, levels: &parameters.levels, round, columns: (0, structure.width) };
        let none = || vec![0i64; structure.textures.len()];
        let sums = self.pool.install(|| {
            let each = bands.par_iter().map(|&band| {
                let mut sums = none();
                with_level!(self.options.level, l => task.errors(l, band, &mut sums));
                sums
            });
            each.reduce(none, add)
        });
        let texels = (structure.source_width * structure.source_height) as f64;
        Ok(sums.into_iter().map(|sum| sum as f64 / (UNIT * texels)).collect())
    }

    fn decode(&mut self, parameters: Option<&Parameters>) -> Result<Vec<Vec<f32>>> {
        let Structure { width, height, .. } = self.geometry.structure;
        Ok(self.decode_part(parameters, (0, width), (0, height)))
    }

    fn state(&self) -> Result<State> {
        let mersenne = match &self.noise {
            Noise::Mersenne(mersenne) => Some(mersenne.state()),
            Noise::Hash(_) => None,
        };
        Ok(State { mersenne, ..self.state.clone() })
    }

    fn set_state(&mut self, state: State) -> Result<()> {
        if let Some(words) = &state.mersenne {
            let broken = || Error::State("the Mersenne twister's state is not 624 words and a position".into());
            self.noise = Noise::Mersenne(Mersenne::from_state(words).ok_or_else(broken)?);
        }
        self.state = state;
        self.refresh();
        Ok(())
    }
}

fn add(mut a: Vec<i64>, b: Vec<i64>) -> Vec<i64> {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
    a
}

/// [`load_target`] into the lanes from `offset` on.
#[inline(always)]
fn load_target_at(
    target: &[Vec<f32>],
    width: usize,
    first: usize,
    count: usize,
    y: usize,
    offset: usize,
    rows: &mut [Row],
) {
    if offset == 0 {
        return load_target(target, width, first, count, y, rows);
    }
    for (row, plane) in rows.iter_mut().zip(target) {
        row.0[offset..offset + count].copy_from_slice(&plane[y * width + first..][..count]);
    }
}
