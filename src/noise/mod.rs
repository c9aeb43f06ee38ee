//! Where random numbers come from: counter-based by default, the reference's generator for comparison.

pub mod hash;
pub mod mersenne;

use crate::model::structure::Rng;
use hash::HashNoise;
use mersenne::Mersenne;

/// The noise source of a run.
#[derive(Clone, Debug)]
pub enum Noise {
    /// Counter-based: every number is a function of the seed and its place.
    Hash(HashNoise),
    /// One stream of numbers in the reference's drawing order.
    Mersenne(Mersenne),
}

impl Noise {
    /// The source `rng` with `seed`; the Mersenne twister takes its low 32 bits.
    pub fn new(rng: Rng, seed: u64) -> Self {
        match rng {
            Rng::Hash => Noise::Hash(HashNoise::new(seed)),
            Rng::Mt => Noise::Mersenne(Mersenne::new(seed as u32)),
        }
    }
}
