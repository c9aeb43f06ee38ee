//! `ntc-es bench`: how fast the steps run on this machine, as a fraction of the fma peak measured in the same run.

use crate::backend::cpu::{Cpu, CpuOptions};
use crate::backend::simd::SimdLevel;
use crate::backend::{Backend, DecoderEs, DecoderFd, LatentEs, State};
use crate::error::Result;
use crate::model::decode::Geometry;
use crate::model::lanes::Lanes;
use crate::model::structure::{Rng, Structure};
use crate::noise::Noise;
use crate::noise::hash::{Stream, fill_normals};
use crate::train::init;
use crate::with_level;
use std::hint::black_box;
use std::time::Instant;

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What ran.
    pub operation: &'static str,
    /// Threads it ran on.
    pub threads: usize,
    /// Seconds of the fastest of several runs.
    pub seconds: f64,
    /// Texels of the image (values for noise) per second.
    pub per_second: f64,
    /// Nominal flops per second: 2 a weight and evaluated texel, nothing for activations, taps or noise; `None` where
    /// the operation is not arithmetic of the decoder.
    pub flops: Option<f64>,
}

/// Settings of the timed steps, the reference's defaults but for what the user's configuration says.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Antithetic pairs of the decoder step.
    pub mlp_pairs: usize,
    /// Texels of the decoder step.
    pub mlp_batch: usize,
    /// Antithetic pairs of the latent step.
    pub lat_pairs: usize,
}

/// fused multiply-adds per second times two of one thread at `level`: twelve independent accumulators, the best of
/// several runs.
pub fn fma_peak(level: SimdLevel) -> f64 {
    const STEPS: usize = 1 << 15;
    let (mut best, mut lanes) = (f64::INFINITY, 0);
    for _ in 0..60 {
        let start = Instant::now();
        lanes = with_level!(level, l => fma_loop(l, STEPS));
        best = best.min(start.elapsed().as_secs_f64());
    }
    (2 * 12 * STEPS * lanes) as f64 / best
}

/// `steps` rounds of twelve independent fused multiply-adds; returns the lanes of one.
#[inline(always)]
fn fma_loop<L: Lanes>(l: L, steps: usize) -> usize {
    let (a, b) = (l.splat(black_box(0.999)), l.splat(black_box(1e-3)));
    let mut sums = [l.splat(black_box(0.5)); 12];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = l.fma(*sum, a, b);
        }
    }
    let mut total = sums[0];
    for sum in sums {
        total = l.add(total, sum);
    }
    let mut out = [0.0; 64];
    l.store(total, &mut out);
    black_box(out);
    L::N
}

/// Times every step of training `structure` on `threads` threads.
///
/// # Errors
/// A structure that does not fit, or no threads.
pub fn steps(level: SimdLevel, threads: usize, structure: &Structure, steps: Steps) -> Result<Vec<Row>> {
    let geometry = Geometry::new(structure.clone())?;
    let (weights, texels) = (geometry.network.parameters(), structure.texels());
    let multiplies = geometry.network.layers.iter().map(|l| l.inputs * l.outputs).sum::<usize>();
    let target = target(structure);
    let mut noise = Noise::new(Rng::Hash, 1);
    let parameters = init::parameters(structure, &geometry.network, 0.1, &mut noise);
    let mut cpu = Cpu::new(CpuOptions::new(level, threads), geometry, target, &[], noise, State::new(parameters))?;
    let decode = 2.0 * multiplies as f64;
    let mut rows = vec![];
    let mut add = |operation, seconds: f64, evaluations: Option<f64>| {
        let flops = evaluations.map(|n| n * decode / seconds);
        rows.push(Row { operation, threads, seconds, per_second: texels as f64 / seconds, flops });
    };

    let seconds = best(|_| cpu.decode(None).map(drop))?;
    add("decode", seconds, Some(texels as f64));
    let es = |step| DecoderEs { step, pairs: steps.mlp_pairs, sigma: 0.02, rate: 1e-4, batch: Some(steps.mlp_batch) };
    let batch = 2.0 * steps.mlp_pairs as f64 * steps.mlp_batch as f64;
    let seconds = best(|step| cpu.decoder_es(&es(step)).map(drop))?;
    add("decoder ES step", seconds, Some(batch));
    let latents = |step| LatentEs { step, pairs: steps.lat_pairs, sigma: [0.05; 2], rate: 1e-4, alternate: false };
    let pairs = 2.0 * steps.lat_pairs as f64 * texels as f64;
    if structure.levels.iter().any(|level| !level.is_selector()) {
        let seconds = best(|step| cpu.latent_es(&latents(step)))?;
        add("latent step", seconds, Some(pairs));
        let seconds = best(|step| {
            cpu.decoder_es(&es(step))?;
            cpu.latent_es(&latents(step))
        })?;
        add("ES iteration", seconds, Some(pairs + batch));
    }
    let fd = |step| DecoderFd { step, h: 1e-3, rate: 1e-5, batch: Some(steps.mlp_batch) };
    let seconds = best(|step| cpu.decoder_fd(&fd(step)).map(drop))?;
    add("decoder FD step", seconds, None);
    if structure.levels[0].is_selector() {
        let seconds = best(|_| cpu.search_selectors().map(drop))?;
        let tried: u32 = structure.levels[0].selector_bits.iter().map(|bits| 1 << bits).sum();
        add("selector search", seconds, Some(f64::from(tried) * texels as f64));
    }
    let seconds = best(|_| cpu.evaluate(None, true).map(drop))?;
    add("evaluate, rounded", seconds, Some(texels as f64));
    let _ = weights;
    Ok(rows)
}

/// Times a million normals at `level` on one thread.
pub fn noise(level: SimdLevel) -> Row {
    let mut out = vec![0.0f32; 1 << 20];
    let mut fastest = f64::INFINITY;
    for step in 0..20 {
        let start = Instant::now();
        with_level!(level, l => fill_normals(l, [1, 2], Stream::LatentEs, step, 0, 0, &mut out));
        fastest = fastest.min(start.elapsed().as_secs_f64());
        black_box(&out);
    }
    let per_second = out.len() as f64 / fastest;
    Row { operation: "noise", threads: 1, seconds: fastest, per_second, flops: None }
}

/// Seconds of the fastest run: at least three, and for about a second.
fn best(mut run: impl FnMut(u32) -> Result<()>) -> Result<f64> {
    let begin = Instant::now();
    let mut fastest = f64::INFINITY;
    for step in 0..1000 {
        let start = cpu_seconds();
        run(step)?;
        fastest = fastest.min(cpu_seconds() - start);
        if step >= 2 && begin.elapsed().as_secs_f64() > 1.0 {
            break;
        }
    }
    Ok(fastest)
}

/// A smooth target with some texture, one plane an output.
fn target(structure: &Structure) -> Vec<Vec<f32>> {
    let value = |c: usize, x: usize, y: usize| {
        let ramp = (x * (c + 1) + 2 * y) as f32 / (structure.width * (c + 1) + 2 * structure.height) as f32;
        0.8 * ramp + if (x / 8 + y / 8).is_multiple_of(2) { 0.2 } else { 0.0 }
    };
    let plane = |c| (0..structure.texels()).map(|i| value(c, i % structure.width, i / structure.width)).collect();
    (0..structure.outputs()).map(plane).collect()
}

/// CPU-seconds of this process so far, all threads together.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
