//! Where the steps run.
pub mod simd;
