//! A level's step from its normal equations: solve, try, keep what lowers the error of the latents' own footprints.

use super::{LevelNormal, Machine};
use crate::backend::cpu::not_finite;
use crate::backend::simd::SimdLevel;
use crate::backend::{LatentGn, LatentReport};
use crate::error::Result;
use crate::estimate::gauss_newton::latent::Elements;
use crate::estimate::gauss_newton::solve::{at, factor, substitute, triangle};
use crate::model::loss::UNIT;
use crate::model::price::Prices;
use crate::model::quant::{grid_index, grid_value};
use crate::with_level;
use rayon::prelude::*;

/// Every value to the grid of `bits` bits.
pub fn snap(values: &mut [f32], bits: u32) {
    values.par_iter_mut().for_each(|z| *z = grid_value(grid_index(*z, bits), bits));
}

/// A value limited to [-1, 1].
fn limited(z: f32) -> f32 {
    let z = if z < -1.0 { -1.0 } else { z };
    if z > 1.0 { 1.0 } else { z }
}

impl LevelNormal {
    /// The lower triangle of a latent texel's own block with damping on its diagonal.
    fn own_block(&self, elements: &Elements, t: usize, mu: f32) -> Vec<f64> {
        let c = elements.channels;
        let block = &self.blocks[t * elements.stencil() + elements.own()..][..c * c];
        let mut a = vec![0.0; triangle(c)];
        for i in 0..c {
            for j in 0..=i {
                a[at(i, j)] = f64::from(block[i * c + j]) + if i == j { f64::from(mu) } else { 0.0 };
            }
        }
        a
    }
}

/// How one level is searched.
#[derive(Clone, Copy)]
pub struct LatentSearch<'a> {
    pub elements: &'a Elements,
    /// Instruction level of the products.
    pub simd: SimdLevel,
    /// Texels of the image.
    pub texels: usize,
    /// What values on the grid cost beside their error.
    pub prices: Option<&'a Prices>,
}

impl<'a> LatentSearch<'a> {
    /// A step from `values`, with the damping of each latent texel (empty = none yet): the report and the values after it.
    ///
    /// # Errors
    /// Values that are not finite, or a machine that failed.
    pub fn step<M: Machine>(
        self,
        machine: &mut M,
        step: &LatentGn,
        mut values: Vec<f32>,
        mu: &mut Vec<f32>,
    ) -> Result<(LatentReport, Vec<f32>)> {
        let latents = self.elements.size.0 * self.elements.size.1;
        if mu.len() != latents {
            *mu = vec![step.damping.start; latents];
        }
        if let Some(bits) = step.grid {
            snap(&mut values, bits);
        }
        let normal = machine.level_normal(self.elements, &values, step.h)?;
        let mut at_work = AtWork { search: self, machine, elements: self.elements, normal, values, grid: step.grid };
        let report = match (step.grid, self.elements.corners) {
            (None, 1) => at_work.blocks(step, mu),
            (None, _) => at_work.conjugate_gradients(step, mu),
            (Some(_), _) => at_work.phase_by_phase(step, None, mu),
        }?;
        if !at_work.values.iter().all(|z| z.is_finite()) {
            return Err(not_finite("latents", "--gn-h", 0));
        }
        Ok((report, at_work.values))
    }

    /// Coordinate search from `values` on the grid of `bits` bits: the report and the values after it.
    ///
    /// # Errors
    /// A machine that failed.
    pub fn coordinates<M: Machine>(
        self,
        machine: &mut M,
        bits: u32,
        mut values: Vec<f32>,
    ) -> Result<(LatentReport, Vec<f32>)> {
        snap(&mut values, bits);
        let errors = machine.element_errors(self.elements, &values)?;
        let normal = LevelNormal { blocks: vec![], right: vec![], errors };
        let mut at_work = AtWork { search: self, machine, elements: self.elements, normal, values, grid: Some(bits) };
        let report = at_work.coordinates(bits)?;
        Ok((report, at_work.values))
    }
}

/// One level's steps from its normal equations; `values` are what has been accepted so far.
struct AtWork<'a, M> {
    search: LatentSearch<'a>,
    machine: &'a mut M,
    elements: &'a Elements,
    normal: LevelNormal,
    values: Vec<f32>,
    /// Bits of the grid that the values are on.
    grid: Option<u32>,
}

impl<M: Machine> AtWork<'_, M> {
    fn report(&self, before: i64, changed: usize) -> LatentReport {
        let unit = 1.0 / (UNIT * self.search.texels as f64);
        let after: i64 = self.normal.errors.iter().sum();
        LatentReport { before: before as f64 * unit, after: after as f64 * unit, changed }
    }

    /// The errors with `trial` in place of the level's values.
    fn errors_of(&mut self, trial: &[f32]) -> Result<Vec<i64>> {
        self.machine.element_errors(self.elements, trial)
    }

    /// Solves every cell of a nearest level by itself and keeps what lowers the cell's own error.
    fn blocks(&mut self, step: &LatentGn, mu: &mut [f32]) -> Result<LatentReport> {
        let c = self.elements.channels;
        let mut trial = self.values.clone();
        let (elements, normal) = (self.elements, &self.normal);
        trial.par_chunks_mut(c).enumerate().for_each(|(t, z)| {
            minimum(&mut normal.own_block(elements, t, mu[t]), &normal.right[t * c..][..c], z);
        });
        let before = self.normal.errors.iter().sum();
        let errors = self.errors_of(&trial)?;
        let kept = self.accept(&errors, &trial, (0, 0), 1);
        mu.iter_mut().zip(&kept).for_each(|(mu, &kept)| *mu = step.damping.next(*mu, kept));
        Ok(self.report(before, kept.iter().filter(|&&kept| kept).count()))
    }

    /// The price of latent texel `t` with channels `z`, 0 off the grid.
    fn price(&self, t: usize, z: &[f32]) -> i64 {
        let Some((prices, bits)) = self.search.prices.zip(self.grid) else { return 0 };
        z.iter().enumerate().map(|(c, &z)| prices.of(t * self.elements.channels + c, grid_index(z, bits))).sum()
    }

    /// Keeps the trial's latent texels that lower their footprint's error (on a grid, with the price), among those at `phase` of every `stride`
    /// along each axis, whose footprints must be disjoint; returns which.
    fn accept(&mut self, errors: &[i64], trial: &[f32], phase: (usize, usize), stride: usize) -> Vec<bool> {
        let (elements, c) = (self.elements, self.elements.channels);
        let (width, height) = elements.size;
        let mut kept = vec![false; width * height];
        for y in (phase.1..height).step_by(stride) {
            for x in (phase.0..width).step_by(stride) {
                let t = y * width + x;
                let place = t * c..(t + 1) * c;
                let now = elements.footprint(&self.normal.errors, x, y) + self.price(t, &self.values[place.clone()]);
                if elements.footprint(errors, x, y) + self.price(t, &trial[place]) < now {
                    kept[t] = true;
                    self.values[t * c..][..c].copy_from_slice(&trial[t * c..][..c]);
                    elements.copy_footprint(errors, x, y, &mut self.normal.errors);
                }
            }
        }
        kept
    }

    /// Solves the whole bilinear level by conjugate gradients and keeps the step where the loss falls.
    fn conjugate_gradients(&mut self, step: &LatentGn, mu: &mut [f32]) -> Result<LatentReport> {
        let origin = self.values.clone();
        let before: i64 = self.normal.errors.iter().sum();
        for _ in 0..step.tries {
            let d = self.solve(step.iterations, mu);
            let trial: Vec<f32> = self.values.iter().zip(&d).map(|(z, d)| limited(z - d)).collect();
            let errors = self.errors_of(&trial)?;
            let kept = errors.iter().sum::<i64>() < before;
            let (width, elements) = (self.elements.size.0, self.elements);
            let normal = &self.normal;
            mu.par_iter_mut().enumerate().for_each(|(t, mu)| {
                let (x, y) = (t % width, t / width);
                let fell = elements.footprint(&errors, x, y) < elements.footprint(&normal.errors, x, y);
                *mu = step.damping.next(*mu, kept && fell);
            });
            if kept {
                self.values = trial;
                self.normal.errors = errors;
                break;
            }
        }
        let report = self.phase_by_phase(step, Some(origin), mu)?;
        Ok(self.report(before, report.changed))
    }

    /// (A + mu) d = J^T r by conjugate gradients, preconditioned by each latent texel's own block.
    fn solve(&self, iterations: usize, mu: &[f32]) -> Vec<f32> {
        let (elements, normal, simd) = (self.elements, &self.normal, self.search.simd);
        let c = elements.channels;
        let row = elements.size.0 * c;
        let part = triangle(c);
        let mut factors = vec![0.0; mu.len() * part];
        factors.par_chunks_mut(part).enumerate().for_each(|(t, out)| {
            let mut a = normal.own_block(elements, t, mu[t]);
            if !factor(c, &mut a) {
                a.fill(0.0);
                (0..c).for_each(|i| a[at(i, i)] = 1.0);
            }
            out.copy_from_slice(&a);
        });
        let precondition = |r: &[f32]| -> Vec<f32> {
            let mut z = r.to_vec();
            z.par_chunks_mut(c).zip(factors.par_chunks(part)).for_each(|(z, l)| {
                let mut b: Vec<f64> = z.iter().map(|&z| f64::from(z)).collect();
                substitute(c, l, &mut b);
                z.iter_mut().zip(b).for_each(|(z, b)| *z = b as f32);
            });
            z
        };
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            let rows = a.par_chunks(row).zip(b.par_chunks(row));
            let sums: Vec<f64> =
                rows.map(|(a, b)| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()).collect();
            sums.iter().sum()
        };
        let mut r = self.normal.right.clone();
        let mut d = vec![0.0f32; r.len()];
        let mut z = precondition(&r);
        let mut p = z.clone();
        let mut rz = dot(&r, &z);
        for _ in 0..iterations {
            let mut ap = vec![0.0f32; r.len()];
            ap.par_chunks_mut(row).enumerate().for_each(|(y, ap)| {
                with_level!(simd, l => {
                    let _ = l;
                    elements.multiply_row(&normal.blocks, &p, y, ap)
                });
                for (k, (ap, p)) in ap.iter_mut().zip(&p[y * row..]).enumerate() {
                    *ap += mu[y * elements.size.0 + k / c] * p;
                }
            });
            let curvature = dot(&p, &ap);
            if !(curvature > 0.0 && rz > 0.0) {
                break;
            }
            let alpha = (rz / curvature) as f32;
            d.iter_mut().zip(&p).for_each(|(d, p)| *d += alpha * p);
            r.iter_mut().zip(&ap).for_each(|(r, ap)| *r -= alpha * ap);
            z = precondition(&r);
            let next = dot(&r, &z);
            let beta = (next / rz) as f32;
            rz = next;
            p.iter_mut().zip(&z).for_each(|(p, z)| *p = beta * *p + z);
        }
        d
    }

    /// Phases of latent texels whose footprints are disjoint.
    fn phases(&self) -> (usize, Vec<(usize, usize)>) {
        let n = self.elements.corners;
        (n, (0..n * n).map(|k| (k % n, k / n)).collect())
    }

    /// Phase by phase, each latent texel to where its own quadratic model is least (on a grid: to the best grid point),
    /// kept where its footprint's error falls. `origin` are the values that the normal equations belong to, where these
    /// are no longer the present ones.
    fn phase_by_phase(&mut self, step: &LatentGn, origin: Option<Vec<f32>>, mu: &mut [f32]) -> Result<LatentReport> {
        let c = self.elements.channels;
        let width = self.elements.size.0;
        let before = self.normal.errors.iter().sum();
        let origin = origin.unwrap_or_else(|| self.values.clone());
        let (stride, phases) = self.phases();
        let mut changed = 0;
        for phase in phases {
            let moved: Vec<f32> = self.values.iter().zip(&origin).map(|(z, o)| z - o).collect();
            let mut trial = self.values.clone();
            let in_phase = |t: usize| t % width % stride == phase.0 && t / width % stride == phase.1;
            let (elements, normal) = (self.elements, &self.normal);
            trial.par_chunks_mut(c).enumerate().filter(|(t, _)| in_phase(*t)).for_each(|(t, z)| {
                let mut g = vec![0.0; c];
                elements.multiply_one(&normal.blocks, &moved, (t % width, t / width), &mut g);
                g.iter_mut().zip(&normal.right[t * c..]).for_each(|(g, r)| *g += r);
                match step.grid {
                    Some(bits) => grid_minimum(&normal.own_block(elements, t, mu[t]), &g, bits, z),
                    None => minimum(&mut normal.own_block(elements, t, mu[t]), &g, z),
                }
            });
            let differs: Vec<bool> =
                trial.chunks_exact(c).zip(self.values.chunks_exact(c)).map(|(a, b)| a != b).collect();
            let errors = self.errors_of(&trial)?;
            let kept = self.accept(&errors, &trial, phase, stride);
            for (t, mu) in mu.iter_mut().enumerate().filter(|(t, _)| in_phase(*t) && differs[*t]) {
                *mu = step.damping.next(*mu, kept[t]);
            }
            changed += kept.iter().filter(|&&kept| kept).count();
        }
        Ok(self.report(before, changed))
    }

    /// Each channel one grid step up and down, phase by phase, kept on a strict fall.
    fn coordinates(&mut self, bits: u32) -> Result<LatentReport> {
        let (elements, c) = (self.elements, self.elements.channels);
        let width = elements.size.0;
        let last = (1u32 << bits) - 1;
        let before = self.normal.errors.iter().sum();
        let (stride, phases) = self.phases();
        let mut changed = 0;
        for phase in phases {
            for (channel, up) in (0..c).flat_map(|channel| [(channel, true), (channel, false)]) {
                let mut trial = self.values.clone();
                let in_phase = |t: usize| t % width % stride == phase.0 && t / width % stride == phase.1;
                trial.par_chunks_mut(c).enumerate().filter(|(t, _)| in_phase(*t)).for_each(|(_, z)| {
                    let k = grid_index(z[channel], bits);
                    let k = if up { (k + 1).min(last) } else { k.saturating_sub(1) };
                    z[channel] = grid_value(k, bits);
                });
                let errors = self.errors_of(&trial)?;
                let kept = self.accept(&errors, &trial, phase, stride);
                changed += kept.iter().filter(|&&kept| kept).count();
            }
        }
        Ok(self.report(before, changed))
    }
}

/// Moves `z` to where g (q - z) + (q - z) A (q - z) / 2 is least, limited to [-1, 1]; `a` is spoilt.
fn minimum(a: &mut [f64], g: &[f32], z: &mut [f32]) {
    let mut d: Vec<f64> = g.iter().map(|&g| f64::from(g)).collect();
    if factor(z.len(), a) {
        substitute(z.len(), a, &mut d);
        z.iter_mut().zip(d).filter(|(_, d)| d.is_finite()).for_each(|(z, d)| *z = limited(*z - d as f32));
    }
}

/// Partial grid points that [`grid_minimum`] keeps a channel, and how many values each of them tries for the next.
const BEAM: (usize, usize) = (24, 5);

/// Moves `z`, on the grid of `bits` bits, to where g (q - z) + (q - z) A (q - z) / 2 is least, as far as a beam search
/// finds it: with A = L L^T the model is |L^T (q - x)|^2 / 2 + const for its unlimited minimum x, so that channels are
/// fixed from the last to the first and every prefix has its own part of the sum (the closest-point search of lattices:
/// Agrell et al., IEEE Trans. Inf. Theory 48(8), 2002, with a bounded breadth). Rounding x alone is far off where A is
/// ill-conditioned.
fn grid_minimum(a: &[f64], g: &[f32], bits: u32, z: &mut [f32]) {
    let c = z.len();
    let mut l = a.to_vec();
    let mut d: Vec<f64> = g.iter().map(|&g| f64::from(g)).collect();
    if !factor(c, &mut l) {
        return;
    }
    substitute(c, &l, &mut d);
    let last = ((1u32 << bits) - 1) as i64;
    let size = 2.0 / last as f64;
    // The unlimited minimum, in grid steps from the grid's first value.
    let least: Vec<f64> = z.iter().zip(&d).map(|(&z, d)| (f64::from(z) - d + 1.0) / size).collect();
    let mut beam = vec![(0.0f64, vec![0i64; c])];
    for i in (0..c).rev() {
        let mut next = Vec::with_capacity(beam.len() * BEAM.1);
        for (cost, point) in &beam {
            let beyond: f64 = (i + 1..c).map(|k| l[at(k, i)] * (point[k] as f64 - least[k])).sum();
            let centre = least[i] - beyond / l[at(i, i)];
            let first = (centre.round() as i64 - BEAM.1 as i64 / 2).clamp(0, (last + 1 - BEAM.1 as i64).max(0));
            for value in first..=(first + BEAM.1 as i64 - 1).min(last) {
                let mut point = point.clone();
                point[i] = value;
                next.push((cost + (l[at(i, i)] * (value as f64 - centre)).powi(2), point));
            }
        }
        next.sort_by(|a, b| a.0.total_cmp(&b.0));
        next.truncate(BEAM.0);
        beam = next;
    }
    z.iter_mut().zip(&beam[0].1).for_each(|(z, &k)| *z = grid_value(k as u32, bits));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beam_finds_the_grid_point_that_rounding_misses() {
        // A = [[1, 0.99], [0.99, 1]] and g = A (z - x) for a minimum x = (0.4, -0.4) on the grid -1, -1/3, 1/3, 1 from
        // z = (-1, -1): here rounding is right.
        let a = [1.0, 0.99, 1.0];
        let gradient = |x: [f64; 2]| {
            let d = [-1.0 - x[0], -1.0 - x[1]];
            [(d[0] + 0.99 * d[1]) as f32, (0.99 * d[0] + d[1]) as f32]
        };
        let mut z = [-1.0f32, -1.0];
        grid_minimum(&a, &gradient([0.4, -0.4]), 2, &mut z);
        assert_eq!(z, [grid_value(2, 2), grid_value(1, 2)]);
        // x = (0.6, -0.1): rounding gives (1/3, -1/3), which is off along the stiff (1, 1); the least over all 16
        // points lies along the soft axis.
        let x = [0.6, -0.1];
        let cost = |q: [f64; 2]| {
            let d = [q[0] - x[0], q[1] - x[1]];
            d[0] * d[0] + 2.0 * 0.99 * d[0] * d[1] + d[1] * d[1]
        };
        let value = |k: u32| f64::from(grid_value(k, 2));
        let points = (0..16).map(|k| [value(k % 4), value(k / 4)]);
        let best = points.min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap();
        assert!(cost(best) < cost([value(2), value(1)]));
        let mut z = [-1.0f32, -1.0];
        grid_minimum(&a, &gradient(x), 2, &mut z);
        assert_eq!(z.map(f64::from), best);
    }
}
