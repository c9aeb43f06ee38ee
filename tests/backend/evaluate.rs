//! Decoding and errors.

use crate::problems::{Bilinear, Nearest, Problem, Relu, Tanh, case};
use crate::reference::Reference;
use crate::{Make, assert_bits, problems};
use ntc_es::backend::{Backend, State};
use ntc_es::model::structure::Parameters;

/// The parameters with every value moved a little: what is handed in place of the state.
fn moved(parameters: &Parameters) -> Parameters {
    let mut moved = parameters.clone();
    moved.levels.iter_mut().flatten().chain(&mut moved.decoder).for_each(|x| *x = 0.75 * *x + 0.01);
    moved
}

/// Every plane of every case, of the state and of given parameters, which must leave the state alone.
pub fn decodes_equal_the_reference(make: Make) {
    for problem in problems::all() {
        let (mut backend, mut reference) = (make(&problem), Reference::new(&problem));
        let other = moved(&problem.state.parameters);
        for parameters in [None, Some(&other), None] {
            let what = format!("{}, given {}", problem.name, parameters.is_some());
            let got = backend.decode(parameters).expect(&what);
            let want = reference.decode(parameters).expect(&what);
            assert_eq!(got.len(), want.len(), "{what}: planes");
            for (plane, (got, want)) in got.iter().zip(&want).enumerate() {
                assert_bits(&format!("{what}: plane {plane}"), got, want);
            }
        }
    }
}

/// Every texture's error, from unrounded and from rounded outputs, over the source extent only.
pub fn errors_equal_the_reference(make: Make) {
    for problem in problems::all() {
        let (mut backend, mut reference) = (make(&problem), Reference::new(&problem));
        let other = moved(&problem.state.parameters);
        for parameters in [None, Some(&other)] {
            for round in [false, true] {
                let what = format!("{}, round {round}", problem.name);
                let got = backend.evaluate(parameters, round).expect(&what);
                assert_eq!(got, reference.evaluate(parameters, round).expect(&what), "{what}");
            }
        }
    }
}

/// One unit, one output, no position features, and the parameters w, b of the unit and w, b of the output.
fn tiny(problem: crate::problems::Case, levels: Vec<Vec<f32>>, decoder: [f32; 4]) -> Problem {
    let mut problem = problem.position("none").hidden(&[1], Relu).textures(&[1], &[]).clamp().problem();
    problem.state = State::new(Parameters { levels, decoder: decoder.to_vec() });
    problem
}

/// Values small enough to be exact: 1x1, bilinear borders, nearest cells and the deblocking filter.
pub fn decodes_worked_by_hand(make: Make) {
    // Unit: 2 * 0.5 - 0.25 = 0.75. Output: 0.5 * 0.75 - 0.125 = 0.25, clamped around one half: 0.75.
    let one = tiny(case("one texel", (1, 1)).level0((1, 1, 1), Nearest), vec![vec![0.5]], [2.0, -0.25, 0.5, -0.125]);
    assert_eq!(make(&one).decode(None).expect("a decode"), [[0.75]]);
    // Unit below zero: relu gives 0, the output is 1/2 plus its bias.
    let off = tiny(case("off", (1, 1)).level0((1, 1, 1), Nearest), vec![vec![-0.5]], [2.0, -0.25, 0.5, -0.125]);
    assert_eq!(make(&off).decode(None).expect("a decode"), [[0.375]]);
    // Four texels on two: 1, 3/4 + 1/4 * 0, ... of z = (1, 0) are 1, 0.75, 0.25, 0; the output is z - 1/2 + 1/2.
    let ramp = tiny(case("ramp", (4, 1)).level0((2, 1, 1), Bilinear), vec![vec![1.0, 0.0]], [1.0, 0.0, 1.0, -0.5]);
    assert_eq!(make(&ramp).decode(None).expect("a decode"), [[1.0, 0.75, 0.25, 0.0]]);
    // Down a column, the same.
    let down = tiny(case("column", (1, 4)).level0((1, 2, 1), Bilinear), vec![vec![1.0, 0.0]], [1.0, 0.0, 1.0, -0.5]);
    assert_eq!(make(&down).decode(None).expect("a decode"), [[1.0, 0.75, 0.25, 0.0]]);
    // Two nearest cells of 2x2, 0.25 and 1, deblocked with weight 1 everywhere: along y nothing changes, along x texel 1
    // becomes (0.25 + 0.25 + 1) / 3 = 0.5, texel 2 (0.25 + 1 + 1) / 3 = 0.75; the mean with the unchanged vertical
    // result gives 0.375 and 0.875. Outer texels read themselves again at the border.
    let cells = case("two cells", (4, 2)).level0((2, 1, 1), Nearest).deblock(1.0);
    let cells = tiny(cells, vec![vec![0.25, 1.0]], [1.0, 0.0, 1.0, -0.5]);
    let row = [0.25, 0.375, 0.875, 1.0];
    assert_eq!(make(&cells).decode(None).expect("a decode"), [[row, row].concat()]);
    // Two levels: level 1's weight stands behind level 0's: 0.5 * 1 + 0.25 * 2 = 1, minus 1/2 and plus 1/2.
    let both = case("two levels", (1, 1)).level0((1, 1, 1), Nearest).level1((1, 1, 1), Bilinear);
    let mut both = both.position("none").hidden(&[1], Relu).textures(&[1], &[]).clamp().problem();
    both.state =
        State::new(Parameters { levels: vec![vec![1.0], vec![2.0]], decoder: vec![0.5, 0.125, 0.0, 1.0, -0.5] });
    assert_eq!(make(&both).decode(None).expect("a decode"), [[0.75]]);
}

/// Bilinear weights sum to 1 at every border: equal latents decode to equal texels, up to the rounding of four weights.
pub fn a_constant_grid_decodes_to_a_constant(make: Make) {
    for (size, grid) in [((1, 1), (1, 1)), ((7, 5), (3, 2)), ((65, 3), (64, 5)), ((12, 9), (1, 1)), ((3, 2), (10, 9))] {
        for deblock in [false, true] {
            let case = case("constant", size).level0((grid.0, grid.1, 2), Bilinear).position("none");
            let case = case.level1((grid.1, grid.0, 1), Bilinear).hidden(&[4], Tanh);
            let mut problem = if deblock { case.deblock(1.0) } else { case }.problem();
            for (level, values) in problem.state.parameters.levels.iter_mut().enumerate() {
                let channels = problem.structure.levels[level].channels;
                values.iter_mut().enumerate().for_each(|(i, z)| *z = [0.7, -0.4][i % channels]);
            }
            for plane in make(&problem).decode(None).expect("a decode") {
                let off = plane.iter().position(|x| (x - plane[0]).abs() > 1e-6);
                assert_eq!(off, None, "{size:?} on {grid:?}: {plane:?}");
            }
        }
    }
}
