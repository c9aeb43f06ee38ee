//! Where the steps run: the trainer's verbs as a trait, and its implementations.
//!
//! The trait is coarse: a backend holds all state, and populations, candidate images and noise never cross it.

pub mod check;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod simd;

use crate::error::Result;
use crate::estimate::adam::Adam;
use crate::model::structure::Parameters;

/// Everything that a run changes from iteration to iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The model's values.
    pub parameters: Parameters,
    /// Adam's moments for the decoder.
    pub adam_decoder: Adam,
    /// Adam's moments for the latents of all levels, one after the other.
    pub adam_latents: Adam,
    /// The Mersenne twister's state under `--rng mt`.
    pub mersenne: Option<Vec<u32>>,
}

impl State {
    /// Fresh optimiser states around a model.
    pub fn new(parameters: Parameters) -> Self {
        let latents = parameters.levels.iter().map(Vec::len).sum();
        State {
            adam_decoder: Adam::new(parameters.decoder.len()),
            adam_latents: Adam::new(latents),
            mersenne: None,
            parameters,
        }
    }
}

/// One decoder step by evolution strategies.
#[derive(Clone, Copy, Debug)]
pub struct DecoderEs {
    /// Iteration, the noise's step counter.
    pub step: u32,
    /// Antithetic pairs.
    pub pairs: usize,
    /// Perturbation of each weight.
    pub sigma: f32,
    /// Learning rate.
    pub rate: f32,
    /// Texels drawn with replacement; `None` = every texel.
    pub batch: Option<usize>,
}

/// One decoder step by central differences.
#[derive(Clone, Copy, Debug)]
pub struct DecoderFd {
    /// Iteration, the noise's step counter.
    pub step: u32,
    /// Half the distance between the two evaluations of a weight.
    pub h: f32,
    /// Learning rate.
    pub rate: f32,
    /// Texels drawn with replacement; `None` = every texel.
    pub batch: Option<usize>,
}

/// One latent step by evolution strategies.
#[derive(Clone, Copy, Debug)]
pub struct LatentEs {
    /// Iteration, the noise's step counter.
    pub step: u32,
    /// Antithetic pairs.
    pub pairs: usize,
    /// Perturbation of each level.
    pub sigma: [f32; 2],
    /// Learning rate.
    pub rate: f32,
    /// Each pair perturbs one level in turn.
    pub alternate: bool,
}

/// What a decoder step says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecoderReport {
    /// Mean loss over the texels and perturbations used.
    pub loss: f64,
    /// ES: standard deviation of the pairs' differences; FD: root mean square of the gradient.
    pub statistic: f64,
}

/// What the trainer asks of a machine. Every verb works on the state that the backend holds.
pub trait Backend {
    /// Name for records, e.g. `cpu`.
    fn name(&self) -> &'static str;
    /// Instruction level or device for records.
    fn device(&self) -> String;
    /// A decoder step by evolution strategies.
    fn decoder_es(&mut self, step: &DecoderEs) -> Result<DecoderReport>;
    /// A decoder step by central differences.
    fn decoder_fd(&mut self, step: &DecoderFd) -> Result<DecoderReport>;
    /// Zeroes the decoder's Adam state.
    fn reset_decoder_adam(&mut self) -> Result<()>;
    /// A latent step by evolution strategies.
    fn latent_es(&mut self, step: &LatentEs) -> Result<()>;
    /// One pass of selector search over level 0, channel by channel or jointly; how many values changed.
    fn search_selectors(&mut self, joint: bool) -> Result<usize>;
    /// Mean squared error of each texture over the source extent, unweighted. `parameters` takes the place of the
    /// state; `round` measures the decode rounded to the textures' depths, as a file holds it.
    fn evaluate(&mut self, parameters: Option<&Parameters>, round: bool) -> Result<Vec<f64>>;
    /// The decode: one plane of the padded extent an output, unrounded.
    fn decode(&mut self, parameters: Option<&Parameters>) -> Result<Vec<Vec<f32>>>;
    /// A copy of the state.
    fn state(&self) -> Result<State>;
    /// Replaces the state.
    fn set_state(&mut self, state: State) -> Result<()>;
}
