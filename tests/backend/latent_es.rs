//! Latent steps by evolution strategies.

use crate::problems::{Bilinear, Nearest, case};
use crate::reference::Reference;
use crate::{Make, assert_bits, assert_same_state, problems};
use ntc_es::backend::{Backend, LatentEs};

/// Steps of 1 to 6 pairs, with and without alternating levels: parameters, moments and noise state after each.
pub fn steps_equal_the_reference(make: Make) {
    for problem in problems::all() {
        let (mut backend, mut reference) = (make(&problem), Reference::new(&problem));
        for (k, (pairs, alternate)) in [(6, false), (3, true), (1, true), (4, false)].into_iter().enumerate() {
            let step = LatentEs { step: k as u32 + 1, pairs, sigma: [0.05, 0.03], rate: 0.02, alternate };
            let what = format!("{}, {step:?}", problem.name);
            backend.latent_es(&step).expect(&what);
            reference.latent_es(&step).expect(&what);
            assert_same_state(&what, &*backend, &reference);
        }
    }
}

/// With alternating levels and fewer pairs than levels, the level without a pair has a zero gradient; Adam still steps.
pub fn a_level_that_no_pair_hits_keeps_still(make: Make) {
    let problem = case("two levels", (12, 8)).level0((3, 2, 2), Bilinear).level1((4, 4, 1), Nearest).problem();
    let mut backend = make(&problem);
    for step in [1, 2] {
        let before = backend.state().expect("a state");
        let step = LatentEs { step, pairs: 1, sigma: [0.05; 2], rate: 0.02, alternate: true };
        backend.latent_es(&step).expect("a step");
        let after = backend.state().expect("a state");
        // Pair 0 of step n perturbs level n mod 2: level 1 first, level 0 next.
        let hit = step.step as usize % 2;
        assert_ne!(before.parameters.levels[hit], after.parameters.levels[hit], "level {hit} moves");
        let first = problem.structure.levels[0].values();
        let (m, other) = match hit {
            0 => ((&before.adam_latents.m[first..], &after.adam_latents.m[first..]), "level 1"),
            _ => ((&before.adam_latents.m[..first], &after.adam_latents.m[..first]), "level 0"),
        };
        let decayed: Vec<f32> = m.0.iter().map(|m| 0.9 * m).collect();
        assert_bits(&format!("{other}: first moments only decay"), m.1, &decayed);
        assert!((after.adam_latents.power1 - before.adam_latents.power1 * f64::from(0.9f32)).abs() < 1e-15);
    }
}
