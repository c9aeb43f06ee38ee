//! When each step runs and with which rates (SPEC section 4).

use crate::config::Config;

/// What the decoder does in an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecoderPhase {
    /// Evolution strategies.
    Es {
        /// Antithetic pairs.
        pairs: usize,
        /// Texels, or all of them.
        batch: Option<usize>,
    },
    /// Finite differences.
    Fd {
        /// Texels, or all of them.
        batch: Option<usize>,
    },
    /// No step.
    Rest,
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Schedule<'a> {
    config: &'a Config,
    fd: Option<usize>,
    full: Option<usize>,
    freeze: Option<usize>,
    grow: Option<usize>,
    grid: Option<usize>,
    rounding: Option<usize>,
}

impl<'a> Schedule<'a> {
    /// The plan that `config` describes.
    pub fn new(config: &'a Config) -> Self {
        let first = |start| first_iteration(start, config.iters);
        Schedule {
            config,
            fd: first(config.mlp_fd),
            full: first(config.mlp_full),
            freeze: first(config.mlp_freeze),
            grow: config.gn_grow.first().and_then(|&start| first(start)),
            grid: first(config.lat_bits_start),
            rounding: first(config.mlp_bits_start),
        }
    }

    /// What the decoder does in iteration `it` (from 1).
    pub fn decoder(&self, it: usize) -> DecoderPhase {
        let active = |start: Option<usize>| start.is_some_and(|start| it >= start);
        if active(self.freeze) || !it.is_multiple_of(self.config.mlp_every) {
            return DecoderPhase::Rest;
        }
        let full = active(self.full);
        let batch = if full { None } else { Some(self.config.mlp_batch) };
        if active(self.fd) {
            return DecoderPhase::Fd { batch };
        }
        let pairs = self.config.mlp_pairs;
        DecoderPhase::Es { pairs: if full { self.config.mlp_full_pairs.unwrap_or(pairs) } else { pairs }, batch }
    }

    /// Texels of the Gauss-Newton decoder step of round `it`; `None` = no decoder step.
    pub fn gn_texels(&self, it: usize) -> Option<usize> {
        let active = |start: Option<usize>| start.is_some_and(|start| it >= start);
        if active(self.freeze) || !it.is_multiple_of(self.config.mlp_every) {
            return None;
        }
        let factor = if active(self.grow) { self.config.gn_grow.get(1).map_or(1.0, |f| f64::from(*f)) } else { 1.0 };
        Some((self.config.gn_texels as f64 * factor).round() as usize)
    }

    /// Whether latents are kept on their grid in iteration `it`.
    pub fn on_grid(&self, it: usize) -> bool {
        self.grid.is_some_and(|start| it >= start)
    }

    /// Whether decoder weights are kept as they are stored in iteration `it`.
    pub fn rounds_decoder(&self, it: usize) -> bool {
        self.rounding.is_some_and(|start| it >= start)
    }

    /// Whether the decoder's Adam state is zeroed before iteration `it`: where finite differences take over from ES.
    pub fn resets_adam(&self, it: usize) -> bool {
        self.config.mlp_fd > 0.0 && self.fd == Some(it)
    }

    /// Factor of both learning rates in iteration `it`.
    pub fn rate_factor(&self, it: usize) -> f32 {
        anneal(&self.config.lr_anneal, it, self.config.iters)
    }

    /// Factor of all sigmas in iteration `it`.
    pub fn sigma_factor(&self, it: usize) -> f32 {
        anneal(&self.config.sigma_anneal, it, self.config.iters)
    }

    /// Whether selectors are searched in iteration `it`.
    pub fn searches(&self, it: usize) -> bool {
        !self.config.qat.is_empty() && (it.is_multiple_of(self.config.qat_every) || it == self.config.iters)
    }
}

/// The iteration at which a phase that starts at fraction `start` begins: ceil(start x iters), 1 where start <= 0; `None`
/// = never, where start >= 1.
fn first_iteration(start: f32, iters: usize) -> Option<usize> {
    if start >= 1.0 {
        return None;
    }
    // The decimal that was written, not its nearest f32: 0.07 of 100 iterations is 7, not 8.
    let decimal: f64 = start.to_string().parse().unwrap_or(f64::from(start));
    Some(((decimal * iters as f64 * (1.0 - 1e-12)).ceil() as usize).max(1))
}

/// 1 until fraction START, then linear to FINAL at the end.
fn anneal(pair: &[f32], it: usize, iters: usize) -> f32 {
    let [start, last] = [0, 1].map(|k| pair.get(k).map_or(1.0, |x| f64::from(*x)));
    let t = it as f64 / iters as f64;
    if start >= 1.0 || t <= start { 1.0 } else { (1.0 + (last - 1.0) * (t - start) / (1.0 - start)) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_start_where_they_should() {
        assert_eq!(first_iteration(0.5, 3000), Some(1500));
        assert_eq!(first_iteration(0.07, 100), Some(7));
        assert_eq!(first_iteration(0.1, 1000), Some(100));
        assert_eq!(first_iteration(0.501, 10), Some(6));
        assert_eq!(first_iteration(0.0, 10), Some(1));
        assert_eq!(first_iteration(-1.0, 10), Some(1));
        assert_eq!(first_iteration(1.0, 10), None);
    }

    #[test]
    fn annealing_is_linear_behind_its_start() {
        assert_eq!(anneal(&[1.0, 0.1], 10, 10), 1.0);
        assert_eq!(anneal(&[0.5, 0.0], 5, 10), 1.0);
        assert_eq!(anneal(&[0.5, 0.0], 10, 10), 0.0);
        assert!((anneal(&[0.5, 0.2], 75, 100) - 0.6).abs() < 1e-6);
    }

    #[test]
    fn freeze_wins_over_fd_and_fd_over_full() {
        let config = Config {
            iters: 100,
            mlp_full: 0.2,
            mlp_fd: 0.4,
            mlp_freeze: 0.9,
            mlp_full_pairs: Some(7),
            ..Config::default()
        };
        let schedule = Schedule::new(&config);
        assert_eq!(schedule.decoder(19), DecoderPhase::Es { pairs: 32, batch: Some(4096) });
        assert_eq!(schedule.decoder(20), DecoderPhase::Es { pairs: 7, batch: None });
        assert_eq!(schedule.decoder(40), DecoderPhase::Fd { batch: None });
        assert_eq!(schedule.decoder(90), DecoderPhase::Rest);
        assert!(schedule.resets_adam(40) && !schedule.resets_adam(41));
        let config = Config { iters: 100, mlp_fd: 0.0, mlp_every: 3, ..Config::default() };
        let schedule = Schedule::new(&config);
        assert!(!schedule.resets_adam(1));
        assert_eq!(schedule.decoder(2), DecoderPhase::Rest);
        assert_eq!(schedule.decoder(3), DecoderPhase::Fd { batch: Some(4096) });
    }

    #[test]
    fn the_last_iteration_always_searches() {
        let config = Config { iters: 10, qat: vec![2], qat_every: 4, ..Config::default() };
        let schedule = Schedule::new(&config);
        let at: Vec<_> = (1..=10).filter(|&it| schedule.searches(it)).collect();
        assert_eq!(at, [4, 8, 10]);
    }
}
