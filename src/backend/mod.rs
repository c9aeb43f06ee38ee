//! Where the steps run: the trainer's verbs as a trait, and its implementations.
//!
//! The trait is coarse: a backend holds all state, and populations, candidate images and noise never cross it.

pub mod check;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod simd;

use crate::error::{Error, Result};
use crate::estimate::adam::Adam;
use crate::model::price::Prices;
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
    /// Dampings of Gauss-Newton steps.
    pub dampings: Dampings,
}

/// Dampings that Gauss-Newton steps adapt from one to the next; empty where there was none yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dampings {
    /// Of the decoder.
    pub decoder: Option<f64>,
    /// Of each level, one a latent texel; empty where the level had no step yet.
    pub levels: Vec<Vec<f32>>,
}

impl Dampings {
    /// Takes out those of `level`, one of `levels`; empty where there was none yet.
    pub fn take(&mut self, level: usize, levels: usize) -> Vec<f32> {
        self.levels.resize_with(levels.max(self.levels.len()), Vec::new);
        std::mem::take(&mut self.levels[level])
    }
}

impl State {
    /// Fresh optimiser states around a model.
    pub fn new(parameters: Parameters) -> Self {
        let latents = parameters.levels.iter().map(Vec::len).sum();
        State {
            adam_decoder: Adam::new(parameters.decoder.len()),
            adam_latents: Adam::new(latents),
            mersenne: None,
            dampings: Dampings::default(),
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

/// One latent step along the gradient by central differences of every sampled value.
#[derive(Clone, Copy, Debug)]
pub struct LatentFd {
    /// Iteration.
    pub step: u32,
    /// Bump of a sampled latent.
    pub h: f32,
    /// Learning rate.
    pub rate: f32,
}

/// How the steps by evolution strategies perturb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perturbation {
    /// Signs in place of normal numbers; with one pair that is simultaneous perturbation (SPSA).
    pub rademacher: bool,
    /// Pair p of a latent step perturbs only the latent texels of phase p mod 4 of 2 x 2.
    pub phases: bool,
}

/// Which values the steps by evolution strategies and finite differences see as they are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Bits of the grid of each level; `None` = free.
    pub grid: [Option<u32>; 2],
    /// Bits of decoder weights; `None` = float.
    pub decoder: Option<u32>,
}

/// How a damping moves: it falls after a step that was kept and rises after one that was refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Damping {
    /// First value.
    pub start: f32,
    /// Smallest value.
    pub least: f32,
    /// Largest value.
    pub most: f32,
    /// Factor after a step that was kept.
    pub fall: f32,
    /// Factor after a step that was refused.
    pub rise: f32,
}

impl Damping {
    /// The value after a step that was `kept` or not.
    pub fn next(&self, value: f32, kept: bool) -> f32 {
        (value * if kept { self.fall } else { self.rise }).clamp(self.least, self.most)
    }
}

/// One decoder step by Gauss-Newton.
#[derive(Clone, Copy, Debug)]
pub struct DecoderGn {
    /// Round, the noise's step counter.
    pub step: u32,
    /// Bump of a unit's pre-activation.
    pub h: f32,
    /// Texels drawn with replacement whose normal matrix is made.
    pub batch: usize,
    /// Texels drawn with replacement, those of the matrix among them, that the right-hand side and the loss are from.
    pub right: usize,
    /// Damping per texel.
    pub damping: Damping,
    /// Dampings tried before the step is given up.
    pub tries: usize,
    /// Bits that weights are rounded to, as [`crate::model::quant::round_decoder`] does it; `None` = float.
    pub bits: Option<u32>,
}

/// One latent step by Gauss-Newton, on one level.
#[derive(Clone, Copy, Debug)]
pub struct LatentGn {
    /// Index of the level, which holds no selectors.
    pub level: usize,
    /// Bump of a sampled latent.
    pub h: f32,
    /// Damping of each latent texel.
    pub damping: Damping,
    /// Conjugate-gradient iterations on a bilinear level.
    pub iterations: usize,
    /// Dampings tried on a bilinear level before the step is given up.
    pub tries: usize,
    /// Bits of the grid that values are kept on; `None` = float.
    pub grid: Option<u32>,
}

/// What a latent step or search says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatentReport {
    /// Mean loss over the texels before the step.
    pub before: f64,
    /// The same after it.
    pub after: f64,
    /// Latent texels that changed.
    pub changed: usize,
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
    /// From now on the steps but those of Gauss-Newton see the values as they are stored: evaluations and perturbations
    /// are around the rounded point, and the state beneath keeps moving, latents of a grid within [-1, 1].
    fn see_as_stored(&mut self, seen: Seen) -> Result<()>;
    /// From now on the steps by evolution strategies perturb in this way.
    fn perturb(&mut self, how: Perturbation) -> Result<()> {
        if how == Perturbation::default() {
            return Ok(());
        }
        let flags = "--es-dist rademacher, --lat-phases";
        Err(Error::Backend(format!("{flags}: the {} backend has only normal numbers; use the CPU", self.name())))
    }
    /// From now on searches of selectors and steps and searches on a grid weigh these prices, one a level, with the error;
    /// an empty list takes them away.
    fn price(&mut self, prices: Vec<Option<Prices>>) -> Result<()>;
    /// A latent step by central differences: the transposed taps of the sampled values' gradient, no noise in it.
    fn latent_fd(&mut self, _step: &LatentFd) -> Result<()> {
        Err(Error::Backend(format!("--lat-grad fd: the {} backend has no such step; use the CPU", self.name())))
    }
    /// A decoder step by Gauss-Newton; the report's statistic is the damping after it.
    fn decoder_gn(&mut self, step: &DecoderGn) -> Result<DecoderReport>;
    /// A latent step by Gauss-Newton. No latent texel is kept that raises the loss, on a grid the loss and the price.
    fn latent_gn(&mut self, step: &LatentGn) -> Result<LatentReport>;
    /// Exact coordinate search on the grid of `bits` bits: each channel of each latent texel one step up and down.
    fn search_grid(&mut self, level: usize, bits: u32) -> Result<LatentReport>;
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
