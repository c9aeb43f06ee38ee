//! What each training step computes, as pure functions over slices: no loop over iterations, no state of a run, no threads.

pub mod adam;
pub mod decoder_es;
pub mod decoder_fd;
pub mod gauss_newton;
pub mod latent_es;
pub mod minibatch;
pub mod selector_search;
