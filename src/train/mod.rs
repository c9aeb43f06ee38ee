//! The training loop: schedules, steps and reports. Knows no backend by name and opens no file.

pub mod init;
pub mod pca;
pub mod schedule;

use crate::backend::{
    Backend, Damping, DecoderEs, DecoderFd, DecoderGn, DecoderReport, LatentEs, LatentFd, LatentGn, Perturbation, Seen,
    State,
};
use crate::bitstream::price::prices;
use crate::config::{Config, EsDist, LatGrad, Optimizer};
use crate::error::Result;
use crate::metrics::mse_to_psnr;
use crate::model::loss::weight_of;
use crate::model::quant::{Rates, stored};
use crate::model::structure::{Filter, Structure};
use schedule::{DecoderPhase, Schedule};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// What a run says of itself at a print.
#[derive(Clone, Debug)]
pub struct Report {
    /// Iterations done; 0 is the initial state.
    pub iteration: usize,
    /// Seconds of training so far, earlier sittings included.
    pub elapsed_s: f64,
    /// The loss over the source extent: weighted mean of the textures' mean squared errors, from the float state.
    pub mse: f64,
    /// PSNR of `mse`; `None` where it is 0.
    pub psnr_db: Option<f64>,
    /// The same from quantized latents, half-float weights and outputs rounded to the textures' depths.
    pub psnr_q_db: Option<f64>,
    /// Estimated rates in bits per texel.
    pub rates: Rates,
    /// The last decoder step's report and what it was made by.
    pub decoder: Option<(DecoderReport, DecoderBy)>,
    /// Mean, standard deviation and largest magnitude of the free latents.
    pub latents: [f64; 3],
    /// Selectors changed by the last search.
    pub selectors_changed: Option<usize>,
    /// Iterations per second since the last print.
    pub iterations_per_s: Option<f64>,
    /// Per texture: mean squared error in float, and as stored.
    pub textures: Vec<(f64, f64)>,
}

/// Iterations and seconds spent in one kind of iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseTime {
    /// Iterations done.
    pub iterations: usize,
    /// Seconds they took.
    pub seconds: f64,
}

/// Times of the phases: decoder by ES, decoder by finite differences, no decoder step, rounds of Gauss-Newton.
pub type PhaseTimes = [PhaseTime; 4];

/// Names of [`PhaseTimes`].
pub const PHASES: [&str; 4] = ["es", "fd", "latents_only", "gn"];

/// What a decoder step was made by, and with that what its statistic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecoderBy {
    /// Evolution strategies: the standard deviation of the pairs' differences.
    Es,
    /// Finite differences: the root mean square of the gradient.
    Fd,
    /// Gauss-Newton: the damping after the step.
    Gn,
}

/// Where a run stands, so that it can go on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Iterations done.
    pub iteration: usize,
    /// Seconds of training.
    pub elapsed_s: f64,
    /// Time of each phase.
    pub phases: PhaseTimes,
    /// The last decoder step's report and what it was made by.
    pub decoder: Option<(DecoderReport, DecoderBy)>,
    /// Selectors changed by the last search.
    pub selectors_changed: Option<usize>,
    /// The best PSNR as stored of all prints, and how many prints ago it was.
    pub best: Option<(f64, usize)>,
    /// Whether the run was asked to stop before its end.
    pub interrupted: bool,
}

/// Who follows a run: prints, saves, and may ask it to stop.
pub trait Watch {
    /// Every iteration, before any print: iterations done.
    fn tick(&mut self, _iteration: usize) {}
    /// A print: at iteration 0, every `--print-every` and at the end.
    fn report(&mut self, report: &Report) -> Result<()>;
    /// A save: every `--save-every` and at the end.
    fn save(&mut self, progress: &Progress, report: &Report, backend: &mut dyn Backend) -> Result<()>;
    /// Whether to end after the current iteration.
    fn stop(&self) -> bool {
        false
    }
}

/// Runs iterations `from.iteration + 1 ..= config.iters` and returns where it ended.
///
/// # Errors
/// A state that is no longer finite, a backend that failed, or what the watcher could not write.
pub fn fit(
    config: &Config,
    structure: &Structure,
    backend: &mut dyn Backend,
    watch: &mut dyn Watch,
    from: Progress,
) -> Result<Progress> {
    let progress = Progress { interrupted: false, ..from };
    let mut trainer = Trainer { config, structure, schedule: Schedule::new(config), progress };
    if from.iteration == 0 {
        let report = measure(config, structure, backend, &trainer.progress, None)?;
        watch.report(&report)?;
        if config.iters == 0 {
            watch.save(&trainer.progress, &report, backend)?;
        }
    }
    let mut since = (Instant::now(), trainer.progress.iteration);
    for it in from.iteration + 1..=config.iters {
        let started = Instant::now();
        let phase = trainer.iterate(backend, it)?;
        trainer.count(phase, started);
        watch.tick(it);
        trainer.progress.interrupted = watch.stop() && it < config.iters;
        let late = config.max_seconds.is_some_and(|most| trainer.progress.elapsed_s >= f64::from(most));
        let mut last = it == config.iters || trainer.progress.interrupted || late;
        let saves = it.is_multiple_of(config.save_every) || last;
        let prints = it.is_multiple_of(config.print_every) || last;
        if prints || saves {
            let speed = (it - since.1) as f64 / since.0.elapsed().as_secs_f64();
            let report = measure(config, structure, backend, &trainer.progress, Some(speed))?;
            if prints {
                watch.report(&report)?;
                last |= trainer.is_good_enough(&report);
            }
            if saves || last {
                watch.save(&trainer.progress, &report, backend)?;
            }
            since = (Instant::now(), it);
        }
        if last {
            break;
        }
    }
    Ok(trainer.progress)
}

struct Trainer<'a> {
    config: &'a Config,
    structure: &'a Structure,
    schedule: Schedule<'a>,
    progress: Progress,
}

/// The damping that a list of five says.
fn damping(mu: &[f32]) -> Damping {
    let [start, least, most, fall, rise] = [0, 1, 2, 3, 4].map(|i| mu[i]);
    Damping { start, least, most, fall, rise }
}

impl Trainer<'_> {
    /// Whether a print ends the run: the PSNR asked for is reached, or none of the last `--patience` prints was better
    /// than all before them.
    fn is_good_enough(&mut self, report: &Report) -> bool {
        let psnr = report.psnr_q_db.unwrap_or(f64::INFINITY);
        let (best, since) = self.progress.best.unwrap_or((f64::NEG_INFINITY, 0));
        let (best, since) = if psnr > best { (psnr, 0) } else { (best, since + 1) };
        self.progress.best = Some((best, since));
        let reached = self.config.target_psnr.is_some_and(|target| psnr >= f64::from(target));
        reached || self.config.patience.is_some_and(|patience| since >= patience)
    }

    /// One round of Gauss-Newton: decoder, selectors and latents in turn, as often as each is asked for, then selectors
    /// once more.
    fn round(&mut self, backend: &mut dyn Backend, it: usize) -> Result<()> {
        let Config { gn_mlp_steps, gn_lat_steps, rd_lambda, .. } = *self.config;
        if rd_lambda > 0.0 && self.schedule.on_grid(it) {
            let State { parameters, .. } = backend.state()?;
            backend.price(prices(self.structure, &parameters, rd_lambda))?;
        }
        for turn in 1..=gn_mlp_steps.max(gn_lat_steps) {
            if turn <= gn_mlp_steps {
                self.decoder_gn(backend, it, turn)?;
            }
            self.search(backend, it)?;
            if turn <= gn_lat_steps {
                self.latents_gn(backend, it, turn == gn_lat_steps)?;
            }
        }
        self.search(backend, it)
    }

    /// Decoder step number `turn` of a round.
    fn decoder_gn(&mut self, backend: &mut dyn Backend, it: usize, turn: usize) -> Result<()> {
        let config = self.config;
        let bits = self.schedule.rounds_decoder(it).then_some(self.structure.mlp_bits);
        if let Some(batch) = self.schedule.gn_texels(it) {
            let step = DecoderGn {
                // Every step draws texels of its own.
                step: ((it - 1) * config.gn_mlp_steps + turn) as u32,
                h: config.gn_h[1],
                batch,
                right: (batch as f64 * f64::from(config.gn_right)) as usize,
                damping: damping(&config.gn_mlp_mu),
                tries: config.gn_tries[0],
                bits,
            };
            self.progress.decoder = Some((backend.decoder_gn(&step)?, DecoderBy::Gn));
        }
        Ok(())
    }

    /// A step of every free level; on the grid the `last` one of a round is followed by the exact search.
    fn latents_gn(&mut self, backend: &mut dyn Backend, it: usize, last: bool) -> Result<()> {
        let config = self.config;
        for (level, shape) in self.structure.levels.iter().enumerate().filter(|(_, level)| !level.is_selector()) {
            let grid = shape.grid_bits.filter(|_| self.schedule.on_grid(it));
            let mu = if shape.filter == Filter::Nearest { &config.gn_near_mu } else { &config.gn_lin_mu };
            backend.latent_gn(&LatentGn {
                level,
                h: config.gn_h[0],
                damping: damping(mu),
                iterations: config.gn_cg,
                tries: config.gn_tries[1],
                grid,
            })?;
            if let Some(bits) = grid.filter(|_| last) {
                backend.search_grid(level, bits)?;
            }
        }
        Ok(())
    }

    fn search(&mut self, backend: &mut dyn Backend, it: usize) -> Result<()> {
        if self.schedule.searches(it) {
            self.progress.selectors_changed = Some(backend.search_selectors(self.config.qat_joint)?);
        }
        Ok(())
    }

    /// One iteration; returns the index of its phase.
    fn iterate(&mut self, backend: &mut dyn Backend, it: usize) -> Result<usize> {
        let config = self.config;
        if config.optimizer == Optimizer::Gn {
            self.round(backend, it)?;
            return Ok(3);
        }
        let rademacher = config.es_dist == EsDist::Rademacher;
        backend.perturb(Perturbation { rademacher, phases: config.lat_phases })?;
        let grid = |level: usize| self.structure.levels.get(level).and_then(|level| level.grid_bits);
        backend.see_as_stored(Seen {
            grid: [grid(0), grid(1)].map(|bits| bits.filter(|_| self.schedule.on_grid(it))),
            decoder: self.schedule.rounds_decoder(it).then_some(self.structure.mlp_bits).filter(|&bits| bits != 16),
        })?;
        let (rate, sigma) = (self.schedule.rate_factor(it), self.schedule.sigma_factor(it));
        let step = it as u32;
        if self.schedule.resets_adam(it) {
            backend.reset_decoder_adam()?;
        }
        let decoder_rate = config.mlp_lr * rate;
        let phase = match self.schedule.decoder(it) {
            DecoderPhase::Es { pairs, batch } => {
                let es = DecoderEs { step, pairs, sigma: config.mlp_sigma * sigma, rate: decoder_rate, batch };
                self.progress.decoder = Some((backend.decoder_es(&es)?, DecoderBy::Es));
                0
            }
            DecoderPhase::Fd { batch } => {
                let fd = DecoderFd { step, h: config.mlp_fd_h, rate: decoder_rate, batch };
                self.progress.decoder = Some((backend.decoder_fd(&fd)?, DecoderBy::Fd));
                1
            }
            DecoderPhase::Rest => 2,
        };
        let sigmas = [config.lat_sigma, config.lat2_sigma.unwrap_or(config.lat_sigma)];
        let rate = config.lat_lr * rate;
        match config.lat_grad {
            LatGrad::Es => backend.latent_es(&LatentEs {
                step,
                pairs: config.lat_pairs,
                sigma: sigmas.map(|s| s * sigma),
                rate,
                alternate: config.lat_alt,
            })?,
            LatGrad::Fd => backend.latent_fd(&LatentFd { step, h: config.gn_h[0], rate })?,
        }
        self.search(backend, it)?;
        Ok(phase)
    }

    fn count(&mut self, phase: usize, started: Instant) {
        let seconds = started.elapsed().as_secs_f64();
        self.progress.iteration += 1;
        self.progress.elapsed_s += seconds;
        self.progress.phases[phase].iterations += 1;
        self.progress.phases[phase].seconds += seconds;
    }
}

/// Measures the backend's state: what a print says of it.
///
/// # Errors
/// What the backend could not do.
pub fn measure(
    config: &Config,
    structure: &Structure,
    backend: &mut dyn Backend,
    progress: &Progress,
    iterations_per_s: Option<f64>,
) -> Result<Report> {
    let State { parameters, .. } = backend.state()?;
    let (as_stored, rates) = stored(structure, &parameters);
    let float = backend.evaluate(None, false)?;
    let rounded = backend.evaluate(Some(&as_stored), true)?;
    let (mse, mse_q) = (weighted_mean(&float, &config.weights), weighted_mean(&rounded, &config.weights));
    Ok(Report {
        iteration: progress.iteration,
        elapsed_s: progress.elapsed_s,
        mse,
        psnr_db: mse_to_psnr(mse),
        psnr_q_db: mse_to_psnr(mse_q),
        rates,
        decoder: progress.decoder,
        latents: latent_statistics(structure, &parameters.levels),
        selectors_changed: progress.selectors_changed,
        iterations_per_s,
        textures: float.into_iter().zip(rounded).collect(),
    })
}

/// The mean of one value a texture by the textures' relative loss weights; no weights = all 1.
pub fn weighted_mean(values: &[f64], weights: &[f32]) -> f64 {
    let weight = |t: usize| weight_of(weights, t);
    let sum: f64 = (0..values.len()).map(weight).sum();
    values.iter().enumerate().map(|(t, value)| weight(t) * value).sum::<f64>() / sum
}

/// Mean, standard deviation and largest magnitude of the free latents; zeros where there are none.
fn latent_statistics(structure: &Structure, levels: &[Vec<f32>]) -> [f64; 3] {
    let free = structure.levels.iter().zip(levels).filter(|(level, _)| !level.is_selector());
    let values: Vec<&Vec<f32>> = free.map(|(_, values)| values).collect();
    let each = || values.iter().flat_map(|v| v.iter()).map(|&z| f64::from(z));
    let n = each().count().max(1) as f64;
    let mean = each().sum::<f64>() / n;
    let variance = each().map(|z| (z - mean).powi(2)).sum::<f64>() / n;
    [mean, variance.sqrt(), each().fold(0.0, |most, z| if z.abs() > most { z.abs() } else { most })]
}
