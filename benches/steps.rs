//! The steps of a fit under divan, beside the fma peak of the same run; `ntc-es bench` prints the fractions.
//!
//! `cargo bench --bench steps`. Items a second are texels of the 512x512 image, values of noise, or flops of the peak.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use ntc_es::backend::cpu::{Cpu, CpuOptions};
use ntc_es::backend::simd::SimdLevel;
use ntc_es::backend::{Backend, DecoderEs, DecoderFd, LatentEs, State};
use ntc_es::bench::{fma_peak, rgb};
use ntc_es::config::{Config, Simd};
use ntc_es::model::decode::Geometry;
use ntc_es::model::structure::{Rng, Structure};
use ntc_es::noise::Noise;
use ntc_es::noise::hash::{Stream, fill_normals};
use ntc_es::texture::write::write_png;
use ntc_es::train::init;
use ntc_es::with_level;

const SIDE: usize = 512;

fn texels() -> ItemsCount {
    ItemsCount::new(SIDE * SIDE)
}

fn main() {
    let level = SimdLevel::new(Simd::Auto).unwrap();
    println!("{}: fma peak {:.1} GFLOP/s a core", level.name(), fma_peak(level) / 1e9);
    divan::main();
}

/// 6-24-24-3 on 64x64x4 (the reference's defaults), 5-36-36-3 on 128x128x3, and a 2-bit block format.
const CASES: [&str; 3] = ["6-24-24-3", "5-36-36-3", "qat 2, 36-36"];

fn structure(case: &str) -> Structure {
    let mut config = Config::default();
    match case {
        "5-36-36-3" => (config.latent, config.mlp) = (Some(vec![128, 128, 3]), vec![36, 36]),
        "qat 2, 36-36" => (config.qat, config.mlp) = (vec![2], vec![36, 36]),
        _ => {}
    }
    config.resolve(SIDE, SIDE, vec![rgb("t")]).unwrap()
}

fn backend(case: &str, threads: usize) -> Cpu {
    let geometry = Geometry::new(structure(case)).unwrap();
    let mut noise = Noise::new(Rng::Hash, 1);
    let parameters = init::parameters(&geometry.structure, &geometry.network, 0.1, &mut noise);
    let plane = (0..SIDE * SIDE).map(|i| (i % 251) as f32 / 250.0).collect::<Vec<_>>();
    let options = CpuOptions::new(SimdLevel::new(Simd::Auto).unwrap(), threads);
    Cpu::new(options, geometry, vec![plane; 3], &[], noise, State::new(parameters)).unwrap()
}

#[divan::bench(args = CASES, consts = [1, 0])]
fn decode<const THREADS: usize>(bencher: Bencher, case: &str) {
    let mut cpu = backend(case, THREADS);
    bencher.counter(texels()).bench_local(|| cpu.decode(None).unwrap());
}

#[divan::bench(args = CASES, consts = [1, 0])]
fn decoder_es<const THREADS: usize>(bencher: Bencher, case: &str) {
    let mut cpu = backend(case, THREADS);
    let step = DecoderEs { step: 1, pairs: 32, sigma: 0.02, rate: 1e-4, batch: Some(4096) };
    bencher.counter(texels()).bench_local(|| cpu.decoder_es(&step).unwrap());
}

#[divan::bench(args = CASES, consts = [1, 0])]
fn decoder_fd<const THREADS: usize>(bencher: Bencher, case: &str) {
    let mut cpu = backend(case, THREADS);
    let step = DecoderFd { step: 1, h: 1e-3, rate: 1e-5, batch: Some(4096) };
    bencher.counter(texels()).bench_local(|| cpu.decoder_fd(&step).unwrap());
}

#[divan::bench(args = CASES, consts = [1, 0])]
fn latent_es<const THREADS: usize>(bencher: Bencher, case: &str) {
    let mut cpu = backend(case, THREADS);
    let step = LatentEs { step: 1, pairs: 4, sigma: [0.05; 2], rate: 1e-4, alternate: false };
    bencher.counter(texels()).bench_local(|| cpu.latent_es(&step).unwrap());
}

#[divan::bench(consts = [1, 0])]
fn search_selectors<const THREADS: usize>(bencher: Bencher) {
    let mut cpu = backend(CASES[2], THREADS);
    bencher.counter(texels()).bench_local(|| cpu.search_selectors(false).unwrap());
}

#[divan::bench]
fn noise(bencher: Bencher) {
    let level = SimdLevel::new(Simd::Auto).unwrap();
    let mut out = vec![0.0f32; 1 << 20];
    bencher.counter(ItemsCount::new(out.len())).bench_local(|| {
        with_level!(level, l => fill_normals(l, [1, 2], Stream::LatentEs, 1, 0, 0, &mut out));
        black_box(&out);
    });
}

#[divan::bench]
fn write_picture(bencher: Bencher) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("picture.png");
    let plane: Vec<f32> = (0..SIDE * SIDE).map(|i| (i % 251) as f32 / 250.0).collect();
    bencher.counter(texels()).bench_local(|| write_png(&path, SIDE, SIDE, 8, &[&plane, &plane, &plane]).unwrap());
}
