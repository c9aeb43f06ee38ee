//! Valid settings of every kind, for property tests.

use super::*;
use crate::model::role::Role;
use crate::model::structure::{Filter, Rng as Noise};
use proptest::prelude::*;

prop_compose! {
    fn a_level()(follows: bool, width in 1usize..4096, height in 1usize..4096, channels in 1usize..=128) -> Vec<usize> {
        if follows { vec![0, 0, channels] } else { vec![width, height, channels] }
    }
}

fn an_anneal(least: f32) -> impl Strategy<Value = Vec<f32>> {
    (0f32..2.0, least..1000.0).prop_map(|(start, last)| vec![start, last])
}

fn a_filter() -> impl Strategy<Value = Filter> {
    prop_oneof![Just(Filter::Bilinear), Just(Filter::Nearest)]
}

fn a_name() -> impl Strategy<Value = String> {
    // Dashes, quotes, spaces and letters beyond ASCII: what file names and TOML strings can trip over.
    "[-a-zA-Z0-9 .'\"\\\\=,äß中]{1,12}"
}

prop_compose! {
    fn input()(
        images in prop::collection::vec(a_name(), 0..=8),
        crop in 0usize..=MAX_TEXELS,
        resize_to in prop::option::of(prop_oneof![Just(ResizeTo::Largest), Just(ResizeTo::Smallest)]),
        (channels, normal) in (
            prop_oneof![Just(Channels::Auto), Just(Channels::Rgb), Just(Channels::Alpha)],
            prop_oneof![Just(Normal::Xy), Just(Normal::Xyz)],
        ),
        (weights, quality) in (
            prop::collection::vec(1e-6f32..1e6, 8),
            prop::option::of((1e-3f32..=120.0).prop_map(|db| Goal { role: Role::Orm, db })),
        ),
        weighted: bool,
        out in a_name(),
        load in prop::option::of(a_name()),
        print_every in 1usize..=1_000_000_000,
        save_every in 1usize..=1_000_000_000,
        quiet: bool,
        threads in 0usize..=4096,
        simd in prop_oneof![Just(Simd::Auto), Just(Simd::Avx512), Just(Simd::Avx2), Just(Simd::Scalar)],
    ) -> Config {
        let weights = if weighted { weights[..images.len()].to_vec() } else { vec![] };
        let quality = quality.into_iter().collect();
        let (out, load) = (out.into(), load.map(Into::into));
        Config {
            images, crop, resize_to, channels, normal, weights, quality, out, load, print_every, save_every, quiet, threads, simd,
            ..Config::default()
        }
    }
}

prop_compose! {
    fn shape()(
        latent in prop::option::of(a_level()),
        latent2 in prop::option::of(a_level()),
        block in 1usize..=256,
        filter in prop::option::of([a_filter(), a_filter()].prop_map(FilterPair)),
        mlp in prop::collection::vec(1usize..=128, 1..=8),
        short in (prop::option::of(1usize..=128), prop::option::of(0usize..=20)),
        act in prop_oneof![
            Just(Activation::Leaky), Just(Activation::Relu), Just(Activation::Tanh), Just(Activation::Sine),
        ],
        leak in -1f32..=1.0,
        flags: (bool, bool),
        pos in prop::option::of(
            prop_oneof![Just("uv,fourier:3"), Just("none"), Just("onehot, local"), Just("uv,lv1ldct:2")]
        ),
        deblock_falloff in 0.01f32..=1024.0,
        qbits in 1u32..=16,
        coding in prop_oneof![Just(Coding::Fixed), Just(Coding::Range)],
    ) -> Config {
        let (clamp, deblock) = flags;
        let (hidden, nfreq) = short;
        // Contradictions are not settings: the short forms, and deblocking of one-texel cells, stand alone.
        let mlp = if hidden.is_some() { vec![24, 24] } else { mlp };
        let pos = if nfreq.is_some() { None } else { pos.map(String::from) };
        let deblock = deblock && latent.as_ref().is_none_or(|l| l[0] > 0);
        Config {
            latent, latent2, block, filter, mlp, hidden, act, leak, clamp, pos, nfreq, deblock, deblock_falloff, qbits, coding,
            ..Config::default()
        }
    }
}

prop_compose! {
    fn a_damping()(start in 0f32..10.0, least in 0f32..1e-3, most in 1f32..1e6, fall in 1e-3f32..=1.0, rise in 1f32..100.0) -> Vec<f32> {
        vec![start, least, most, fall, rise]
    }
}

prop_compose! {
    fn gauss_newton()(
        grids in (prop::collection::vec(0u32..=12, 0..=1), -1f32..2.0, prop_oneof![Just(8u32), Just(16)], -1f32..2.0),
        gn_h in prop::collection::vec(1e-6f32..=1.0, 2),
        counts in (1usize..=1000, 1usize..=1 << 24, 1usize..=10_000),
        gn_grow in (-2f32..2.0, 1f32..=1024.0).prop_map(|(start, factor)| vec![start, factor]),
        mu in (a_damping(), a_damping(), a_damping()),
        rates in (1f32..=1024.0, 0f32..=10_000.0),
        gn_tries in prop::collection::vec(1usize..=100, 2),
        choices in (any::<bool>(), any::<bool>()),
        preset in prop::option::of(prop_oneof![Just(Preset::Fast), Just(Preset::Default), Just(Preset::Best)]),
        ends in (prop::option::of(0f32..=200.0), prop::option::of(0f32..=1e9), prop::option::of(1usize..=1000)),
    ) -> Config {
        let (lat_bits, lat_bits_start, mlp_bits, mlp_bits_start) = grids;
        let (gn_lat_steps, gn_texels, gn_cg) = counts;
        let gn_mlp_steps = 7 - gn_lat_steps.min(6);
        let (gn_mlp_mu, gn_near_mu, gn_lin_mu) = mu;
        let (target_psnr, max_seconds, patience) = ends;
        Config {
            lat_bits, lat_bits_start, mlp_bits, mlp_bits_start, gn_h, gn_lat_steps, gn_mlp_steps, gn_texels, gn_cg, gn_grow,
            gn_mlp_mu, gn_near_mu, gn_lin_mu, gn_tries, gn_right: rates.0, rd_lambda: rates.1, preset, target_psnr, max_seconds, patience,
            optimizer: if choices.0 { Optimizer::Gn } else { Optimizer::Es },
            init: if choices.1 { Init::Pca } else { Init::Random },
            ..Config::default()
        }
    }
}

prop_compose! {
    fn steps()(
        mlp_counts in (1usize..=65536, 1usize..=1 << 24, 1usize..=1_000_000_000, prop::option::of(1usize..=65536)),
        mlp_reals in (1e-6f32..=100.0, 1e-9f32..=100.0, 1e-6f32..=1.0),
        starts in (-1e6f32..=1e6, -2f32..2.0, 0f32..=1.0),
        lat_pairs in 1usize..=65536,
        lat_sigma in 1e-6f32..=100.0,
        lat2_sigma in prop::option::of(1e-6f32..=100.0),
        lat_lr in 1e-9f32..=100.0,
        lat_init in 0f32..=100.0,
        lat_alt: bool,
        anneals in (an_anneal(0.0), an_anneal(1e-4)),
        iters in 0usize..=1_000_000_000,
        noise in (any::<u64>(), any::<bool>()),
        cuda in (any::<bool>(), prop_oneof![Just(None), Just(Some(CudaDevice::Emu)), Just(Some(CudaDevice::Gpu(3)))]),
        cuda_check_every in 0usize..=1_000_000_000,
        estimators in any::<[bool; 3]>(),
    ) -> Config {
        let (mlp_pairs, mlp_batch, mlp_every, mlp_full_pairs) = mlp_counts;
        let (mlp_sigma, mlp_lr, mlp_fd_h) = mlp_reals;
        let (mlp_fd, mlp_full, mlp_freeze) = starts;
        let (lr_anneal, sigma_anneal) = anneals;
        let (seed, rng) = if noise.1 { (noise.0 >> 32, Noise::Mt) } else { (noise.0, Noise::Hash) };
        // The twister runs on the CPU only.
        let (cuda, cuda_device) = if rng == Noise::Hash { cuda } else { (false, None) };
        let cuda_check_every = if cuda || cuda_device.is_some() { cuda_check_every } else { 0 };
        let [phases, fd, signs] = estimators.map(|given| given && !cuda && cuda_device.is_none());
        Config {
            lat_phases: phases && lat_pairs.is_multiple_of(4) && !lat_alt,
            lat_grad: if fd { LatGrad::Fd } else { LatGrad::Es },
            es_dist: if signs { EsDist::Rademacher } else { EsDist::Gaussian },
            cuda, cuda_device, cuda_check_every,
            mlp_pairs, mlp_batch, mlp_every, mlp_full_pairs, mlp_sigma, mlp_lr, mlp_fd_h, mlp_fd, mlp_full, mlp_freeze,
            lat_pairs, lat_sigma, lat2_sigma, lat_lr, lat_init, lat_alt, lr_anneal, sigma_anneal, iters, seed, rng,
            ..Config::default()
        }
    }
}

/// Valid settings of every kind, every field varied.
fn any_config() -> impl Strategy<Value = Config> {
    let depths = (prop::collection::vec(1u32..=8, 0..=4), any::<(bool, bool)>(), 1usize..=1_000_000_000);
    (input(), shape(), steps(), gauss_newton(), depths).prop_map(|(input, shape, steps, gn, depths)| {
        let (qat, (one, joint), qat_every) = depths;
        let optimizer = if shape.deblock { Optimizer::Es } else { gn.optimizer };
        let lat_grad = if shape.deblock { LatGrad::Es } else { steps.lat_grad };
        let mut config = Config {
            lat_grad,
            lat_bits: gn.lat_bits,
            lat_bits_start: gn.lat_bits_start,
            mlp_bits: gn.mlp_bits,
            mlp_bits_start: gn.mlp_bits_start,
            gn_h: gn.gn_h,
            gn_lat_steps: gn.gn_lat_steps,
            gn_mlp_steps: gn.gn_mlp_steps,
            gn_texels: gn.gn_texels,
            gn_cg: gn.gn_cg,
            gn_grow: gn.gn_grow,
            gn_mlp_mu: gn.gn_mlp_mu,
            gn_near_mu: gn.gn_near_mu,
            gn_lin_mu: gn.gn_lin_mu,
            gn_tries: gn.gn_tries,
            gn_right: gn.gn_right,
            rd_lambda: if optimizer == Optimizer::Gn { gn.rd_lambda } else { 0.0 },
            optimizer,
            init: gn.init,
            preset: gn.preset,
            target_psnr: gn.target_psnr,
            max_seconds: gn.max_seconds,
            patience: gn.patience,
            latent: shape.latent,
            latent2: shape.latent2,
            block: shape.block,
            filter: shape.filter,
            mlp: match (shape.hidden, gn.preset) {
                (Some(_), Some(Preset::Default)) => vec![36, 36],
                (Some(_), Some(Preset::Best)) => vec![48, 48],
                _ => shape.mlp,
            },
            hidden: shape.hidden,
            act: shape.act,
            leak: shape.leak,
            clamp: shape.clamp,
            pos: shape.pos,
            nfreq: shape.nfreq,
            deblock: shape.deblock,
            deblock_falloff: shape.deblock_falloff,
            qbits: shape.qbits,
            images: input.images,
            crop: input.crop,
            resize_to: input.resize_to,
            channels: input.channels,
            normal: input.normal,
            weights: input.weights,
            out: input.out,
            load: input.load,
            print_every: input.print_every,
            save_every: input.save_every,
            quiet: input.quiet,
            threads: input.threads,
            simd: input.simd,
            qat_every,
            ..steps
        };
        let level0 = config.filter.map_or(Filter::Bilinear, |f| f.0[0]);
        let nearest = level0 == Filter::Nearest || (config.filter.is_none() && config.latent.is_none());
        let fits = |l: &Vec<usize>| qat.len() <= 1 || l[2] == qat.len();
        if nearest && !config.deblock {
            config.qat = if one { qat[..qat.len().min(1)].to_vec() } else { qat.clone() };
            if !config.latent.as_ref().is_none_or(fits) {
                config.qat.truncate(1);
            }
            let channels = config.latent.as_ref().map_or(config.qat.len(), |l| l[2]);
            let total: usize = match config.qat[..] {
                [bits] => bits as usize * channels,
                _ => config.qat.iter().sum::<u32>() as usize,
            };
            config.qat_joint = joint && (1..=8).contains(&total);
        }
        config
    })
}

/// A proptest runner whose seed is printed: NTC_TEST_SEED, or a fixed one.
pub(crate) fn check(test: impl Fn(Config) -> std::result::Result<(), TestCaseError>) {
    let seed = std::env::var("NTC_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_260_901u64);
    println!("NTC_TEST_SEED={seed}");
    let rng_seed = proptest::test_runner::RngSeed::Fixed(seed);
    let options = ProptestConfig { cases: 300, failure_persistence: None, rng_seed, ..ProptestConfig::default() };
    proptest::test_runner::TestRunner::new(options).run(&any_config(), test).unwrap_or_else(|e| panic!("{e}"));
}
