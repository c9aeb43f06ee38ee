//! A latent step: every band of image rows decoded at both signs of a few pairs, and what it credits.

use super::{bands, load_target_at};
use crate::backend::simd::SimdLevel;
use crate::estimate::latent_es::BandCredits;
use crate::model::decode::{Geometry, InputReader, LevelReader, Source, Window, sweep_strip};
use crate::model::lanes::Lanes;
use crate::model::loss::{differences, strip_loss};
use crate::model::mlp::{Row, STRIP, Start, Weights, dense, forward_from, pair_activations};
use crate::model::structure::Level;
use crate::with_level;
use rayon::prelude::*;

/// One group of pairs of a latent step.
pub(super) struct LatentProblem<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) target: &'a [Vec<f32>],
    pub(super) weights: &'a [f32],
    pub(super) levels: &'a [Vec<f32>],
    pub(super) packed: &'a [f32],
    pub(super) sigma: [f32; 2],
    /// Normals \[pair]\[level], empty where the pair leaves the level alone.
    pub(super) noise: &'a [Vec<Vec<f32>>],
}

impl LatentProblem<'_> {
    /// Credits \[level of `noisy`]\[pair, latent texel].
    pub(super) fn credits(
        &self,
        pool: &rayon::ThreadPool,
        level: SimdLevel,
        band_rows: usize,
        noisy: &[usize],
    ) -> Vec<Vec<i64>> {
        let bands = bands(self.geometry.structure.height, band_rows);
        let parts: Vec<Vec<BandCredits>> =
            pool.install(|| bands.par_iter().map(|&band| with_level!(level, l => self.band(l, noisy, band))).collect());
        let mut credits: Vec<Vec<i64>> =
            noisy.iter().map(|&k| vec![0; self.noise.len() * self.geometry.structure.levels[k].texels()]).collect();
        for part in parts {
            for ((credits, band), &k) in credits.iter_mut().zip(part).zip(noisy) {
                let level = &self.geometry.structure.levels[k];
                let rows = band.rows.len() * level.width;
                for (credits, sums) in credits.chunks_exact_mut(level.texels()).zip(band.sums.chunks_exact(rows.max(1)))
                {
                    let into = &mut credits[band.rows.start * level.width..][..rows];
                    into.iter_mut().zip(sums).for_each(|(a, b)| *a += b);
                }
            }
        }
        credits
    }

    #[inline(always)]
    pub(super) fn band<L: Lanes>(&self, l: L, noisy: &[usize], band: (usize, usize)) -> Vec<BandCredits> {
        let (geometry, network) = (self.geometry, &self.geometry.network);
        let pairs = self.noise.len();
        let mut credits: Vec<_> = noisy.iter().map(|&k| BandCredits::new(geometry, k, band, pairs)).collect();
        let mut window = Window::new(geometry, 2 * pairs);
        let mut reader = InputReader::new(geometry);
        let level_reader = |level: &Level| LevelReader::new(level.channels);
        let mut readers: Vec<Vec<_>> = vec![geometry.structure.levels.iter().map(level_reader).collect(); pairs];
        let rows = |n: usize| vec![Row::ZERO; n];
        let first = &network.layers[0];
        let (mut inputs, mut base, mut delta) = (rows(network.inputs()), rows(first.outputs), rows(first.outputs));
        let (mut plus, mut minus, mut scratch) =
            (rows(network.widest()), rows(network.widest()), rows(network.widest()));
        let mut target = rows(network.outputs());
        let (mut loss, mut d) = ([Row::ZERO; 2], [0i64; STRIP]);
        let outputs = network.outputs();
        for strip in geometry.strips() {
            reader.reset();
            readers.iter_mut().flatten().for_each(LevelReader::reset);
            sweep_strip(
                l,
                geometry,
                strip,
                band,
                &mut window,
                #[inline(always)]
                |y: usize, out: &mut [Row]| {
                    reader.read(l, geometry, self.levels, strip.start, y, &mut inputs);
                    let bias = Start::Bias(&self.packed[first.biases..][..first.outputs]);
                    dense(l, Weights::of(self.packed, first, 0), bias, &inputs, &mut base, None);
                    for (pair, (e, readers)) in self.noise.iter().zip(&mut readers).enumerate() {
                        let mut used = network.inputs()..network.position;
                        for (level, e) in e.iter().enumerate().filter(|(_, e)| !e.is_empty()) {
                            let columns = network.columns(level);
                            used = used.start.min(columns.start)..used.end.max(columns.end);
                            let into = &mut inputs[columns];
                            let source = Source { level, values: e, scale: self.sigma[level] };
                            readers[level].read(l, geometry, source, strip.start, y, into);
                        }
                        let weights = Weights::of(self.packed, first, used.start);
                        dense(l, weights, Start::Zero, &inputs[used], &mut delta, None);
                        pair_activations(l, network, &base, &delta, &mut plus, &mut minus);
                        let out = &mut out[2 * pair * outputs..][..2 * outputs];
                        let (out_plus, out_minus) = out.split_at_mut(outputs);
                        forward_from(l, network, self.packed, 0, (&mut plus, &mut scratch), out_plus);
                        forward_from(l, network, self.packed, 0, (&mut minus, &mut scratch), out_minus);
                    }
                },
                #[inline(always)]
                |variant: usize, y: usize, out: &[Row]| {
                    if variant == 0 {
                        let (first, offset) = (strip.first, strip.offset());
                        load_target_at(
                            self.target,
                            geometry.structure.width,
                            first,
                            strip.count,
                            y,
                            offset,
                            &mut target,
                        );
                    }
                    strip_loss(l, self.weights, out, &target, &mut loss[variant % 2]);
                    if variant % 2 == 1 {
                        differences(&loss[0], &loss[1], &mut d);
                        let pair = variant / 2;
                        let hit = credits.iter_mut().zip(noisy).filter(|(_, k)| !self.noise[pair][**k].is_empty());
                        hit.for_each(|(credits, _)| credits.add(geometry, pair, y, &d));
                    }
                },
            );
            credits.iter_mut().for_each(|credits| credits.finish_strip(geometry, strip));
        }
        credits
    }
}
