//! Where random numbers come from: counter-based by default, the reference's generator for comparison.
pub mod hash;
pub mod mersenne;
