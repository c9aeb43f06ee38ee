//! The elementary functions and the noise: equal bits on every instruction level of this CPU, and error bounds in f64.
//!
//! `cargo test` reads a stride of a million bit patterns. All 2^32, seven minutes on two cores:
//! `NTC_EXHAUSTIVE=1 cargo test --release --test simd_math -- --nocapture`

use fearless_simd::{Level, Simd};
use ntc_es::backend::simd::Wide;
use ntc_es::model::lanes::{Lanes, Scalar};
use ntc_es::model::math;
use ntc_es::noise::hash::{HashNoise, Stream, fill_normals, normal_at};
use std::sync::Mutex;

#[derive(Clone, Copy, Debug)]
enum Function {
    Exp,
    Ln,
    Sigmoid,
    Tanh,
    Sin,
    Cos,
    RoundAway,
    SinTurns,
    CosTurns,
}
use Function::*;

const ALL: [Function; 9] = [Exp, Ln, Sigmoid, Tanh, Sin, Cos, RoundAway, SinTurns, CosTurns];

impl Function {
    #[inline(always)]
    fn apply<L: Lanes>(self, l: L, x: L::F) -> L::F {
        match self {
            Exp => math::exp(l, x),
            Ln => math::ln(l, x),
            Sigmoid => math::sigmoid(l, x),
            Tanh => math::tanh(l, x),
            Sin => math::sin(l, x),
            Cos => math::cos(l, x),
            RoundAway => math::round_away(l, x),
            SinTurns => math::sin_cos_turns(l, x).0,
            CosTurns => math::sin_cos_turns(l, x).1,
        }
    }

    fn bound(self) -> f64 {
        match self {
            Exp => math::EXP_ULP,
            Ln => math::LN_ULP,
            Sigmoid => math::SIGMOID_ULP,
            Tanh => math::TANH_ULP,
            Sin | Cos => math::SIN_ULP,
            RoundAway => 0.0,
            SinTurns | CosTurns => math::TURNS_ULP,
        }
    }

    /// Where the bound holds.
    fn promises(self, x: f32) -> bool {
        match self {
            Exp | Tanh | RoundAway => !x.is_nan(),
            Ln => x > 0.0,
            Sigmoid => x >= -88.0,
            Sin | Cos => x.abs() <= math::SIN_RANGE,
            // Multiples of 2^-24 below 1.
            SinTurns | CosTurns => (0.0..1.0).contains(&x) && (x * 16_777_216.0).fract() == 0.0,
        }
    }

    /// A weaker promise outside that range: an absolute error, where there is one.
    fn absolute(self, x: f32) -> Option<f64> {
        match self {
            Sigmoid if x < -88.0 => Some(f32::MIN_POSITIVE.into()),
            Sin | Cos if x.abs() <= 4_194_304.0 => Some(1e-5),
            _ => None,
        }
    }

    fn exact(self, x: f64) -> f64 {
        match self {
            Exp => x.exp(),
            Ln => x.ln(),
            Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Tanh => x.tanh(),
            Sin => x.sin(),
            Cos => x.cos(),
            RoundAway => x.round(),
            SinTurns => turns(x).0,
            CosTurns => turns(x).1,
        }
    }
}

/// (sin, cos) of t turns from the nearest axis, where the f64 angle has no rounding to lose small values by.
fn turns(t: f64) -> (f64, f64) {
    let n = (4.0 * t).round();
    let (s, c) = ((t - n / 4.0) * std::f64::consts::TAU).sin_cos();
    [(s, c), (c, -s), (-s, -c), (-c, s)][n as usize % 4]
}

/// |y - exact| in ulp of the exact value, 2^-149 below the normal range; an infinity counts as 2^128.
fn ulps(y: f32, exact: f64) -> f64 {
    let top = 2f64.powi(128);
    let exact = exact.clamp(-top, top);
    let y = if y.is_infinite() { top.copysign(y.into()) } else { f64::from(y) };
    let exponent = ((exact.to_bits() >> 52 & 0x7ff) as i32 - 1023).clamp(-126, 127);
    // 2^(23 - exponent) by its bits: powi would take most of the exhaustive run.
    (y - exact).abs() * f64::from_bits(((1023 + 23 - exponent) as u64) << 52)
}

#[inline(always)]
fn map<L: Lanes>(l: L, f: Function, x: &[f32], out: &mut [f32]) {
    for (x, out) in x.chunks_exact(L::N).zip(out.chunks_exact_mut(L::N)) {
        l.store(f.apply(l, l.load(x)), out);
    }
}

/// `map` at one level, inside that level's target features.
fn map_wide<S: Simd>(token: S, f: Function, x: &[f32], out: &mut [f32]) {
    token.vectorize(
        #[inline(always)]
        || map(Wide::<S, 4>(token), f, x, out),
    );
}

/// Runs `f` over `x` (a multiple of 16 values) on every level of this CPU and returns the values, after comparing bits.
/// The slow levels, without a fused multiply-add instruction, are left out of the exhaustive run.
fn on_every_level(f: Function, x: &[f32], all: bool) -> Vec<f32> {
    let level = Level::new();
    let mut results: Vec<(&str, Vec<f32>)> = Vec::new();
    let mut run = |name, go: &dyn Fn(&mut [f32])| {
        let mut out = vec![0.0; x.len()];
        go(&mut out);
        results.push((name, out));
    };
    if let Some(token) = level.as_avx512() {
        run("avx512", &|out| map_wide(token, f, x, out));
    }
    if let Some(token) = level.as_avx2() {
        run("avx2", &|out| map_wide(token, f, x, out));
        if all {
            run("scalar fma", &|out| {
                token.vectorize(
                    #[inline(always)]
                    || map(Scalar, f, x, out),
                )
            });
        }
    }
    if all {
        if let Some(token) = level.as_sse4_2() {
            run("sse4.2", &|out| map_wide(token, f, x, out));
        }
        if let Some(token) = level.as_sse2() {
            run("sse2", &|out| map_wide(token, f, x, out));
        }
    }
    if all || level.as_avx2().is_none() {
        run("scalar", &|out| map(Scalar, f, x, out));
    }
    let (first, values) = results.swap_remove(0);
    for (name, other) in &results {
        for ((&x, a), b) in x.iter().zip(&values).zip(other) {
            assert_eq!(a.to_bits(), b.to_bits(), "{f:?}({x:e}), bits {:#x}: {first} against {name}", x.to_bits());
        }
    }
    values
}

/// Checks one chunk of inputs; returns the largest error in ulp and its input.
fn worst_of(f: Function, x: &[f32], all: bool) -> (f64, f32) {
    let mut worst = (0.0, 0.0);
    for (&x, y) in x.iter().zip(on_every_level(f, x, all)) {
        if x.is_nan() && !matches!(f, SinTurns | CosTurns) {
            assert_eq!(y.to_bits(), 0x7fc0_0000, "{f:?} of NaN {:#x}", x.to_bits());
        } else if f.promises(x) {
            let error = ulps(y, f.exact(x.into()));
            assert!(error <= f.bound(), "{f:?}({x:e}) = {y:e} is {error} ulp off");
            if error > worst.0 {
                worst = (error, x);
            }
        } else if let Some(bound) = f.absolute(x) {
            assert!((f64::from(y) - f.exact(x.into())).abs() < bound, "{f:?}({x:e}) = {y:e}");
        }
    }
    worst
}

/// Calls `worst_of` over every `stride`-th bit pattern, a share of the chunks a thread.
fn check(f: Function, stride: u64, all: bool) -> (f64, f32) {
    const CHUNK: u64 = 1 << 14;
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let worst = Mutex::new((0.0, 0.0));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let worst = &worst;
            scope.spawn(move || {
                let mut x = vec![0f32; CHUNK as usize];
                let mut mine = (0.0, 0.0);
                for start in (thread * CHUNK..(1 << 32) / stride).step_by((threads * CHUNK) as usize) {
                    for (i, x) in x.iter_mut().enumerate() {
                        *x = f32::from_bits(((start + i as u64) * stride) as u32);
                    }
                    let here = worst_of(f, &x, all);
                    mine = if here.0 > mine.0 { here } else { mine };
                }
                let mut worst = worst.lock().unwrap();
                *worst = if mine.0 > worst.0 { mine } else { *worst };
            });
        }
    });
    worst.into_inner().unwrap()
}

#[test]
fn bounds_and_equal_bits_hold_on_a_stride() {
    for f in ALL {
        let (error, x) = check(f, 4093, true);
        println!("{f:?}: {error:.3} ulp at {x:e}");
    }
}

#[test]
fn equal_bits_at_the_special_values() {
    let mut x =
        vec![0.0, f32::MIN_POSITIVE, 1e-45, f32::MAX, f32::INFINITY, f32::NAN, 65536.0, 4_194_304.0, 4_194_305.0];
    x.extend([88.375_63, 88.722_84, 103.972_08, 104.0, 89.0, 87.0, 0.5, 1.5, 8_388_607.5, 1.0, 0.25, 0.75]);
    x.extend([0x7f80_0001, 0x7fff_ffff, 0x7fc1_2345].map(f32::from_bits));
    x.extend(x.clone().iter().map(|x| -x));
    x.resize(48, 0.0);
    for f in ALL {
        worst_of(f, &x, true);
    }
}

#[test]
fn turns_keep_their_bound_at_every_uniform() {
    for f in [SinTurns, CosTurns] {
        let mut worst = (0.0, 0.0);
        for start in (0..1u32 << 24).step_by(1 << 14) {
            let x: Vec<f32> = (start..start + (1 << 14)).map(|k| k as f32 / 16_777_216.0).collect();
            let here = worst_of(f, &x, false);
            worst = if here.0 > worst.0 { here } else { worst };
        }
        println!("{f:?}: {:.3} ulp at {:e} of all multiples of 2^-24", worst.0, worst.1);
    }
}

#[test]
fn bounds_hold_for_every_input() {
    if std::env::var_os("NTC_EXHAUSTIVE").is_none() {
        println!("skipped: set NTC_EXHAUSTIVE=1 (in a release build) to read all 2^32 inputs");
        return;
    }
    for f in [Exp, Ln, Sigmoid, Tanh, Sin, Cos, RoundAway] {
        let (error, x) = check(f, 1, false);
        println!("{f:?}: {error:.4} ulp at {x:e} of all inputs");
    }
}

/// `fill_normals` at one level, inside that level's target features.
fn fill_wide<S: Simd>(token: S, key: [u32; 2], start: usize, out: &mut [f32]) {
    token.vectorize(
        #[inline(always)]
        || fill_normals(Wide::<S, 4>(token), key, Stream::LatentEs, 5, 6, start, out),
    );
}

#[test]
fn normals_have_equal_bits_on_every_level() {
    let key = HashNoise::new(1).key;
    let level = Level::new();
    let mut out = vec![0.0; 100_001];
    for start in [0, 1, 6, 1 << 20] {
        let expected: Vec<u32> =
            (start..start + out.len()).map(|n| normal_at(key, Stream::LatentEs, 5, 6, n).to_bits()).collect();
        let mut check = |name: &str, go: &dyn Fn(&mut [f32])| {
            out.fill(f32::NAN);
            go(&mut out);
            let first = out.iter().zip(&expected).position(|(a, &b)| a.to_bits() != b);
            assert_eq!(first, None, "{name}, start {start}: the first number that differs");
        };
        check("scalar", &|out| fill_normals(Scalar, key, Stream::LatentEs, 5, 6, start, out));
        if let Some(token) = level.as_avx512() {
            check("avx512", &|out| fill_wide(token, key, start, out));
        }
        if let Some(token) = level.as_avx2() {
            check("avx2", &|out| fill_wide(token, key, start, out));
        }
        if let Some(token) = level.as_sse4_2() {
            check("sse4.2", &|out| fill_wide(token, key, start, out));
        }
        if let Some(token) = level.as_sse2() {
            check("sse2", &|out| fill_wide(token, key, start, out));
        }
    }
}
