//! Decoder steps by central differences.

use crate::decoder_es::BATCHES;
use crate::problems::{Bilinear, Nearest, Problem, Relu, Sine, Tanh, case};
use crate::reference::Reference;
use crate::{Make, assert_near, assert_same_state, problems};
use ntc_es::backend::{Backend, DecoderFd};
use std::sync::LazyLock;

/// Steps over every batch size against the structured estimate written out for one texel at a time.
pub fn steps_equal_the_reference(make: Make) {
    for problem in problems::all() {
        let (mut backend, mut reference) = (make(&problem), Reference::new(&problem));
        let small = problem.structure.texels() * problem.state.parameters.decoder.len() < 60_000;
        // A large problem takes one short batch: what it adds to the small ones is its size.
        let batches = if small { &BATCHES[..] } else { &BATCHES[3..4] };
        for (k, &batch) in batches.iter().enumerate() {
            let step = DecoderFd { step: k as u32 + 1, h: 1e-3, rate: 0.01, batch };
            let what = format!("{}, {step:?}", problem.name);
            let got = backend.decoder_fd(&step).expect(&what);
            let want = reference.decoder_fd(&step).expect(&what);
            assert_same_state(&what, &*backend, &reference);
            assert_near(&format!("{what}: loss"), got.loss, want.loss);
            assert_near(&format!("{what}: rms"), got.statistic, want.statistic);
        }
    }
}

/// Half the distance of the two evaluations in the accuracy test.
const STEPS: [f32; 2] = [1e-3, 1e-2];

/// A problem, a step, and central differences of whole evaluations in f32 and in f64.
type Naive = (Problem, f32, Vec<f32>, Vec<f64>);

/// Made once for all backends.
static NAIVE: LazyLock<Vec<Naive>> = LazyLock::new(|| {
    let naive = |problem: Problem| {
        let every: Vec<usize> = (0..problem.structure.texels()).collect();
        let reference = Reference::new(&problem);
        STEPS.map(|h| {
            let (naive, exact) = reference.naive_gradients(&every, h);
            (problem.clone(), h, naive, exact)
        })
    };
    (1..=3).flat_map(shapes).flat_map(naive).collect()
});

fn shapes(seed: u64) -> Vec<Problem> {
    let cases = [
        case("one layer", (20, 12)).level0((5, 3, 4), Bilinear).hidden(&[8], Tanh),
        case("two layers", (20, 12)).level0((5, 3, 4), Bilinear).hidden(&[12, 12], problems::Activation::Leaky),
        case("three relu layers", (20, 12)).level0((5, 3, 3), Nearest).hidden(&[9, 7, 5], Relu).position("uv,local"),
        case("sine, clamp", (20, 12)).level0((5, 3, 2), Bilinear).hidden(&[6, 6], Sine).clamp(),
        case("two levels, five layers", (16, 16))
            .level0((4, 4, 2), Nearest)
            .level1((3, 3, 3), Bilinear)
            .hidden(&[5, 5, 5, 5, 5], Tanh)
            .textures(&[1, 3], &[1.0, 2.0]),
        case("deblocked", (16, 12)).level0((4, 3, 3), Nearest).hidden(&[8, 8], Tanh).deblock(1.0),
    ];
    cases.into_iter().map(|case| case.seed(seed).problem()).collect()
}

fn rms(got: &[f32], want: &[f64]) -> f64 {
    let sum: f64 = got.iter().zip(want).map(|(&g, w)| (f64::from(g) - w).powi(2)).sum();
    (sum / want.len() as f64).sqrt()
}

/// The backend's estimate and the naive one in f32 (every w+h and w-h evaluated whole), each against the naive one in f64,
/// over every weight of several shapes and seeds: carrying only what changes may not cost accuracy.
///
/// Both errors are mostly the rounding of outputs and losses, which the two share in kind and not in value: over one shape
/// their ratio is a random number around 1 (0.87 to 1.18 here), over all of them the structured error is the smaller.
pub fn the_structured_estimate_is_as_good_as_the_naive_one(make: Make) {
    let mut sum = 0.0;
    for (problem, h, naive, exact) in NAIVE.iter() {
        let mut backend = make(problem);
        backend.decoder_fd(&DecoderFd { step: 1, h: *h, rate: 0.0, batch: None }).expect("a step");
        let m = backend.state().expect("a state").adam_decoder.m;
        let structured: Vec<f32> = m.iter().map(|m| m / (1.0 - 0.9f32)).collect();
        let size = (exact.iter().map(|g| g * g).sum::<f64>() / exact.len() as f64).sqrt();
        let (ours, theirs) = (rms(&structured, exact), rms(naive, exact));
        println!("{}, h {h}: rms gradient {size:.2e}, error structured {ours:.2e}, naive {theirs:.2e}", problem.name);
        assert!(ours <= 1.25 * theirs, "{}, h {h}: structured {ours:e}, naive {theirs:e}", problem.name);
        assert!(ours < 1e-3 * size, "{}, h {h}: {ours:e} of {size:e}", problem.name);
        sum += ours / theirs;
    }
    let mean = sum / NAIVE.len() as f64;
    println!("structured / naive: {mean:.4} in the mean of {}", NAIVE.len());
    assert!(mean <= 1.0, "structured / naive {mean}");
}
