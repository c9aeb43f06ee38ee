//! Decoder steps by evolution strategies.

use crate::reference::Reference;
use crate::{Make, assert_near, assert_same_state, problems};
use ntc_es::backend::{Backend, DecoderEs};

/// Batches around a strip of 64, and every texel.
pub const BATCHES: [Option<usize>; 5] = [Some(1), Some(63), Some(64), Some(65), None];

/// Five steps in a row over every batch size: parameters, moments and noise state after each, and what the step reports.
pub fn steps_equal_the_reference(make: Make) {
    for problem in problems::all() {
        let (mut backend, mut reference) = (make(&problem), Reference::new(&problem));
        for (k, batch) in BATCHES.into_iter().enumerate() {
            let step = DecoderEs { step: k as u32 + 1, pairs: k % 3 + 1, sigma: 0.02, rate: 0.01, batch };
            let what = format!("{}, {step:?}", problem.name);
            let got = backend.decoder_es(&step).expect(&what);
            let want = reference.decoder_es(&step).expect(&what);
            assert_same_state(&what, &*backend, &reference);
            assert_near(&format!("{what}: loss"), got.loss, want.loss);
            assert_near(&format!("{what}: spread"), got.statistic, want.statistic);
        }
        backend.reset_decoder_adam().expect("a reset");
        reference.reset_decoder_adam().expect("a reset");
        assert_same_state(&format!("{}, reset", problem.name), &*backend, &reference);
    }
}
