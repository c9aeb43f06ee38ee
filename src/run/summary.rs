//! summary.json and the short table of it.

use super::clock::{cpu_model, peak_rss_bytes};
use super::coded::{Found, bpp};
use super::inputs::Source;
use super::printed;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::metrics::mse_to_psnr;
use crate::model::loss::weight_of;
use crate::model::role::Role;
use crate::model::structure::Structure;
use crate::train::{PHASES, Progress, Report, weighted_mean};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The commit that this program was built from, where the build could tell.
pub fn commit() -> Option<&'static str> {
    option_env!("NTC_COMMIT").filter(|commit| !commit.is_empty())
}

/// The figures of a model and how it came about. What there is none of is null.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// PSNR of the float state in dB, unrounded outputs; weighted over the textures. Higher is better.
    pub psnr_db: Option<f64>,
    /// PSNR of what `decode` writes.
    pub psnr_q_db: Option<f64>,
    /// SSIM of what `decode` writes; weighted over the textures. Higher is better.
    pub ssim: Option<f64>,
    /// Mean squared error behind `psnr_db`.
    pub mse: Option<f64>,
    /// Mean squared error behind `psnr_q_db`.
    pub mse_q: Option<f64>,
    /// Estimated bits per texel, every index at its full depth.
    pub bpp_raw: f64,
    /// Estimated bits per texel at the indices' order-0 entropy.
    pub bpp_entropy: f64,
    /// Bits of the coded file per texel, nothing left out. Lower is better.
    pub bpp_file: f64,
    /// Bytes of the coded file.
    pub file_bytes: usize,
    /// Decoder weights, biases included.
    pub weights: usize,
    /// Iterations done.
    pub iterations: Option<usize>,
    /// Whether the run came to its own end: the last iteration, or one of its early ends.
    pub finished: Option<bool>,
    /// Seconds on the wall, of all sittings.
    pub wall_s: Option<f64>,
    /// Seconds on all CPUs, of all sittings.
    pub cpu_s: Option<f64>,
    /// Of each phase: decoder by ES, decoder by finite differences, latents only, rounds of Gauss-Newton.
    pub iterations_per_s: Option<BTreeMap<&'static str, Option<f64>>>,
    /// Seconds on the wall that decoding all texels took, files left out.
    pub decode_s: Option<f64>,
    /// The most memory held at once.
    pub peak_rss_bytes: Option<u64>,
    /// Texels across, without padding.
    pub width: usize,
    /// Texels down, without padding.
    pub height: usize,
    /// Seed of all noise.
    pub seed: Option<u64>,
    /// Version of this program.
    pub version: &'static str,
    /// Its commit.
    pub commit: Option<&'static str>,
    /// Hash of the settings that change the result.
    pub config_hash: Option<String>,
    /// Where the steps ran.
    pub backend: &'static str,
    /// Instruction level or device.
    pub simd: String,
    /// Model name of the CPU.
    pub cpu_model: Option<String>,
    /// Per texture, in order.
    pub textures: Vec<TextureSummary>,
}

/// The figures of one texture.
#[derive(Clone, Debug, Serialize)]
pub struct TextureSummary {
    /// Name, as `decode` writes it.
    pub name: String,
    /// Base name of the source file.
    pub file: String,
    /// CRC-32 (IEEE) of the source file's bytes.
    pub crc32: String,
    /// What it is for, where that was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Channels that are written, 1 to 4.
    pub channels: usize,
    /// Decoder outputs behind them.
    pub outputs: usize,
    /// Bits a sample.
    pub depth: u32,
    /// Relative loss weight.
    pub loss_weight: f32,
    /// Share of the weighted squared error behind the top level's `mse_q`, 0 to 1; absent without error.
    pub error_share: Option<f64>,
    /// As at top level, unweighted.
    pub mse: Option<f64>,
    /// As at top level, unweighted.
    pub mse_q: Option<f64>,
    /// As at top level, unweighted.
    pub psnr_db: Option<f64>,
    /// As at top level, unweighted.
    pub psnr_q_db: Option<f64>,
    /// As at top level, unweighted.
    pub ssim: Option<f64>,
    /// Mean angle between the source's normals and those that `decode` writes, in degrees. Lower is better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub angle_mean_deg: Option<f64>,
    /// 99th percentile of that angle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub angle_p99_deg: Option<f64>,
}

/// What a summary is made from.
pub struct Facts<'a> {
    /// Settings.
    pub config: &'a Config,
    /// The model's shape.
    pub structure: &'a Structure,
    /// Decoder weights.
    pub weights: usize,
    /// The image files.
    pub sources: &'a [Source],
    /// The last report: what it says of the float state counts.
    pub report: &'a Report,
    /// What was read back from the coded file.
    pub found: &'a Found,
    /// The backend's name and instruction level.
    pub backend: (&'static str, String),
}

impl Summary {
    /// The summary of a model against its images, without a run.
    pub fn new(facts: &Facts) -> Self {
        let Facts { config, structure, report, found, .. } = facts;
        let similar: Option<Vec<f64>> = found.quality.iter().map(|q| q.ssim).collect();
        let mse_q = weighted_mean(&found.mse, &config.weights);
        Summary {
            psnr_db: report.psnr_db,
            psnr_q_db: mse_to_psnr(mse_q),
            ssim: similar.map(|s| weighted_mean(&s, &config.weights)),
            mse: Some(report.mse),
            mse_q: Some(mse_q),
            bpp_raw: found.rates.raw,
            bpp_entropy: found.rates.entropy,
            bpp_file: bpp(structure, found.bytes),
            file_bytes: found.bytes,
            weights: facts.weights,
            iterations: None,
            finished: None,
            wall_s: None,
            cpu_s: None,
            iterations_per_s: None,
            decode_s: Some(found.decode_s),
            peak_rss_bytes: peak_rss_bytes(),
            width: structure.source_width,
            height: structure.source_height,
            seed: None,
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
            config_hash: None,
            backend: facts.backend.0,
            simd: facts.backend.1.clone(),
            cpu_model: cpu_model(),
            textures: (0..structure.textures.len()).map(|k| texture(facts, k)).collect(),
        }
    }

    /// Adds what a run knows.
    pub fn of_run(mut self, config: &Config, progress: &Progress, spent: (f64, f64)) -> Self {
        let speed = |p: &crate::train::PhaseTime| (p.iterations > 0).then(|| p.iterations as f64 / p.seconds);
        self.iterations = Some(progress.iteration);
        self.finished = Some(!progress.interrupted);
        (self.wall_s, self.cpu_s) = (Some(spent.0), Some(spent.1));
        self.iterations_per_s = Some(PHASES.into_iter().zip(progress.phases.iter().map(speed)).collect());
        self.seed = Some(config.seed);
        self.config_hash = Some(config.hash());
        self
    }

    /// Takes the quantized figures away, for a decode that skipped quantization.
    pub fn float_only(mut self) -> Self {
        (self.psnr_q_db, self.mse_q) = (None, None);
        self.textures.iter_mut().for_each(|t| (t.psnr_q_db, t.mse_q, t.error_share) = (None, None, None));
        self
    }

    /// Writes it as JSON.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::file(path, e.to_string()))?;
        write_atomic(path, |w| writeln!(w, "{text}"))
    }

    /// The short table for a reader.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: String| {
            let _ = writeln!(out, "{name:<12} {text}"); // a String takes everything
        };
        let db = |x: Option<f64>| printed(x, 2);
        line("PSNR", format!("{} dB float, {} dB as decoded", db(self.psnr_db), db(self.psnr_q_db)));
        line("SSIM", printed(self.ssim, 4));
        let (raw, entropy, file) = (self.bpp_raw, self.bpp_entropy, self.bpp_file);
        line("rate", format!("{raw:.3} bpp raw, {entropy:.3} bpp entropy, {file:.3} bpp file"));
        line("size", format!("{} x {} texels, {} decoder weights", self.width, self.height, self.weights));
        if let (Some(n), Some(wall), Some(cpu)) = (self.iterations, self.wall_s, self.cpu_s) {
            line("time", format!("{n} iterations, {wall:.1} s, {cpu:.1} CPU s"));
        }
        if self.textures.len() > 1 {
            for t in &self.textures {
                let (float, q, ssim) = (db(t.psnr_db), db(t.psnr_q_db), printed(t.ssim, 4));
                let role = t.role.map(|role| format!(", {role}")).unwrap_or_default();
                let share = t.error_share.map(|s| format!(", {:.0} % of the error", 100.0 * s)).unwrap_or_default();
                line(&t.file, format!("{float} dB float, {q} dB as decoded, SSIM {ssim}{role}{share}"));
            }
        }
        for t in &self.textures {
            if let (Some(mean), Some(p99)) = (t.angle_mean_deg, t.angle_p99_deg) {
                line("normals", format!("{mean:.2} degrees on average, 99 % within {p99:.2} ({})", t.file));
            }
        }
        out
    }
}

fn texture(facts: &Facts, k: usize) -> TextureSummary {
    let (info, source) = (&facts.structure.textures[k], &facts.sources[k]);
    let (mse, mse_q, quality) = (facts.report.textures[k].0, facts.found.mse[k], &facts.found.quality[k]);
    let weight = |k: usize| weight_of(&facts.config.weights, k);
    let all: f64 = facts.found.mse.iter().enumerate().map(|(k, mse)| weight(k) * mse).sum();
    TextureSummary {
        name: info.name.clone(),
        file: source.file.clone(),
        crc32: source.crc32.clone(),
        role: info.role,
        channels: info.channels,
        outputs: info.outputs(),
        depth: info.depth,
        loss_weight: weight(k) as f32,
        error_share: (all > 0.0).then(|| weight(k) * mse_q / all),
        mse: Some(mse),
        mse_q: Some(mse_q),
        psnr_db: mse_to_psnr(mse),
        psnr_q_db: mse_to_psnr(mse_q),
        ssim: quality.ssim,
        angle_mean_deg: quality.angles.map(|(mean, _)| mean),
        angle_p99_deg: quality.angles.map(|(_, p99)| p99),
    }
}
