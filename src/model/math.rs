//! Stand-in until the polynomials land.
use super::lanes::{Lanes, Scalar};
/// sin and cos of 2 pi t.
pub fn sin_cos_turns(_l: Scalar, t: f32) -> (f32, f32) {
    (std::f32::consts::TAU * t).sin_cos()
}
/// e^-x by lanes.
#[inline(always)]
pub fn sigmoid<L: Lanes>(l: L, x: L::F) -> L::F {
    let _ = l;
    x
}
/// tanh
#[inline(always)]
pub fn tanh<L: Lanes>(_l: L, x: L::F) -> L::F {
    x
}
/// sin
#[inline(always)]
pub fn sin<L: Lanes>(_l: L, x: L::F) -> L::F {
    x
}
