//! Random numbers for the CPU backend's steps, in parallel where the source allows it.

use crate::backend::Perturbation;
use crate::backend::simd::SimdLevel;
use crate::model::structure::Level;
use crate::noise::Noise;
use crate::noise::hash::{Stream, fill_indices, fill_normals};
use crate::noise::mersenne::PolarNormal;
use crate::with_level;
use rayon::prelude::*;

/// Numbers that a task fills at once.
const PART: usize = 1 << 14;

/// The draws of one step. Under `--rng mt` their order is the reference's (SPEC section 5).
pub struct Draws<'a> {
    noise: &'a mut Noise,
    level: SimdLevel,
    step: u32,
    perturbation: Perturbation,
    /// One normal distribution for all pairs of a latent step.
    normal: PolarNormal,
}

impl<'a> Draws<'a> {
    /// The draws of iteration `step`.
    pub fn new(noise: &'a mut Noise, level: SimdLevel, step: u32, perturbation: Perturbation) -> Self {
        Draws { noise, level, step, perturbation, normal: PolarNormal::default() }
    }

    /// Perturbations for a decoder step: `parameters` for each pair, pair by pair.
    pub fn decoder(&mut self, parameters: usize, out: &mut [f32]) {
        self.decoder_normals(parameters, out);
        if self.perturbation.rademacher {
            out.par_chunks_mut(PART).for_each(signs);
        }
    }

    fn decoder_normals(&mut self, parameters: usize, out: &mut [f32]) {
        match self.noise {
            Noise::Mersenne(mersenne) => mersenne.fill_normals(out),
            Noise::Hash(hash) => {
                let (level, step, key) = (self.level, self.step, hash.key);
                out.par_chunks_mut(parameters).enumerate().for_each(|(pair, out)| {
                    with_level!(level, l => fill_normals(l, key, Stream::DecoderEs, step, pair as u32, 0, out));
                });
            }
        }
    }

    /// Raster indices below `texels` for a minibatch.
    pub fn texels(&mut self, texels: u32, out: &mut [u32]) {
        match self.noise {
            Noise::Mersenne(mersenne) => out.iter_mut().for_each(|i| *i = mersenne.below(texels)),
            Noise::Hash(hash) => {
                let (step, key) = (self.step, hash.key);
                with_level!(self.level, l => {
                    let _ = l;
                    fill_indices(key, Stream::Batch, step, texels, 0, out)
                });
            }
        }
    }

    /// Perturbations for one latent pair, one slice a level of `shapes`; a level that the pair leaves alone is empty. With
    /// the counter each level has its own range of indices.
    pub fn latents(&mut self, pair: u32, shapes: &[Level], levels: &mut [Vec<f32>]) {
        let sizes: Vec<usize> = shapes.iter().map(Level::values).collect();
        self.latent_normals(pair, &sizes, levels);
        for (values, shape) in levels.iter_mut().zip(shapes) {
            if self.perturbation.rademacher {
                values.par_chunks_mut(PART).for_each(signs);
            }
            if self.perturbation.phases {
                let texels = values.par_chunks_exact_mut(shape.channels).enumerate();
                texels
                    .filter(|(t, _)| phase(t % shape.width, t / shape.width) != pair % 4)
                    .for_each(|(_, e)| e.fill(0.0));
            }
        }
    }

    fn latent_normals(&mut self, pair: u32, sizes: &[usize], levels: &mut [Vec<f32>]) {
        match self.noise {
            Noise::Mersenne(mersenne) => {
                levels.iter_mut().flatten().for_each(|e| *e = self.normal.sample(mersenne));
            }
            Noise::Hash(hash) => {
                let (level, step, key) = (self.level, self.step, hash.key);
                let mut first = 0;
                for (out, size) in levels.iter_mut().zip(sizes) {
                    out.par_chunks_mut(PART).enumerate().for_each(|(part, out)| {
                        let start = first + part * PART;
                        with_level!(level, l => fill_normals(l, key, Stream::LatentEs, step, pair, start, out));
                    });
                    first += size;
                }
            }
        }
    }
}

/// Normal numbers to their signs; 0 counts as positive.
fn signs(values: &mut [f32]) {
    values.iter_mut().for_each(|e| *e = if *e < 0.0 { -1.0 } else { 1.0 });
}

/// Phase of a latent texel among 2 x 2: footprints of one phase do not meet on a level with cells of two texels or more.
fn phase(x: usize, y: usize) -> u32 {
    (x % 2 + 2 * (y % 2)) as u32
}
