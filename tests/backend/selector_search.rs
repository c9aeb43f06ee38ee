//! Exhaustive search of level 0's selectors.

use crate::problems::{Nearest, Problem, Tanh, case};
use crate::reference::Reference;
use crate::{Make, assert_bits, assert_same_state, problems};
use ntc_es::backend::Backend;
use ntc_es::model::quant::MOST_JOINT_BITS;

fn selecting() -> Vec<Problem> {
    problems::all().into_iter().filter(Problem::selects).collect()
}

/// Two searches in a row against every candidate evaluated whole.
pub fn searches_equal_brute_force(make: Make) {
    let mut searched = 0;
    for (problem, joint) in selecting().into_iter().flat_map(|problem| [(problem.clone(), false), (problem, true)]) {
        if joint && problem.structure.levels[0].selector_bits.iter().sum::<u32>() > MOST_JOINT_BITS {
            continue;
        }
        let (mut backend, mut reference) = (make(&problem), Reference::new(&problem));
        for pass in 1..=2 {
            let got = backend.search_selectors(joint).expect("a search");
            let want = reference.search_selectors(joint).expect("a search");
            assert_eq!(got, want, "{}, joint {joint}, pass {pass}: values changed", problem.name);
            searched += usize::from(got > 0);
            assert_same_state(&format!("{}, joint {joint}, pass {pass}", problem.name), &*backend, &reference);
        }
    }
    assert!(searched >= 6, "{searched} searches changed a value");
}

/// From the same start a joint search ends at most where a sequential one does, and somewhere below it.
pub fn a_joint_search_is_never_worse(make: Make) {
    let mut better = 0;
    for seed in 1..=20 {
        let case = case("joint", (12, 8)).selectors((6, 4), &[2, 1, 2]).level1((3, 2, 2), Nearest);
        let problem = case.hidden(&[5, 4], Tanh).textures(&[3], &[1.0]).seed(seed).problem();
        let reference = Reference::new(&problem);
        let loss = |joint: bool| {
            let mut backend = make(&problem);
            backend.search_selectors(joint).expect("a search");
            reference.total_loss(&backend.state().expect("a state").parameters)
        };
        let (joint, sequential) = (loss(true), loss(false));
        assert!(joint <= sequential, "seed {seed}: {joint} is more than {sequential}");
        better += usize::from(joint < sequential);
    }
    assert!(better > 10, "{better} of 20 joint searches were better");
}

/// The integer loss over all texels falls, or stays where nothing changed; with one channel a second pass changes nothing.
pub fn a_search_never_raises_the_loss(make: Make) {
    let more = (1..=40).map(|seed| {
        let depths: &[u32] = [&[3][..], &[2, 2], &[1, 3, 1]][seed as usize % 3];
        let case = case("searched", (12, 8)).selectors((6, 4), depths).level1((3, 2, 2), Nearest);
        case.hidden(&[5, 4], Tanh).textures(&[3, 1], &[1.0, 0.5]).seed(seed).problem()
    });
    for problem in selecting().into_iter().chain(more) {
        let reference = Reference::new(&problem);
        let mut backend = make(&problem);
        let mut before = reference.total_loss(&problem.state.parameters);
        for pass in 1..=3 {
            let changed = backend.search_selectors(false).expect("a search");
            let after = reference.total_loss(&backend.state().expect("a state").parameters);
            assert!(after <= before, "{}, pass {pass}: {before} rose to {after}", problem.name);
            assert!((after < before) == (changed > 0), "{}: {changed} changes, {before} to {after}", problem.name);
            let one = problem.structure.levels[0].channels == 1;
            assert!(pass == 1 || !one || changed == 0, "{}: {changed} changes in pass {pass}", problem.name);
            before = after;
        }
    }
}

/// Where no candidate is better the current value stays, whatever its number: a decoder that ignores the selectors, and one
/// whose clamped outputs are all 0 or 1.
pub fn ties_keep_the_current_value(make: Make) {
    let base = case("ties", (12, 8)).selectors((6, 4), &[2, 3]).clamp().seed(5).problem();
    let network = base.geometry().network;
    let (first, last) = (network.layers[0], network.layers[network.layers.len() - 1]);
    let mut ignoring = base.clone();
    for unit in 0..first.outputs {
        // Level 0's channels are the first parameter columns.
        ignoring.state.parameters.decoder[first.weights + unit * first.inputs..][..2].fill(0.0);
    }
    let mut saturated = base.clone();
    for (o, bias) in saturated.state.parameters.decoder[last.biases..][..last.outputs].iter_mut().enumerate() {
        *bias = if o % 2 == 0 { 100.0 } else { -100.0 };
    }
    let mut unweighted = base;
    unweighted.target.iter_mut().for_each(|plane| plane.fill(f32::NAN));
    for (name, problem) in [("ignored", ignoring), ("saturated", saturated), ("all losses NaN", unweighted)] {
        let mut backend = make(&problem);
        assert_eq!(backend.search_selectors(false).expect("a search"), 0, "{name}");
        let levels = backend.state().expect("a state").parameters.levels;
        assert_bits(name, &levels[0], &problem.state.parameters.levels[0]);
    }
}
