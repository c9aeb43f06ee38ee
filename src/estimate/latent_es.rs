//! The latent step: all latents perturbed at once, each texel's loss difference credited to the latent texels it reads.
//!
//! A texel credits every *distinct* latent texel of its footprint once, not times the tap weight (SPEC section 4): the
//! credit of a latent texel is then the whole effect of its perturbation on the loss plus noise of zero mean from the
//! others, which makes the estimate unbiased (METHOD, "Attribution").

use crate::model::decode::{Geometry, Strip};
use crate::model::latent::Footprint;
use crate::model::loss::UNIT;
use crate::model::mlp::STRIP;

/// Credits that one band of image rows gives to one level, for several pairs.
///
/// Sums go down the columns first, then along the rows of latent texels, so that each texel is added a fixed number of
/// times whatever the footprint.
#[derive(Clone, Debug)]
pub struct BandCredits {
    level: usize,
    pairs: usize,
    /// Latent rows that the band can reach.
    pub rows: std::ops::Range<usize>,
    /// Credits \[pair]\[latent row of `rows`]\[latent column], in units of 2^-36.
    pub sums: Vec<i64>,
    own: Vec<[i64; STRIP]>,
    ring: Vec<[i64; STRIP]>,
}

impl BandCredits {
    /// No credits yet for `level` from image rows `y0..y1`.
    pub fn new(geometry: &Geometry, level: usize, (y0, y1): (usize, usize), pairs: usize) -> Self {
        let support = &geometry.supports[level];
        let reach = &support.ring.as_ref().unwrap_or(&support.own).1;
        let meets = |&j: &usize| reach.0[j].0 < y1 as u32 && reach.0[j].1 > y0 as u32;
        let height = geometry.structure.levels[level].height;
        let first = (0..height).find(meets).unwrap_or(0);
        let last = (0..height).rev().find(meets).map_or(first, |j| j + 1);
        let cells = pairs * (last - first);
        let ring = if support.ring.is_some() { cells } else { 0 };
        BandCredits {
            level,
            pairs,
            rows: first..last,
            sums: vec![0; cells * geometry.structure.levels[level].width],
            own: vec![[0; STRIP]; cells],
            ring: vec![[0; STRIP]; ring],
        }
    }

    /// Adds the loss differences `d` of one strip of image row `y` for `pair`.
    #[inline(always)]
    pub fn add(&mut self, geometry: &Geometry, pair: usize, y: usize, d: &[i64; STRIP]) {
        let support = &geometry.supports[self.level];
        let rows = self.rows.len();
        add_row(&mut self.own[pair * rows..][..rows], &support.own.1, self.rows.start, y, d);
        if let Some((_, ring)) = &support.ring {
            add_row(&mut self.ring[pair * rows..][..rows], ring, self.rows.start, y, d);
        }
    }

    /// Moves what was added for a strip into the sums: every latent column whose footprint meets it.
    #[inline(always)]
    pub fn finish_strip(&mut self, geometry: &Geometry, strip: Strip) {
        let support = &geometry.supports[self.level];
        let taps = &geometry.taps[self.level].x;
        let width = geometry.structure.levels[self.level].width;
        // A ring may widen a footprint by one texel, so by the neighbours' taps on both sides.
        let low = taps.first[strip.first.saturating_sub(1)] as usize;
        let high = taps.second[(strip.first + strip.count).min(geometry.structure.width - 1)] as usize;
        for cell in 0..self.pairs * self.rows.len() {
            let sums = &mut self.sums[cell * width..][..width];
            for (i, sum) in sums.iter_mut().enumerate().take(high + 1).skip(low) {
                *sum += range_sum(&self.own[cell], &support.own.0, i, strip);
                if let Some((ring, _)) = &support.ring {
                    *sum += range_sum(&self.own[cell], ring, i, strip)
                        + range_sum(&self.ring[cell], &support.own.0, i, strip)
                        - 2 * range_sum(&self.own[cell], &support.own.0, i, strip);
                }
            }
            self.own[cell] = [0; STRIP];
            if let Some(ring) = self.ring.get_mut(cell) {
                *ring = [0; STRIP];
            }
        }
    }
}

/// Adds `d` to every latent row (the first of `into` is row `first`) whose footprint holds image row `y`.
#[inline(always)]
fn add_row(into: &mut [[i64; STRIP]], footprint: &Footprint, first: usize, y: usize, d: &[i64; STRIP]) {
    for (row, range) in into.iter_mut().zip(&footprint.0[first..]) {
        if range.0 as usize <= y && y < range.1 as usize {
            for (sum, d) in row.iter_mut().zip(d) {
                *sum += d;
            }
        }
    }
}

/// The sum of `values` (one a lane) over latent column `i`'s footprint inside the strip.
#[inline(always)]
fn range_sum(values: &[i64; STRIP], footprint: &Footprint, i: usize, strip: Strip) -> i64 {
    let (a, b) = footprint.0[i];
    let a = (a as usize).max(strip.first);
    let b = (b as usize).min(strip.first + strip.count);
    if a >= b { 0 } else { values[a - strip.start..b - strip.start].iter().sum() }
}

/// 1 / (2 K s W H 2^36): turns credits times normals into the gradient of the mean loss.
pub fn gradient_scale(pairs: usize, sigma: f32, texels: usize) -> f32 {
    (1.0 / (2.0 * pairs as f64 * f64::from(sigma) * texels as f64 * UNIT)) as f32
}

/// Adds one pair's credits (one a latent texel) times its normals (`channels` a latent texel) to `g`.
#[inline(always)]
pub fn accumulate(credits: &[i64], e: &[f32], channels: usize, g: &mut [f32]) {
    for ((credit, e), g) in credits.iter().zip(e.chunks_exact(channels)).zip(g.chunks_exact_mut(channels)) {
        let credit = *credit as f32;
        for (g, e) in g.iter_mut().zip(e) {
            *g = credit.mul_add(*e, *g);
        }
    }
}

/// Which of `levels` (indices of the levels that take noise) pair `pair` of step `step` perturbs under `--lat-alt`.
pub fn alternate(levels: &[usize], pair: usize, step: usize) -> usize {
    levels[(pair + step) % levels.len()]
}
