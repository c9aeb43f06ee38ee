//! The optimiser's update of the state, after a step's gradient is known.

use super::{Cpu, not_finite};
use crate::backend::State;
use crate::backend::simd::SimdLevel;
use crate::error::Result;
use crate::estimate::adam::{self, StepFactors};
use crate::with_level;
use rayon::prelude::*;

impl Cpu {
    pub(super) fn step_decoder(&mut self, rate: f32, gradient: &[f32], step: u32) -> Result<()> {
        let State { parameters, adam_decoder, .. } = &mut self.state;
        let factors = adam_decoder.advance(rate);
        let w = &mut parameters.decoder;
        with_level!(self.options.level, l => {
            let _ = l;
            adam::update(factors, w, &mut adam_decoder.m, &mut adam_decoder.v, gradient)
        });
        if !w.iter().all(|w| w.is_finite()) {
            return Err(not_finite("decoder weights", "--mlp-lr", step));
        }
        self.refresh();
        Ok(())
    }

    pub(super) fn step_latents(
        &mut self,
        (rate, step): (f32, u32),
        noisy: &[usize],
        gradient: &[Vec<f32>],
    ) -> Result<()> {
        let level = self.options.level;
        let State { parameters, adam_latents, .. } = &mut self.state;
        let factors = adam_latents.advance(rate);
        let (mut m, mut v) = (adam_latents.m.as_mut_slice(), adam_latents.v.as_mut_slice());
        for (k, values) in parameters.levels.iter_mut().enumerate() {
            let (m_level, m_rest) = m.split_at_mut(values.len());
            let (v_level, v_rest) = v.split_at_mut(values.len());
            (m, v) = (m_rest, v_rest);
            if noisy.contains(&k) {
                let finite = self.pool.install(|| update_level(level, factors, values, m_level, v_level, &gradient[k]));
                if !finite {
                    return Err(not_finite("latents", "--lat-lr", step));
                }
                if self.seen.grid[k].is_some() {
                    values.iter_mut().for_each(|z| *z = z.clamp(-1.0, 1.0));
                }
            }
        }
        self.refresh();
        Ok(())
    }
}

/// Adam on one level; whether every value stayed finite.
fn update_level(
    level: SimdLevel,
    factors: StepFactors,
    w: &mut [f32],
    m: &mut [f32],
    v: &mut [f32],
    g: &[f32],
) -> bool {
    const PART: usize = 1 << 14;
    let parts = w.par_chunks_mut(PART).zip(m.par_chunks_mut(PART)).zip(v.par_chunks_mut(PART)).zip(g.par_chunks(PART));
    parts
        .map(|(((w, m), v), g)| {
            with_level!(level, l => {
                let _ = l;
                adam::update(factors, w, m, v, g);
                w.iter().all(|w| w.is_finite())
            })
        })
        .reduce(|| true, |a, b| a & b)
}
