//! Gauss-Newton steps in terms of what a machine sums over texels: the same host code drives every backend.

use crate::backend::cpu::not_finite;
use crate::backend::{DecoderGn, DecoderReport};
use crate::error::Result;
use crate::estimate::gauss_newton::latent::Elements;
use crate::model::loss::UNIT;
use crate::model::mlp::Layer;
use crate::model::quant::round_decoder;
use faer::linalg::solvers::Solve;
use faer::{Mat, MatRef, Side};
use rayon::prelude::*;

/// The decoder's normal equations: the lower triangle of J^T J, column-major, and J^T r.
pub struct Normal {
    pub matrix: Vec<f64>,
    pub right: Vec<f64>,
    /// Texels that the matrix is from.
    pub texels: usize,
}

/// A level's normal equations and errors at its present values.
pub struct LevelNormal {
    /// Stencils \[latent texel].
    pub blocks: Vec<f32>,
    /// J^T r, \[latent texel]\[channel].
    pub right: Vec<f32>,
    /// Errors of the elements in units of 2^-36.
    pub errors: Vec<i64>,
}

impl LevelNormal {
    /// From the elements' sums, as [`Elements::stride`] says, and errors.
    pub fn assemble(elements: &Elements, sums: &[f32], errors: Vec<i64>) -> Self {
        let ((width, height), c) = (elements.size, elements.channels);
        let mut blocks = vec![0.0; width * height * elements.stencil()];
        let mut right = vec![0.0; width * height * c];
        let rows = blocks.par_chunks_mut(width * elements.stencil()).zip(right.par_chunks_mut(width * c));
        rows.enumerate().for_each(|(y, (blocks, right))| elements.assemble_row(sums, y, blocks, right));
        LevelNormal { blocks, right, errors }
    }
}

/// What a machine sums over texels for the steps. `values` are those of the elements' level; the other level and, for
/// latents, the decoder are the state's. A decoder is in parameter order, and its minibatch is chosen beforehand.
pub trait Machine {
    /// The level's normal equations by bumps of `h`.
    fn level_normal(&mut self, elements: &Elements, values: &[f32], h: f32) -> Result<LevelNormal>;
    /// The elements' errors.
    fn element_errors(&mut self, elements: &Elements, values: &[f32]) -> Result<Vec<i64>>;
    /// The decoder's normal equations.
    fn decoder_normal(&mut self, decoder: &[f32], step: &DecoderGn) -> Result<Normal>;
    /// The loss over the minibatch in units of 2^-36.
    fn batch_loss(&mut self, decoder: &[f32]) -> Result<i64>;
}

/// A decoder after its step; the report's statistic is the damping.
pub struct Stepped {
    pub decoder: Vec<f32>,
    pub report: DecoderReport,
}

/// A decoder's step from `before` with the damping that the last one left.
///
/// # Errors
/// Weights that are not finite, or a machine that failed.
pub fn decoder_step<M: Machine>(
    machine: &mut M,
    layers: &[Layer],
    step: &DecoderGn,
    before: Vec<f32>,
    mu: Option<f64>,
) -> Result<Stepped> {
    let stored = |w: Vec<f32>| match step.bits {
        Some(bits) => round_decoder(layers, bits, &w),
        None => w,
    };
    let mut decoder = stored(before);
    let parameters = decoder.len();
    let damping = step.damping;
    let mut mu = mu.unwrap_or(f64::from(damping.start)) as f32;
    let normal = machine.decoder_normal(&decoder, step)?;
    let mut loss = machine.batch_loss(&decoder)?;
    let matrix = MatRef::from_column_major_slice(&normal.matrix, parameters, parameters);
    let right = MatRef::from_column_major_slice(&normal.right, parameters, 1);
    for _ in 0..step.tries {
        let mut damped = matrix.to_owned();
        (0..parameters).for_each(|i| damped[(i, i)] += f64::from(mu) * normal.texels as f64);
        if let Ok(factor) = damped.llt(Side::Lower) {
            let d: Mat<f64> = factor.solve(right);
            let moved: Vec<f32> = (0..parameters).map(|i| decoder[i] - d[(i, 0)] as f32).collect();
            if moved.iter().all(|w| w.is_finite()) {
                let moved = stored(moved);
                let after = machine.batch_loss(&moved)?;
                if after < loss {
                    (mu, loss, decoder) = (damping.next(mu, true), after, moved);
                    break;
                }
            }
        }
        mu = damping.next(mu, false);
    }
    if !decoder.iter().all(|w| w.is_finite()) {
        return Err(not_finite("decoder weights", "--gn-tries", step.step));
    }
    let texels = step.batch.max(step.right);
    let report = DecoderReport { loss: loss as f64 / (UNIT * texels as f64), statistic: f64::from(mu) };
    Ok(Stepped { decoder, report })
}
