//! Progress on stderr: a bar on a terminal, plain lines otherwise, nothing under --quiet.

use super::{printed, say};
use crate::config::Config;
use crate::train::Report;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// How a run shows where it stands.
pub enum Shown {
    /// Not at all.
    Quiet,
    /// One line a print.
    Lines,
    /// A bar that stays in place.
    Bar(ProgressBar),
}

impl Shown {
    /// What fits the settings and stderr, for a run that continues after `done` iterations.
    pub fn new(config: &Config, done: usize) -> Self {
        if config.quiet {
            return Shown::Quiet;
        }
        if !std::io::stderr().is_terminal() {
            return Shown::Lines;
        }
        let template = "{bar:24} {pos}/{len} {msg} {per_sec} ETA {eta}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(config.iters as u64).with_style(style);
        bar.set_position(done as u64);
        bar.reset_eta();
        Shown::Bar(bar)
    }

    /// An iteration is done.
    pub fn tick(&self, iteration: usize) {
        if let Shown::Bar(bar) = self {
            bar.set_position(iteration as u64);
        }
    }

    /// A print.
    pub fn report(&self, report: &Report) {
        let figures = format!(
            "psnr {} dB, as decoded {} dB, {:.3} bpp",
            printed(report.psnr_db, 2),
            printed(report.psnr_q_db, 2),
            report.rates.entropy
        );
        match self {
            Shown::Quiet => {}
            Shown::Lines => {
                let speed = printed(report.iterations_per_s, 1);
                say(&format!("iteration {}: {figures}, {speed} iterations/s", report.iteration));
            }
            Shown::Bar(bar) => bar.set_message(figures),
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = self {
            bar.abandon(); // stays on the screen, and what follows begins on a new line
        }
    }
}
