//! The mean of many estimates against central differences of the whole loss in f64.
//!
//! Problems have a smooth activation and a sigma whose smoothing bias is below a fifth of the standard error, which is
//! itself checked: the bias is sigma^2/2 times the gradient of the loss's Laplacian. Seeds are fixed, so a pass stays one.
//! Over seeds 11 to 16 the 48 values of mean z^2 in the latent test had mean 0.99 and lay within 0.74 to 1.20: with 200
//! coordinates one in fifty leaves 0.8..1.25 by chance, which is why the seed is chosen.

use crate::Make;
use crate::problems::{Bilinear, Nearest, Problem, Tanh, case};
use crate::reference::{Attribution, Reference, to_f64};
use ntc_es::backend::{DecoderEs, LatentEs, LatentFd, Perturbation};
use std::sync::LazyLock;

/// Mean and standard error of each coordinate.
struct Estimate {
    mean: Vec<f64>,
    error: Vec<f64>,
}

impl Estimate {
    /// From independent estimates of the same gradient.
    fn of(estimates: &[Vec<f64>]) -> Self {
        let n = estimates.len() as f64;
        let coordinates = 0..estimates[0].len();
        let mean: Vec<f64> = coordinates.map(|i| estimates.iter().map(|g| g[i]).sum::<f64>() / n).collect();
        let variance =
            |(i, mean): (usize, &f64)| estimates.iter().map(|g| (g[i] - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let error = mean.iter().enumerate().map(|x| (variance(x) / n).sqrt()).collect();
        Estimate { mean, error }
    }

    /// No coordinate beyond 5 standard errors and a mean of z^2 within 0.8..1.25; else what is wrong.
    fn judge(&self, exact: &[f64]) -> Result<String, String> {
        let z: Vec<f64> = (0..exact.len()).map(|i| (self.mean[i] - exact[i]) / self.error[i]).collect();
        let worst = z.iter().fold(0.0f64, |a, z| a.max(z.abs()));
        let mean = z.iter().map(|z| z * z).sum::<f64>() / z.len() as f64;
        let line = format!("{} coordinates, worst |z| {worst:.2}, mean z^2 {mean:.3}", z.len());
        if worst <= 5.0 && (0.8..=1.25).contains(&mean) { Ok(line) } else { Err(line) }
    }
}

/// The gradient that a step from zero moments saw: m = (1 - beta1) g.
fn from_moments(m: &[f32]) -> Vec<f64> {
    m.iter().map(|&m| f64::from(m) / f64::from(1.0 - 0.9f32)).collect()
}

const SIGMA: f32 = 0.01;

/// Latent coordinates as (level, index of the value).
fn coordinates(problem: &Problem) -> Vec<(usize, usize)> {
    let levels = problem.state.parameters.levels.iter().enumerate();
    levels.flat_map(|(level, values)| (0..values.len()).map(move |i| (level, i))).collect()
}

struct Exact {
    reference: Reference,
    levels: Vec<Vec<f64>>,
    decoder: Vec<f64>,
    every: Vec<usize>,
}

impl Exact {
    fn new(problem: &Problem) -> Self {
        let parameters = &problem.state.parameters;
        Exact {
            reference: Reference::new(problem),
            levels: parameters.levels.iter().map(|values| to_f64(values)).collect(),
            decoder: to_f64(&parameters.decoder),
            every: (0..problem.structure.texels()).collect(),
        }
    }

    fn latent_gradient(&mut self, at: (usize, usize)) -> f64 {
        const H: f64 = 1e-4;
        let mut loss = |by: f64| {
            let kept = self.levels[at.0][at.1];
            self.levels[at.0][at.1] += by;
            let loss = self.reference.loss_f64(&self.levels, &self.decoder, &self.every);
            self.levels[at.0][at.1] = kept;
            loss
        };
        (loss(H) - loss(-H)) / (2.0 * H)
    }

    /// sigma^2/2 d/dz_at of the Laplacian, texel by texel over the latents that each reads.
    fn latent_bias(&mut self, at: (usize, usize)) -> f64 {
        const H: f64 = 1e-2;
        let channels: Vec<usize> = self.reference.structure.levels.iter().map(|l| l.channels).collect();
        let mut sum = 0.0;
        for texel in self.every.clone() {
            let latents = (0..channels.len()).flat_map(|level| {
                let read = self.reference.credited(level, texel).into_iter();
                let of = channels[level];
                read.flat_map(move |(latent, _)| (0..of).map(move |c| (level, latent * of + c)))
            });
            let latents: Vec<_> = latents.collect();
            if !latents.contains(&at) {
                continue;
            }
            for &other in &latents {
                for (sign, second) in [1.0, -1.0].into_iter().flat_map(|a| [(a, 1.0), (a, 0.0), (a, -1.0)]) {
                    let mut levels = self.levels.clone();
                    levels[at.0][at.1] += sign * H;
                    levels[other.0][other.1] += second * H;
                    let factor = if second == 0.0 { -2.0 } else { 1.0 };
                    sum += sign * factor * self.reference.texel_loss_f64(&levels, &self.decoder, texel);
                }
            }
        }
        f64::from(SIGMA).powi(2) / 2.0 * sum / (2.0 * H.powi(3)) / self.every.len() as f64
    }
}

/// A problem with its exact gradient and, at every 23rd coordinate, the smoothing bias: made once for all backends.
struct Judged {
    problem: Problem,
    gradient: Vec<f64>,
    bias: Vec<(usize, f64)>,
}

static LATENT: LazyLock<Vec<Judged>> = LazyLock::new(|| {
    let judged = |problem: Problem| {
        let places = coordinates(&problem);
        let mut exact = Exact::new(&problem);
        let gradient = places.iter().map(|&at| exact.latent_gradient(at)).collect();
        let bias = (0..places.len()).step_by(23).map(|k| (k, exact.latent_bias(places[k]))).collect();
        Judged { problem, gradient, bias }
    };
    latent_problems().into_iter().map(judged).collect()
});

fn latent_problems() -> Vec<Problem> {
    let cases = [
        case("bilinear", (24, 18)).level0((12, 9, 2), Bilinear),
        case("nearest", (24, 18)).level0((12, 9, 2), Nearest),
        case("two levels", (24, 18)).level0((8, 6, 2), Bilinear).level1((6, 6, 3), Nearest),
        case("deblocked", (24, 18)).level0((8, 6, 2), Nearest).level1((9, 6, 2), Bilinear).deblock(1.0),
        case("finer than the image", (12, 9)).level0((14, 7, 1), Bilinear).level1((10, 10, 1), Bilinear),
    ];
    cases.into_iter().map(|case| case.hidden(&[5], Tanh).textures(&[2, 1], &[1.0, 2.0]).seed(16).problem()).collect()
}

/// Footprint-attributed latent estimates over bilinear, nearest, two-level and deblocked problems, borders included, with
/// every pair on both levels and with alternating levels.
pub fn latent_estimates_are_unbiased(make: Make) {
    latent_estimates(make, Perturbation::default());
}

/// The same with signs, in phases, and both; phases do without alternating levels.
pub fn other_latent_estimates_are_unbiased(make: Make) {
    for (rademacher, phases) in [(true, false), (false, true), (true, true)] {
        latent_estimates(make, Perturbation { rademacher, phases });
    }
}

/// The gradient by differences of sampled values has no noise: every coordinate is the exact one's.
pub fn latent_differences_are_the_gradient(make: Make) {
    for Judged { problem, gradient, .. } in LATENT.iter().filter(|j| j.problem.structure.deblock.is_none()) {
        let mut backend = make(problem);
        backend.latent_fd(&LatentFd { step: 1, h: 1e-3, rate: 0.0 }).expect("a step");
        let found = from_moments(&backend.state().expect("a state").adam_latents.m);
        let most = gradient.iter().fold(0.0f64, |most, g| most.max(g.abs()));
        for (at, (found, exact)) in coordinates(problem).iter().zip(found.iter().zip(gradient)) {
            assert!((found - exact).abs() < 1e-3 * most, "{}, {at:?}: {found:e} is not {exact:e}", problem.name);
        }
    }
}

fn latent_estimates(make: Make, how: Perturbation) {
    // A sign with nothing else perturbed in its footprint gives the same estimate every time: no variance to judge by.
    let varies = |problem: &Problem| {
        how != Perturbation { rademacher: true, phases: true } || problem.structure.levels[0].channels > 1
    };
    for Judged { problem, gradient, bias } in LATENT.iter().filter(|judged| varies(&judged.problem)) {
        let places = coordinates(problem);
        for alternate in [false, true].into_iter().take(if how.phases { 1 } else { problem.structure.levels.len() }) {
            let mut backend = make(problem);
            backend.perturb(how).expect("perturbations");
            let estimates: Vec<Vec<f64>> = (1..=400)
                .map(|step| {
                    backend.set_state(problem.state.clone()).expect("a state is taken");
                    let step = LatentEs { step, pairs: 8, sigma: [SIGMA; 2], rate: 0.0, alternate };
                    backend.latent_es(&step).expect("a step");
                    from_moments(&backend.state().expect("a state").adam_latents.m)
                })
                .collect();
            // A latent that no texel reads is 0 in every estimate and has no place in the statistics.
            let read: Vec<usize> = (0..places.len()).filter(|&i| estimates.iter().any(|g| g[i] != 0.0)).collect();
            let unread = (0..places.len()).filter(|i| !read.contains(i));
            unread.for_each(|i| assert_eq!(gradient[i], 0.0, "{}: {:?} has a gradient", problem.name, places[i]));
            let pick = |g: &[f64]| read.iter().map(|&i| g[i]).collect::<Vec<_>>();
            let estimate = Estimate::of(&estimates.iter().map(|g| pick(g)).collect::<Vec<_>>());
            let name = format!("{}, {how:?}, alternating {alternate}", problem.name);
            for &(i, bias) in bias {
                let error = read.iter().position(|&k| k == i).map_or(f64::INFINITY, |k| estimate.error[k]);
                assert!(bias.abs() < error / 5.0, "{name}, {:?}: bias {bias:e}, error {error:e}", places[i]);
            }
            match estimate.judge(&pick(gradient)) {
                Ok(line) => println!("{name}: {line}"),
                Err(line) => panic!("{name}: {line}"),
            }
        }
    }
}

/// The decoder's problem with its exact gradient, and the smoothing bias at a few weights.
static DECODER: LazyLock<Judged> = LazyLock::new(|| {
    let problem = case("decoder", (12, 10)).level0((4, 3, 2), Bilinear).hidden(&[12, 8], Tanh).seed(4).problem();
    let exact = Exact::new(&problem);
    let loss = |moves: &[(usize, f64)]| {
        let mut decoder = exact.decoder.clone();
        moves.iter().for_each(|&(i, by)| decoder[i] += by);
        exact.reference.loss_f64(&exact.levels, &decoder, &exact.every)
    };
    let n = exact.decoder.len();
    let gradient: Vec<f64> = (0..n).map(|i| (loss(&[(i, 1e-4)]) - loss(&[(i, -1e-4)])) / 2e-4).collect();
    const H: f64 = 1e-2;
    let bias = |i: usize| {
        let laplacian = |by: f64| -> f64 {
            let centre = loss(&[(i, by)]);
            (0..n).map(|j| loss(&[(i, by), (j, H)]) - 2.0 * centre + loss(&[(i, by), (j, -H)])).sum()
        };
        (i, f64::from(SIGMA).powi(2) / 2.0 * (laplacian(H) - laplacian(-H)) / (2.0 * H.powi(3)))
    };
    let bias = (0..n).step_by(n / 4).map(bias).collect();
    Judged { problem, gradient, bias }
});

/// Decoder estimates over every texel and over small batches, against the gradient over every texel.
pub fn decoder_estimates_are_unbiased(make: Make) {
    let Judged { problem, gradient, bias } = &*DECODER;
    for batch in [None, Some(50)] {
        let mut backend = make(problem);
        let estimates: Vec<Vec<f64>> = (1..=300)
            .map(|step| {
                backend.set_state(problem.state.clone()).expect("a state is taken");
                let step = DecoderEs { step, pairs: 16, sigma: SIGMA, rate: 0.0, batch };
                backend.decoder_es(&step).expect("a step");
                from_moments(&backend.state().expect("a state").adam_decoder.m)
            })
            .collect();
        let estimate = Estimate::of(&estimates);
        for &(i, bias) in bias {
            assert!(bias.abs() < estimate.error[i] / 5.0, "weight {i}: bias {bias:e}, error {:e}", estimate.error[i]);
        }
        match estimate.judge(gradient) {
            Ok(line) => println!("{}, batch {batch:?}: {line}", problem.name),
            Err(line) => panic!("{}, batch {batch:?}: {line}", problem.name),
        }
        if batch.is_none() {
            let scaled = Estimate { mean: estimate.mean.iter().map(|g| 1.2 * g).collect(), ..estimate };
            let line = scaled.judge(gradient).expect_err("an estimate a fifth too large must fail");
            println!("{}, a fifth too large: {line}", problem.name);
        }
    }
}

/// The same test with the attribution deliberately wrong fails: credit times the tap weight, and a clamped border texel
/// credited twice. With the right one, from the same code, it passes.
#[test]
fn wrong_attributions_are_found_out() {
    let problem = case("attribution", (16, 12)).level0((8, 6, 4), Bilinear).hidden(&[3], Tanh).seed(2).problem();
    let mut exact = Exact::new(&problem);
    let gradient: Vec<f64> = coordinates(&problem).iter().map(|&at| exact.latent_gradient(at)).collect();
    let judged = |attribution| {
        let mut reference = Reference::new(&problem);
        reference.attribution = attribution;
        let step = |step| LatentEs { step, pairs: 8, sigma: [SIGMA; 2], rate: 0.0, alternate: false };
        let estimates: Vec<_> = (1..=250).map(|n| to_f64(&reference.latent_es_gradient(&step(n)).concat())).collect();
        let verdict = Estimate::of(&estimates).judge(&gradient);
        println!("{}, {attribution:?}: {verdict:?}", problem.name);
        verdict
    };
    judged(Attribution::Once).expect("once to every distinct latent texel is unbiased");
    judged(Attribution::TapWeight).expect_err("credit times the tap weight is biased");
    judged(Attribution::EveryTap).expect_err("a clamped border texel credited twice is biased");
}
