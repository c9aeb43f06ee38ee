//! Gauss-Newton steps made of differences of decoder outputs: no formula is differentiated (METHOD, "Gauss-Newton").
//!
//! Outputs respond to a small bump of one quantity almost linearly; the bumps' responses are the columns of J, and a step
//! solves (J^T J + damping) d = J^T r for the residual r = output - target, both scaled by the root of the loss weights.

pub mod decoder;
pub mod latent;
pub mod solve;
