//! `ntc-es bench`: how fast the steps run on this machine, as a fraction of the fma peak measured in the same run.

use crate::backend::cpu::{Cpu, CpuOptions};
use crate::backend::simd::SimdLevel;
use crate::backend::{Backend, DecoderEs, DecoderFd, LatentEs, State};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::model::decode::Geometry;
use crate::model::lanes::Lanes;
use crate::model::mlp::Network;
use crate::model::structure::{Rng, Structure, TextureInfo};
use crate::noise::Noise;
use crate::noise::hash::{Stream, fill_normals};
use crate::run::clock::{cpu_model, cpu_seconds};
use crate::run::print;
use crate::texture::write::write_png;
use crate::train::init;
use crate::with_level;
use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What ran.
    pub operation: &'static str,
    /// Worker threads.
    pub threads: usize,
    /// Seconds of the fastest of several runs by the clock on the wall.
    pub wall_s: f64,
    /// Seconds of the fastest of several runs by the CPUs' clocks, all threads together.
    pub cpu_s: f64,
    /// Texels of the image, or values of noise, in one run.
    pub items: f64,
    /// Nominal flops of one run: 2 a weight and evaluated texel, nothing for activations, taps or noise; `None` where
    /// the operation is not arithmetic of the decoder.
    pub flops: Option<f64>,
}

impl Row {
    /// Texels (values) per second of wall time.
    pub fn items_per_second(&self) -> f64 {
        self.items / self.wall_s
    }

    /// Nominal flops per CPU-second as a fraction of `peak`.
    pub fn fraction_of(&self, peak: f64) -> Option<f64> {
        self.flops.map(|flops| flops / self.cpu_s / peak)
    }
}

/// Settings of the timed steps.
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
    const STEPS: usize = 1 << 18;
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
    let texels = structure.texels() as f64;
    let multiplies = geometry.network.layers.iter().map(|l| l.inputs * l.outputs).sum::<usize>();
    let per_difference = structured_multiplies(&geometry.network);
    let target = target(structure);
    let mut noise = Noise::new(Rng::Hash, 1);
    let parameters = init::parameters(structure, &geometry.network, 0.1, &mut noise);
    let options = CpuOptions::new(level, threads);
    let mut cpu = Cpu::new(options, geometry, target, &[], noise, State::new(parameters))?;
    let mut rows = vec![];
    let mut time = |operation, multiplies: f64, run: &mut dyn FnMut(u32) -> Result<()>| -> Result<()> {
        let (wall_s, cpu_s) = best(run)?;
        let flops = Some(2.0 * multiplies);
        rows.push(Row { operation, threads, wall_s, cpu_s, items: texels, flops });
        Ok(())
    };

    let decode = multiplies as f64;
    let Steps { mlp_pairs, mlp_batch, lat_pairs } = steps;
    let es = |step| DecoderEs { step, pairs: mlp_pairs, sigma: 0.02, rate: 1e-4, batch: Some(mlp_batch) };
    let fd = |step| DecoderFd { step, h: 1e-3, rate: 1e-5, batch: Some(mlp_batch) };
    let latents = |step| LatentEs { step, pairs: lat_pairs, sigma: [0.05; 2], rate: 1e-4, alternate: false };
    let es_work = decode * 2.0 * (mlp_pairs * mlp_batch) as f64;
    let fd_work = per_difference as f64 * mlp_batch as f64;
    let latent_work = decode * 2.0 * lat_pairs as f64 * texels;
    time("decode", decode * texels, &mut |_| cpu.decode(None).map(drop))?;
    time("evaluate, rounded", decode * texels, &mut |_| cpu.evaluate(None, true).map(drop))?;
    time("decoder ES step", es_work, &mut |step| cpu.decoder_es(&es(step)).map(drop))?;
    time("decoder FD step", fd_work, &mut |step| cpu.decoder_fd(&fd(step)).map(drop))?;
    if structure.levels.iter().any(|level| !level.is_selector()) {
        time("latent step", latent_work, &mut |step| cpu.latent_es(&latents(step)))?;
        time("ES iteration", es_work + latent_work, &mut |step| {
            cpu.decoder_es(&es(step))?;
            cpu.latent_es(&latents(step))
        })?;
        time("FD iteration", fd_work + latent_work, &mut |step| {
            cpu.decoder_fd(&fd(step))?;
            cpu.latent_es(&latents(step))
        })?;
    }
    if structure.levels[0].is_selector() {
        let tried: u32 = structure.levels[0].selector_bits.iter().map(|bits| 1 << bits).sum();
        let work = f64::from(tried) * decode * texels;
        time("selector search", work, &mut |_| cpu.search_selectors(false).map(drop))?;
    }
    Ok(rows)
}

/// Multiply-adds a texel of [`crate::estimate::decoder_fd`] at both signs of every weight and bias.
fn structured_multiplies(network: &Network) -> usize {
    let cost = |k: usize| {
        let column = network.layers.get(k + 1).map_or(0, |next| next.outputs);
        let behind: usize = network.layers.iter().skip(k + 2).map(|l| l.inputs * l.outputs).sum();
        1 + column + behind
    };
    network.layers.iter().enumerate().map(|(k, l)| 2 * (l.inputs + 1) * l.outputs * cost(k)).sum()
}

/// Times a million normals at `level` on one thread.
///
/// # Errors
/// None of its own.
pub fn noise(level: SimdLevel) -> Result<Row> {
    let mut out = vec![0.0f32; 1 << 20];
    let (wall_s, cpu_s) = best(&mut |step| {
        with_level!(level, l => fill_normals(l, [1, 2], Stream::LatentEs, step, 0, 0, &mut out));
        black_box(&out);
        Ok(())
    })?;
    Ok(Row { operation: "noise", threads: 1, wall_s, cpu_s, items: out.len() as f64, flops: None })
}

/// Times writing an RGB picture of `structure`'s size as a PNG.
///
/// # Errors
/// A folder for temporary files that cannot be written.
pub fn picture(structure: &Structure) -> Result<Row> {
    let folder = tempfile::tempdir().map_err(Error::io("the folder for temporary files"))?;
    let path = folder.path().join("picture.png");
    let planes = target(&Structure { textures: vec![rgb("t")], ..structure.clone() });
    let planes: Vec<&[f32]> = planes.iter().map(Vec::as_slice).collect();
    let (wall_s, cpu_s) = best(&mut |_| write_png(&path, structure.width, structure.height, 8, &planes))?;
    let items = structure.texels() as f64;
    Ok(Row { operation: "write RGB picture", threads: 1, wall_s, cpu_s, items, flops: None })
}

/// An 8-bit RGB texture's description.
pub fn rgb(name: &str) -> TextureInfo {
    TextureInfo { name: name.into(), channels: 3, depth: 8, role: None, sources: vec![] }
}

/// Wall and CPU seconds of the fastest run: at least three, and for about a second.
fn best(run: &mut dyn FnMut(u32) -> Result<()>) -> Result<(f64, f64)> {
    let begin = Instant::now();
    let (mut wall, mut cpu) = (f64::INFINITY, f64::INFINITY);
    for step in 0..1000 {
        let start = (Instant::now(), cpu_seconds());
        run(step)?;
        wall = wall.min(start.0.elapsed().as_secs_f64());
        cpu = cpu.min(cpu_seconds() - start.1);
        if step >= 2 && begin.elapsed().as_secs_f64() > 1.0 {
            break;
        }
    }
    Ok((wall, cpu))
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

/// The columns of `ntc-es bench --csv`.
pub const HEADER: &str =
    "simd,threads,operation,wall_ms,cpu_ms,mitems_per_s,gflops_per_cpu_s,fraction_of_peak,peak_gflops";

/// Prints the table of `config`'s steps on a made-up image of `size` x `size` texels with `maps` RGB maps, on one thread
/// and on all.
///
/// # Errors
/// Settings that do not fit, a level that this CPU does not have.
pub fn print_table(config: &Config, size: usize, maps: usize, csv: bool) -> Result<()> {
    if !config.images.is_empty() {
        return Err(Error::config(
            "bench makes its own images; give their number with --maps and their side with --size",
        ));
    }
    config.validate()?;
    let structure = config.resolve(size, size, (0..maps).map(|t| rgb(&format!("map{t}"))).collect())?;
    let level = SimdLevel::new(config.simd)?;
    let peak = fma_peak(level);
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let plan = Steps { mlp_pairs: config.mlp_pairs, mlp_batch: config.mlp_batch, lat_pairs: config.lat_pairs };
    let mut rows = vec![noise(level)?, picture(&structure)?];
    let mut counts = vec![1, if config.threads == 0 { all } else { config.threads }];
    counts.dedup();
    for threads in counts {
        rows.extend(steps(level, threads, &structure, plan)?);
    }
    print(&if csv { csv_text(level, peak, &rows) } else { table_text(level, peak, &structure, &rows) })
}

/// The instruction levels of this CPU, widest first, one a line.
///
/// # Errors
/// Nowhere to print to.
pub fn print_levels() -> Result<()> {
    print(&SimdLevel::all().iter().map(|level| format!("{}\n", level.name())).collect::<String>())
}

fn csv_text(level: SimdLevel, peak: f64, rows: &[Row]) -> String {
    let mut text = format!("{HEADER}\n");
    for row in rows {
        let rate = row.flops.map_or(String::new(), |flops| format!("{:.2}", flops / row.cpu_s / 1e9));
        let fraction = row.fraction_of(peak).map_or(String::new(), |f| format!("{f:.3}"));
        let _ = writeln!(
            text,
            "{},{},{},{:.3},{:.3},{:.2},{rate},{fraction},{:.1}",
            level.name(),
            row.threads,
            row.operation.replace(',', ""),
            row.wall_s * 1e3,
            row.cpu_s * 1e3,
            row.items_per_second() / 1e6,
            peak / 1e9,
        );
    }
    text
}

fn table_text(level: SimdLevel, peak: f64, structure: &Structure, rows: &[Row]) -> String {
    let cpu = cpu_model().unwrap_or_else(|| "unknown CPU".into());
    let mut text = format!(
        "{cpu}, {}: fma peak {:.1} GFLOP/s a core\n{} x {} texels, {} outputs\n\n{:<18} {:>7} {:>10} {:>10} {:>12} {:>8}\n",
        level.name(),
        peak / 1e9,
        structure.width,
        structure.height,
        structure.outputs(),
        "operation",
        "threads",
        "wall ms",
        "CPU ms",
        "Mitems/s",
        "of peak",
    );
    for row in rows {
        let fraction = row.fraction_of(peak).map_or("-".into(), |f| format!("{:.1} %", 100.0 * f));
        let _ = writeln!(
            text,
            "{:<18} {:>7} {:>10.3} {:>10.3} {:>12.2} {fraction:>8}",
            row.operation,
            row.threads,
            row.wall_s * 1e3,
            row.cpu_s * 1e3,
            row.items_per_second() / 1e6,
        );
    }
    text.push_str(
        "\nItems are texels of the image (values for noise). Flops are 2 a weight and evaluated texel, by CPU time.\n",
    );
    text
}
