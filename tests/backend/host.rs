//! What every backend is handed and none computes: position tables and first values, from SPEC section 2's formulas.

use crate::problems::{self, Bilinear, Nearest, Problem, Sine, Tanh, case};
use ntc_es::model::quant::{grid_index, grid_value};
use ntc_es::model::structure::{Activation, Filter, Rng};
use ntc_es::noise::Noise;
use ntc_es::noise::hash::{Stream, normal_at};
use ntc_es::noise::mersenne::PolarNormal;
use ntc_es::train::init;
use std::f64::consts::PI;

/// Index and offset of a level's tap at a texel, before any clamping.
fn tap(problem: &Problem, level: usize, x: usize, y: usize) -> [(f64, f64); 2] {
    let shape = &problem.structure.levels[level];
    let half = if shape.filter == Filter::Bilinear { 0.5 } else { 0.0 };
    let axis = |p: usize, extent: usize, size: usize| {
        let at = (p as f64 + 0.5) * size as f64 / extent as f64 - half;
        // An edge in real arithmetic may fall on either side in f32; the tests choose sizes where none does.
        (at.floor(), at - at.floor())
    };
    [axis(x, problem.structure.width, shape.width), axis(y, problem.structure.height, shape.height)]
}

/// One item of a position specification at a texel, in f64.
fn feature(problem: &Problem, item: &str, x: usize, y: usize) -> Vec<f64> {
    let (kind, n) = item.split_once(':').unwrap_or((item, "0"));
    let n: usize = n.parse().expect("a number");
    let (width, height) = (problem.structure.width, problem.structure.height);
    let (u, v) = ((x as f64 + 0.5) / width as f64, (y as f64 + 0.5) / height as f64);
    let [(i, fx), (j, fy)] = tap(problem, 0, x, y);
    let period = |p: f64| ((i.rem_euclid(p) + fx) / p, (j.rem_euclid(p) + fy) / p);
    let signed = |(x, y): (f64, f64)| vec![2.0 * x - 1.0, 2.0 * y - 1.0];
    let fourier = |(x, y): (f64, f64)| {
        let wave = |k: usize| (1u64 << k) as f64 * 2.0 * PI;
        (0..n)
            .flat_map(|k| [(wave(k) * x).sin(), (wave(k) * x).cos(), (wave(k) * y).sin(), (wave(k) * y).cos()])
            .collect()
    };
    let dct = |(x, y): (f64, f64)| {
        (1..=n).flat_map(|k| [(PI * k as f64 * x).cos(), (PI * k as f64 * y).cos()]).collect::<Vec<f64>>()
    };
    let frequencies = "10 01 02 11 20 30 21 12 03 13 22 31 32 23 33";
    let block = |k: usize| {
        let ab = frequencies.as_bytes();
        let [a, b] = [ab[3 * k], ab[3 * k + 1]].map(|digit| f64::from(digit - b'0'));
        (PI * a * fx).cos() * (PI * b * fy).cos()
    };
    match kind {
        "uv" => signed((u, v)),
        "fourier" => fourier((u, v)),
        "dct" => dct((u, v)),
        "local" => signed((fx, fy)),
        "lfourier" => fourier((fx, fy)),
        "ldct" => dct((fx, fy)),
        "lquad" => {
            let (a, b) = (2.0 * fx - 1.0, 2.0 * fy - 1.0);
            vec![a * b, a * a, b * b]
        }
        "ldct2" => dct(period(2.0)),
        "ldct4" => dct(period(4.0)),
        "lv1local" | "lv1ldct" => {
            let [(_, fx), (_, fy)] = tap(problem, 1, x, y);
            if kind == "lv1local" { signed((fx, fy)) } else { dct((fx, fy)) }
        }
        "bdct" => (0..n).map(block).collect(),
        "bdcte" => vec![block(n - 1)],
        "onehot" => {
            let level = &problem.structure.levels[0];
            let (cw, ch) = (width / level.width, height / level.height);
            (0..cw * ch).map(|k| f64::from(u8::from(k == y % ch * cw + x % cw))).collect()
        }
        "bc7part" => {
            // Patterns 0, 1 and 2: the right half, the last column, and all but the first column.
            let subset = [x % 4 >= 2, x % 4 == 3, x % 4 >= 1];
            subset[..n].iter().map(|&one| if one { 1.0 } else { -1.0 }).collect()
        }
        _ => panic!("no kind {kind}"),
    }
}

/// Every position kind at every texel near its formula, in the order h before v, kind after kind.
///
/// A tap of a level of n latent texels is known to n 2^-23, and the steepest feature turns by 26 radians over it
/// (lfourier:3); fourier:6 turns by 201 over a u known to 2^-24.
#[test]
fn position_tables_follow_their_formulas() {
    let all =
        "uv,fourier:6,dct:5,local,lfourier:3,ldct:7,lquad,ldct2:3,ldct4:3,lv1local,lv1ldct:4,bdct:15,bdcte:1,bdcte:8";
    let blocks = format!("{all},onehot,bc7part:3");
    let problems = [
        case("nearest blocks", (24, 8)).level0((6, 2, 1), Nearest).level1((7, 5, 1), Bilinear).position(&blocks),
        case("bilinear", (25, 9)).level0((8, 4, 1), Bilinear).level1((3, 2, 1), Nearest).position(all),
        case("finer", (9, 7)).level0((20, 16, 1), Bilinear).level1((10, 5, 1), Bilinear).position(all),
    ];
    for problem in problems.map(problems::Case::problem) {
        let largest = problem.structure.levels.iter().map(|l| l.width.max(l.height)).max().unwrap_or(1);
        let tolerance = 26.0 * largest as f64 / 8_388_608.0 + 201.0 / 16_777_216.0;
        let features = problem.geometry().features;
        for y in 0..problem.structure.height {
            for x in 0..problem.structure.width {
                let items = problem.structure.position.split(',');
                let want: Vec<f64> = items.flat_map(|item| feature(&problem, item, x, y)).collect();
                let got: Vec<f32> = features.iter().map(|f| f.at(x, y)).collect();
                assert_eq!(got.len(), want.len(), "{}", problem.name);
                for (k, (got, want)) in got.iter().zip(&want).enumerate() {
                    let off = (f64::from(*got) - want).abs();
                    assert!(off < tolerance, "{}: {k} at {x}, {y}: {got} is not {want}", problem.name);
                }
            }
        }
    }
}

/// Latents of the asked deviation (selectors snapped), weights by layer and activation, biases 0; the numbers' order for
/// both sources.
#[test]
fn first_values_follow_the_specification() {
    let cases = [
        case("two levels", (12, 8)).level0((5, 3, 3), Bilinear).level1((3, 3, 1), Nearest).hidden(&[7, 5], Tanh),
        case("sine", (12, 8)).level0((5, 3, 1), Bilinear).hidden(&[7, 5, 3], Sine),
        case("selectors", (12, 8)).selectors((6, 4), &[1, 3]).level1((3, 2, 2), Bilinear),
    ];
    for case in cases.into_iter().flat_map(|case| [case.clone(), case.mersenne()]) {
        let problem = case.seed(77).problem();
        let network = problem.geometry().network;
        let got = init::parameters(&problem.structure, &network, 0.25, &mut problem.noise());

        let mut noise = problem.noise();
        let mut polar = PolarNormal::default();
        let mut normal = |polar: &mut PolarNormal, stream: Stream, i: usize| match &mut noise {
            Noise::Hash(hash) => normal_at(hash.key, stream, 0, 0, i),
            Noise::Mersenne(mersenne) => polar.sample(mersenne),
        };
        for (level, stream) in [(0, Stream::InitLatent0), (1, Stream::InitLatent1)] {
            let Some(shape) = problem.structure.levels.get(level) else { continue };
            for (i, got) in got.levels[level].iter().enumerate() {
                let z = 0.25 * normal(&mut polar, stream, i);
                let bits = shape.selector_bits.get(i % shape.channels);
                let want = bits.map_or(z, |&bits| grid_value(grid_index(z, bits), bits));
                assert_eq!(got.to_bits(), want.to_bits(), "{}: level {level}, {i}", problem.name);
            }
        }
        polar = PolarNormal::default();
        let (mut at, mut drawn) = (0, 0);
        for (k, layer) in network.layers.iter().enumerate() {
            let fan_in = layer.inputs as f32;
            let scale = match problem.structure.activation {
                _ if k + 1 == network.layers.len() => (1.0 / fan_in).sqrt(),
                Activation::Sine if k == 0 => 30.0 / fan_in,
                Activation::Sine => (6.0 / fan_in).sqrt(),
                _ => (2.0 / fan_in).sqrt(),
            };
            for _ in 0..layer.inputs * layer.outputs {
                let want = scale * normal(&mut polar, Stream::InitDecoder, drawn);
                assert_eq!(got.decoder[at].to_bits(), want.to_bits(), "{}: weight {at}", problem.name);
                (at, drawn) = (at + 1, drawn + 1);
            }
            assert!(got.decoder[at..at + layer.outputs].iter().all(|b| b.to_bits() == 0), "{}: biases", problem.name);
            at += layer.outputs;
        }
        assert_eq!(at, got.decoder.len());
        assert!(problem.rng == Rng::Hash || matches!(noise, Noise::Mersenne(_)));
    }
}
