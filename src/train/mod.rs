//! The training loop: schedules, steps and reports. Knows no backend by name and opens no file.

pub mod init;
pub mod schedule;

use crate::backend::{Backend, DecoderEs, DecoderFd, DecoderReport, LatentEs, State};
use crate::config::Config;
use crate::error::Result;
use crate::metrics::mse_to_psnr;
use crate::model::quant::{Rates, stored};
use crate::model::structure::Structure;
use schedule::{DecoderPhase, Schedule};
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
    /// The last decoder step's report and whether it was by finite differences.
    pub decoder: Option<(DecoderReport, bool)>,
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

/// Times of the phases: decoder by ES, decoder by finite differences, no decoder step.
pub type PhaseTimes = [PhaseTime; 3];

/// Names of [`PhaseTimes`].
pub const PHASES: [&str; 3] = ["es", "fd", "latents_only"];

/// Where a run stands, so that it can go on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Iterations done.
    pub iteration: usize,
    /// Seconds of training.
    pub elapsed_s: f64,
    /// Time of each phase.
    pub phases: PhaseTimes,
    /// The last decoder step's report and whether it was by finite differences.
    pub decoder: Option<(DecoderReport, bool)>,
    /// Selectors changed by the last search.
    pub selectors_changed: Option<usize>,
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
    let mut trainer = Trainer { config, schedule: Schedule::new(config), progress };
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
        let last = it == config.iters || trainer.progress.interrupted;
        let saves = it.is_multiple_of(config.save_every) || last;
        let prints = it.is_multiple_of(config.print_every) || last;
        if prints || saves {
            let speed = (it - since.1) as f64 / since.0.elapsed().as_secs_f64();
            let report = measure(config, structure, backend, &trainer.progress, Some(speed))?;
            if prints {
                watch.report(&report)?;
            }
            if saves {
                watch.save(&trainer.progress, &report, backend)?;
            }
            since = (Instant::now(), it);
        }
        if trainer.progress.interrupted {
            break;
        }
    }
    Ok(trainer.progress)
}

struct Trainer<'a> {
    config: &'a Config,
    schedule: Schedule<'a>,
    progress: Progress,
}

impl Trainer<'_> {
    /// One iteration; returns the index of its phase.
    fn iterate(&mut self, backend: &mut dyn Backend, it: usize) -> Result<usize> {
        let config = self.config;
        let (rate, sigma) = (self.schedule.rate_factor(it), self.schedule.sigma_factor(it));
        let step = it as u32;
        if self.schedule.resets_adam(it) {
            backend.reset_decoder_adam()?;
        }
        let decoder_rate = config.mlp_lr * rate;
        let phase = match self.schedule.decoder(it) {
            DecoderPhase::Es { pairs, batch } => {
                let es = DecoderEs { step, pairs, sigma: config.mlp_sigma * sigma, rate: decoder_rate, batch };
                self.progress.decoder = Some((backend.decoder_es(&es)?, false));
                0
            }
            DecoderPhase::Fd { batch } => {
                let fd = DecoderFd { step, h: config.mlp_fd_h, rate: decoder_rate, batch };
                self.progress.decoder = Some((backend.decoder_fd(&fd)?, true));
                1
            }
            DecoderPhase::Rest => 2,
        };
        let sigmas = [config.lat_sigma, config.lat2_sigma.unwrap_or(config.lat_sigma)];
        backend.latent_es(&LatentEs {
            step,
            pairs: config.lat_pairs,
            sigma: sigmas.map(|s| s * sigma),
            rate: config.lat_lr * rate,
            alternate: config.lat_alt,
        })?;
        if self.schedule.searches(it) {
            self.progress.selectors_changed = Some(backend.search_selectors(config.qat_joint)?);
        }
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
    let weight = |t: usize| weights.get(t).map_or(1.0, |w| f64::from(*w));
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
