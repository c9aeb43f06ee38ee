//! Several verbs in a row: whole iterations, independence of levels, threads and bands, and states that break.

use crate::problems::{Bilinear, Problem, case};
use crate::reference::Reference;
use crate::{Make, assert_same_state, cpu, problems};
use ntc_es::backend::cpu::CpuOptions;
use ntc_es::backend::simd::SimdLevel;
use ntc_es::backend::{Backend, DecoderEs, DecoderFd, LatentEs};
use ntc_es::error::{Error, Result};

/// One iteration of everything: ES, FD, latents (alternating in every second), selectors.
fn iterate(backend: &mut dyn Backend, problem: &Problem, step: u32) -> Result<()> {
    backend.decoder_es(&DecoderEs { step, pairs: 2, sigma: 0.02, rate: 0.01, batch: Some(65) })?;
    // A Mersenne run goes on drawing; a counter must not give the batch of the ES step again.
    backend.decoder_fd(&DecoderFd { step: step + 1000, h: 1e-3, rate: 0.005, batch: Some(33) })?;
    let alternate = step.is_multiple_of(2);
    backend.latent_es(&LatentEs { step, pairs: 3, sigma: [0.05, 0.04], rate: 0.02, alternate })?;
    if problem.selects() {
        backend.search_selectors(false)?;
    }
    Ok(())
}

/// Problems for runs: one of each kind, so that a run over all of them stays short.
fn chosen() -> Vec<Problem> {
    let names = ["1x1", "33x7", "129 wide", "mixed", "finer", "eight", "nearly", "padded", "deblock", "selectors"];
    let small = |p: &Problem| p.structure.texels() * p.state.parameters.decoder.len() < 60_000;
    problems::all().into_iter().filter(|p| small(p) && names.iter().any(|name| p.name.starts_with(name))).collect()
}

/// Three iterations of everything.
pub fn runs_equal_the_reference(make: Make) {
    let chosen = chosen();
    assert!(chosen.len() >= 12, "{} problems", chosen.len());
    for problem in chosen {
        let (mut backend, mut reference) = (make(&problem), Reference::new(&problem));
        for step in 1..=3 {
            iterate(&mut *backend, &problem, step).expect(&problem.name);
            iterate(&mut reference, &problem, step).expect(&problem.name);
        }
        assert_same_state(&problem.name, &*backend, &reference);
    }
}

/// A state taken after two iterations and put into a fresh backend goes on to the same bits, the twister's included.
pub fn a_state_goes_on_elsewhere(make: Make) {
    for problem in chosen() {
        let mut whole = make(&problem);
        for step in 1..=2 {
            iterate(&mut *whole, &problem, step).expect(&problem.name);
        }
        let mut resumed = make(&problem);
        resumed.set_state(whole.state().expect("a state")).expect("a state is taken");
        for step in 3..=4 {
            iterate(&mut *whole, &problem, step).expect(&problem.name);
            iterate(&mut *resumed, &problem, step).expect(&problem.name);
        }
        assert_same_state(&problem.name, &*resumed, &*whole);
    }
}

/// A learning rate or a step far too large ends in one line that names the iteration, the flag and what broke.
pub fn states_that_are_no_longer_finite_are_errors(make: Make) {
    let problem = case("diverging", (9, 6)).level0((3, 2, 2), Bilinear).level1((2, 2, 1), Bilinear).problem();
    type Step = fn(&mut dyn Backend, u32, f32) -> Result<()>;
    let es: Step =
        |b, step, rate| b.decoder_es(&DecoderEs { step, pairs: 2, sigma: 0.02, rate, batch: Some(20) }).map(|_| ());
    let fd: Step = |b, step, rate| b.decoder_fd(&DecoderFd { step, h: 1e-3, rate, batch: None }).map(|_| ());
    let latents: Step =
        |b, step, rate| b.latent_es(&LatentEs { step, pairs: 2, sigma: [0.05; 2], rate, alternate: false });
    for (name, verb, flag) in [("es", es, "--mlp-lr"), ("fd", fd, "--mlp-lr"), ("latents", latents, "--lat-lr")] {
        for rate in [3e38, f32::INFINITY, f32::NAN] {
            let mut backend = make(&problem);
            let ended = (1..=20).find_map(|step| verb(&mut *backend, step, rate).err().map(|e| (step, e)));
            let Some((step, Error::State(message))) = ended else { panic!("{name}, rate {rate}: {ended:?}") };
            assert!(message.contains(&format!("iteration {step};")), "{name}: {message}");
            assert!(message.contains(flag) && !message.contains('\n'), "{name}: {message}");
        }
    }
    // Weights that are broken before a step: evaluations go on, and the next step says so.
    let mut backend = make(&problem);
    let mut state = backend.state().expect("a state");
    state.parameters.decoder[0] = f32::NAN;
    backend.set_state(state).expect("a state is taken");
    assert!(backend.evaluate(None, true).expect("errors").iter().all(|e| *e > 0.0));
    backend.decode(None).expect("a decode");
    assert!(matches!(es(&mut *backend, 7, 0.01), Err(Error::State(m)) if m.contains("iteration 7")));
}

/// Every level, 1, 2 and 7 threads, bands of 1, 3, 16 and 1000 rows: the same bits after three iterations, and the same
/// decode.
#[test]
fn levels_threads_and_bands_do_not_change_a_bit() {
    let levels = SimdLevel::all();
    println!("levels: {:?}", levels.iter().map(|l| l.name()).collect::<Vec<_>>());
    let run = |problem: &Problem, options: CpuOptions| {
        let mut backend = cpu(problem, options);
        for step in 1..=3 {
            iterate(&mut *backend, problem, step).expect(&problem.name);
        }
        let planes = backend.decode(None).expect("a decode");
        let errors = [false, true].map(|round| backend.evaluate(None, round).expect("errors"));
        (backend, planes, errors)
    };
    for problem in problems::all() {
        let want = run(&problem, CpuOptions { level: levels[0], threads: 1, band_rows: 1000 });
        for (k, &level) in levels.iter().enumerate() {
            for (t, threads) in [1, 2, 7].into_iter().enumerate() {
                for (b, band_rows) in [1, 3, 16, 1000].into_iter().enumerate() {
                    // A Latin square: every pair of a level, a thread count and a band size occurs.
                    if (k + t + b) % 3 != 0 && band_rows != 1 {
                        continue;
                    }
                    let got = run(&problem, CpuOptions { level, threads, band_rows });
                    let what = format!("{}, {} {threads} threads bands of {band_rows}", problem.name, level.name());
                    assert_same_state(&what, &*got.0, &*want.0);
                    assert_eq!((&got.1, &got.2), (&want.1, &want.2), "{what}");
                }
            }
        }
    }
}
