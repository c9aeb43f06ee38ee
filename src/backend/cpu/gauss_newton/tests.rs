//! Normal equations against brute force in f64, what steps promise, and equal bits for any number of threads.

use super::*;
use crate::backend::cpu::CpuOptions;
use crate::backend::simd::SimdLevel;
use crate::backend::{Backend, Damping, Seen, State};
use crate::model::decode::Geometry;
use crate::model::loss::UNIT;
use crate::model::price::Prices;
use crate::model::quant::{grid_index, grid_value};
use crate::model::structure::{Filter, Structure, TextureInfo};
use crate::noise::Noise;
use crate::train::{init, pca};

/// A small problem: 20 x 12 texels of an RGB and a grey map with weights 1 and 3.
fn problem(flags: &str, threads: usize) -> Cpu {
    let config = crate::config::tests::parse(flags);
    let texture =
        |channels| TextureInfo { name: format!("t{channels}"), channels, depth: 8, role: None, sources: vec![] };
    let structure = config.resolve(20, 12, vec![texture(3), texture(1)]).unwrap();
    let geometry = Geometry::new(structure.clone()).unwrap();
    let plane = |c: usize| {
        let texel = |i: usize| {
            let (x, y) = ((i % structure.width) as f32, (i / structure.width) as f32);
            0.5 + 0.3 * (x * 0.7 + y * 0.4 + c as f32).sin() + ((i * 7919 + c * 31) % 13) as f32 / 60.0
        };
        (0..structure.texels()).map(texel).collect::<Vec<f32>>()
    };
    let target: Vec<Vec<f32>> = (0..4).map(plane).collect();
    let mut noise = Noise::new(config.rng, config.seed);
    let mut parameters = init::parameters(&structure, &geometry.network, 0.3, &mut noise);
    pca::start(&structure, &target, &mut parameters);
    let options = CpuOptions { band_rows: 4, ..CpuOptions::new(SimdLevel::all()[0], threads) };
    Cpu::new(options, geometry, target, &[1.0, 3.0], noise, State::new(parameters)).unwrap()
}

const LAYOUTS: [&str; 5] = [
    "--qat 1 --filter nearest,bilinear --mlp 5,4 --leak 0.1",
    "--qat 2 --mlp 6 --leak 0.1",
    "--latent 7 5 3 --mlp 4,4,3 --leak 0.1",
    "--latent 10 6 2 --latent2 3 2 2 --filter nearest,bilinear --mlp 5 --leak 0.1",
    "--latent 30 17 2 --act tanh --clamp --mlp 5",
];

/// The decode of one texel in f64: parameters as given, taps and position features from the tables.
fn decode(geometry: &Geometry, levels: &[Vec<f64>], decoder: &[f64], texel: usize) -> Vec<f64> {
    let Structure { width, levels: ref shapes, activation, leak, clamp, .. } = geometry.structure;
    let (px, py) = (texel % width, texel / width);
    let mut x = vec![];
    for (k, shape) in shapes.iter().enumerate() {
        let (tx, ty) = (&geometry.taps[k].x, &geometry.taps[k].y);
        let (fx, fy) = (f64::from(tx.fraction[px]), f64::from(ty.fraction[py]));
        let (fx, fy) = if shape.filter == Filter::Nearest { (0.0, 0.0) } else { (fx, fy) };
        for c in 0..shape.channels {
            let at = |i: u32, j: u32| levels[k][(j as usize * shape.width + i as usize) * shape.channels + c];
            let (i0, i1, j0, j1) = (tx.first[px], tx.second[px], ty.first[py], ty.second[py]);
            let top = (1.0 - fx) * at(i0, j0) + fx * at(i1, j0);
            let bottom = (1.0 - fx) * at(i0, j1) + fx * at(i1, j1);
            x.push((1.0 - fy) * top + fy * bottom);
        }
    }
    x.extend(geometry.features.iter().map(|feature| f64::from(feature.at(px, py))));
    let layers = &geometry.network.layers;
    for (k, layer) in layers.iter().enumerate() {
        let sum = |o: usize| {
            let row = &decoder[layer.weights + o * layer.inputs..][..layer.inputs];
            decoder[layer.biases + o] + row.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>()
        };
        let last = k + 1 == layers.len();
        let activate = |s: f64| match activation {
            _ if last && clamp => (s + 0.5).clamp(0.0, 1.0),
            _ if last => 1.0 / (1.0 + (-s).exp()),
            crate::model::structure::Activation::Tanh => s.tanh(),
            _ => {
                if s < 0.0 {
                    f64::from(leak) * s
                } else {
                    s
                }
            }
        };
        x = (0..layer.outputs).map(sum).map(activate).collect();
    }
    x
}

/// Residuals of texels times the roots of the loss weights, and their central differences in every parameter that
/// `bump` changes.
fn jacobian(
    cpu: &Cpu,
    texels: &[u32],
    count: usize,
    bump: impl Fn(&mut [Vec<f64>], &mut [f64], usize, f64),
) -> (Vec<f64>, Vec<Vec<f64>>) {
    let wide = |values: &Vec<f32>| values.iter().map(|&z| f64::from(z)).collect::<Vec<f64>>();
    let levels: Vec<Vec<f64>> = cpu.state.parameters.levels.iter().map(wide).collect();
    let decoder = wide(&cpu.state.parameters.decoder);
    let all = |levels: &[Vec<f64>], decoder: &[f64]| -> Vec<f64> {
        let texel = |&t: &u32| {
            let out = decode(&cpu.geometry, levels, decoder, t as usize);
            let each = out
                .into_iter()
                .enumerate()
                .map(move |(o, x)| (x - f64::from(cpu.target[o][t as usize])) * f64::from(cpu.weights[o]).sqrt());
            each.collect::<Vec<_>>()
        };
        texels.iter().flat_map(texel).collect()
    };
    let h = 1e-6;
    let column = |p: usize| {
        let moved = |step: f64| {
            let (mut levels, mut decoder) = (levels.clone(), decoder.clone());
            bump(&mut levels, &mut decoder, p, step);
            all(&levels, &decoder)
        };
        moved(h).iter().zip(moved(-h)).map(|(a, b)| (a - b) / (2.0 * h)).collect()
    };
    (all(&levels, &decoder), (0..count).map(column).collect())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The layouts with a smooth activation: a bump across the kink of a leaky one differs from the brute force's smaller bump.
fn smooth() -> [String; 5] {
    LAYOUTS.map(|flags| format!("{} --act tanh", flags.replace("--act tanh", "")))
}

/// Largest difference relative to the largest magnitude.
fn assert_close(what: &str, got: &[f64], want: &[f64], allowed: f64) {
    let most = want.iter().fold(1e-12f64, |most, x| most.max(x.abs()));
    let worst = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert_eq!(got.len(), want.len(), "{what}");
    assert!(worst <= allowed * most, "{what}: off by {worst:e} of {most:e}");
}

#[test]
fn the_decoders_normal_equations_are_those_of_brute_force() {
    for flags in &smooth() {
        let cpu = problem(flags, 2);
        // More than one chunk, the last one cut short, and a right-hand side from more texels than the matrix.
        let texels: Vec<u32> = (0..2600).map(|i| (i * 97 % 240) as u32).collect();
        for products in [texels.len(), 1500] {
            let parameters = cpu.geometry.network.parameters();
            let normal = cpu
                .pool
                .install(|| cpu.decoder_normal(&cpu.packed(&cpu.state.parameters.decoder), 1e-3, &texels, products));
            let (r, j) = jacobian(&cpu, &texels, parameters, |_, decoder, p, step| decoder[p] += step);
            let rows = normal.texels * 4;
            assert_eq!(normal.texels, if products == 1500 { 2 * CHUNK } else { 2600 });
            let (mut got, mut want) = (vec![], vec![]);
            for p in 0..parameters {
                for q in p..parameters {
                    got.push(normal.matrix[p * parameters + q]);
                    want.push(dot(&j[p][..rows], &j[q][..rows]));
                }
            }
            assert_close(&format!("{flags}: matrix"), &got, &want, 2e-3);
            let share = normal.texels as f64 / texels.len() as f64;
            let right: Vec<f64> = (0..parameters).map(|p| share * dot(&j[p], &r)).collect();
            assert_close(&format!("{flags}: right-hand side"), &normal.right, &right, 2e-3);
        }
    }
}

#[test]
fn a_levels_normal_equations_are_those_of_brute_force() {
    for flags in &smooth() {
        let cpu = problem(flags, 2);
        let packed = cpu.packed(&cpu.state.parameters.decoder);
        let texels: Vec<u32> = (0..cpu.geometry.structure.texels() as u32).collect();
        let shapes = &cpu.geometry.structure.levels;
        for (k, shape) in shapes.iter().enumerate().filter(|(_, shape)| !shape.is_selector()) {
            let elements = Elements::new(&cpu.geometry, k);
            let normal = cpu.pool.install(|| cpu.level_normal(&packed, &cpu.state.parameters.levels, &elements, 1e-3));
            let n = shape.values();
            let (r, j) = jacobian(&cpu, &texels, n, |levels, _, p, step| levels[k][p] += step);
            // The product with every unit vector is a column of the matrix.
            let (mut got, mut want) = (vec![], vec![]);
            for p in 0..n {
                let mut unit = vec![0.0; n];
                unit[p] = 1.0;
                let mut column = vec![0.0; n];
                let row = shape.width * shape.channels;
                for (y, out) in column.chunks_exact_mut(row).enumerate() {
                    elements.multiply_row(&normal.blocks, &unit, y, out);
                }
                got.extend(column.into_iter().map(f64::from));
                want.extend((0..n).map(|q| dot(&j[p], &j[q])));
            }
            assert_close(&format!("{flags}: level {k}, matrix"), &got, &want, 2e-3);
            let right: Vec<f64> = normal.right.iter().map(|&g| f64::from(g)).collect();
            let want: Vec<f64> = (0..n).map(|p| dot(&j[p], &r)).collect();
            assert_close(&format!("{flags}: level {k}, right-hand side"), &right, &want, 2e-3);
            let errors = cpu.pool.install(|| cpu.element_errors(&packed, &cpu.state.parameters.levels, &elements));
            assert_eq!(errors, normal.errors);
            let total = errors.iter().sum::<i64>() as f64 / UNIT;
            assert!((total - dot(&r, &r)).abs() < 1e-4 * total, "{flags}: {total} is not {}", dot(&r, &r));
        }
    }
}

fn decoder_step(step: u32, bits: Option<u32>) -> DecoderGn {
    let damping = Damping { start: 1e-3, least: 2e-7, most: 1e3, fall: 0.5, rise: 5.0 };
    DecoderGn { step, h: 1e-3, batch: 200, right: 500, damping, tries: 5, bits }
}

fn latent_step(level: usize, grid: Option<u32>) -> LatentGn {
    let damping = Damping { start: 0.05, least: 1e-5, most: 1e3, fall: 0.4, rise: 5.0 };
    LatentGn { level, h: 1e-3, damping, iterations: 12, tries: 3, grid }
}

/// The weighted loss over all texels, as an integer.
fn loss(cpu: &Cpu) -> i64 {
    let elements = Elements::new(&cpu.geometry, 0);
    let packed = cpu.packed(&cpu.state.parameters.decoder);
    cpu.pool.install(|| cpu.element_errors(&packed, &cpu.state.parameters.levels, &elements)).iter().sum()
}

#[test]
fn no_latent_step_raises_the_loss_and_rounds_lower_it() {
    for flags in LAYOUTS {
        let mut cpu = problem(flags, 2);
        let first = loss(&cpu);
        for round in 1..=6 {
            cpu.decoder_gn(&decoder_step(round, (round > 4).then_some(8))).unwrap();
            for k in 0..cpu.geometry.structure.levels.len() {
                if cpu.geometry.structure.levels[k].is_selector() {
                    let before = loss(&cpu);
                    cpu.search_selectors(false).unwrap();
                    assert!(loss(&cpu) <= before, "{flags}: selectors");
                    continue;
                }
                let grid = (round > 3).then_some(4);
                if let Some(bits) = grid {
                    snap(&mut cpu.state.parameters.levels[k], bits);
                }
                let before = loss(&cpu);
                let report = cpu.latent_gn(&latent_step(k, grid)).unwrap();
                let after = loss(&cpu);
                assert!(after <= before, "{flags}: level {k} from {before} to {after}");
                let texels = UNIT * cpu.geometry.structure.texels() as f64;
                assert_eq!(report.after, after as f64 * (1.0 / texels), "{flags}: the error that it says");
                if let Some(bits) = grid {
                    cpu.search_grid(k, bits).unwrap();
                    assert!(loss(&cpu) <= after, "{flags}: search on the grid");
                    let values = &cpu.state.parameters.levels[k];
                    assert!(values.iter().all(|&z| z == grid_value(grid_index(z, bits), bits)));
                }
                assert!(cpu.state.parameters.levels[k].iter().all(|z| z.abs() <= 1.0));
            }
        }
        let last = loss(&cpu);
        assert!(last < first / 2, "{flags}: from {first} to {last}");
    }
}

#[test]
fn every_number_of_threads_gives_the_same_bits() {
    for flags in LAYOUTS {
        let states: Vec<State> = [1, 2, 7]
            .into_iter()
            .map(|threads| {
                let mut cpu = problem(flags, threads);
                for round in 1..=3 {
                    cpu.decoder_gn(&decoder_step(round, None)).unwrap();
                    for k in 0..cpu.geometry.structure.levels.len() {
                        if !cpu.geometry.structure.levels[k].is_selector() {
                            cpu.latent_gn(&latent_step(k, (round > 1).then_some(5))).unwrap();
                            cpu.search_grid(k, 5).unwrap();
                        }
                    }
                }
                cpu.state().unwrap()
            })
            .collect();
        assert!(states[0] == states[1] && states[0] == states[2], "{flags}");
        assert!(states[0].dampings.decoder.is_some());
    }
}

#[test]
fn the_search_on_the_grid_is_the_one_that_tries_every_texel_alone() {
    for flags in LAYOUTS {
        let mut cpu = problem(flags, 2);
        let k = usize::from(cpu.geometry.structure.levels[0].is_selector());
        let (bits, shape) = (3, cpu.geometry.structure.levels[k].clone());
        snap(&mut cpu.state.parameters.levels[k], bits);
        let mut alone = problem(flags, 1);
        alone.state = cpu.state.clone();
        cpu.search_grid(k, bits).unwrap();
        let stride = if shape.filter == Filter::Bilinear { 2 } else { 1 };
        for phase in 0..stride * stride {
            for (channel, up) in (0..shape.channels).flat_map(|c| [(c, true), (c, false)]) {
                for t in 0..shape.texels() {
                    if (t % shape.width % stride, t / shape.width % stride) != (phase % stride, phase / stride) {
                        continue;
                    }
                    let before = loss(&alone);
                    let at = t * shape.channels + channel;
                    let was = alone.state.parameters.levels[k][at];
                    let index = grid_index(was, bits);
                    let index = if up { (index + 1).min(7) } else { index.saturating_sub(1) };
                    alone.state.parameters.levels[k][at] = grid_value(index, bits);
                    if loss(&alone) >= before {
                        alone.state.parameters.levels[k][at] = was;
                    }
                }
            }
        }
        assert!(alone.state.parameters.levels == cpu.state.parameters.levels, "{flags}");
    }
}

#[test]
fn steps_around_the_stored_point_leave_the_state_free() {
    let mut cpu = problem("--latent 7 5 3 --lat-bits 3 --mlp-bits 8 --mlp 5", 2);
    cpu.see_as_stored(Seen { grid: [Some(3), None], decoder: Some(8) }).unwrap();
    let view = cpu.seen().clone();
    assert!(view.levels[0].iter().all(|&z| z == grid_value(grid_index(z, 3), 3)));
    assert_ne!(view.decoder, cpu.state.parameters.decoder);
    let step = crate::backend::LatentEs { step: 1, pairs: 2, sigma: [0.05; 2], rate: 0.3, alternate: false };
    cpu.latent_es(&step).unwrap();
    let values = &cpu.state.parameters.levels[0];
    assert!(values.iter().all(|z| z.abs() <= 1.0) && values.iter().any(|&z| z != grid_value(grid_index(z, 3), 3)));
    assert_ne!(cpu.seen().levels, view.levels);
    cpu.see_as_stored(Seen::default()).unwrap();
    assert!(cpu.view.is_none());
}

#[test]
fn prices_beyond_every_error_decide() {
    let mut cpu = problem("--qat 2 --lat-bits 0,5 --filter nearest,bilinear --mlp 5,4 --leak 0.1", 2);
    let levels = cpu.geometry.structure.levels.clone();
    // The first value of every window is free.
    let price = |count: usize, window: usize| {
        let costs = (0..count * window).map(|k| 1024 * (k % window) as i32).collect();
        Prices { first: vec![0; count], window, costs, unit: 1 << 40 }
    };
    cpu.price(levels.iter().map(|level| Some(price(level.values(), 32))).collect()).unwrap();
    assert!(cpu.search_selectors(false).unwrap() > 0);
    let before: Vec<u32> = cpu.state.parameters.levels[1].iter().map(|&z| grid_index(z, 5)).collect();
    cpu.search_grid(1, 5).unwrap();
    let State { parameters, .. } = cpu.state().unwrap();
    assert!(parameters.levels[0].iter().all(|&z| z == -1.0));
    // Two tries up and down: one step down each.
    let after = parameters.levels[1].iter().map(|&z| grid_index(z, 5));
    assert!(before.iter().zip(after).all(|(&a, b)| b == a.saturating_sub(1)));
    cpu.price(vec![]).unwrap();
    assert!(cpu.search_selectors(false).unwrap() > 0);
}
