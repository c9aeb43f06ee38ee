//! The definition again, slowly: texel by texel, one number at a time, whole images, sets and loops.
//!
//! Shares with the code under test only what other tests hold against f64 or known answers: the elementary functions, the
//! noise, the selector grid and the position tables. Generic over [`Real`], so that the same text in f64 gives losses to
//! differentiate. It is a [`Backend`] like those it judges.

use crate::problems::Problem;
use ntc_es::backend::{
    Backend, DecoderEs, DecoderFd, DecoderGn, DecoderReport, LatentEs, LatentGn, LatentReport, Seen, State,
};
use ntc_es::error::{Error, Result};
use ntc_es::estimate::adam::Adam;
use ntc_es::model::lanes::Scalar;
use ntc_es::model::math;
use ntc_es::model::position::Feature;
use ntc_es::model::price::Prices;
use ntc_es::model::quant::{grid_index, grid_value};
use ntc_es::model::structure::{Activation, Filter, Parameters, Structure};
use ntc_es::noise::Noise;
use ntc_es::noise::hash::{Stream, normal_at, philox};
use ntc_es::noise::mersenne::{Mersenne, PolarNormal};
use std::collections::BTreeMap;
use std::ops::{Add, Div, Mul, Sub};

/// 2^36: a loss of 1.
pub const UNIT: f64 = 68_719_476_736.0;

/// f32 as the contract has it, or f64 to compare with.
pub trait Real:
    Copy + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    fn of(x: f32) -> Self;
    fn fma(self, b: Self, c: Self) -> Self;
    fn tanh(self) -> Self;
    fn sine(self) -> Self;
    fn sigmoid(self) -> Self;
}

impl Real for f32 {
    fn of(x: f32) -> f32 {
        x
    }
    fn fma(self, b: f32, c: f32) -> f32 {
        self.mul_add(b, c)
    }
    fn tanh(self) -> f32 {
        math::tanh(Scalar, self)
    }
    fn sine(self) -> f32 {
        math::sin(Scalar, self)
    }
    fn sigmoid(self) -> f32 {
        math::sigmoid(Scalar, self)
    }
}

impl Real for f64 {
    fn of(x: f32) -> f64 {
        f64::from(x)
    }
    fn fma(self, b: f64, c: f64) -> f64 {
        self * b + c
    }
    fn tanh(self) -> f64 {
        f64::tanh(self)
    }
    fn sine(self) -> f64 {
        self.sin()
    }
    fn sigmoid(self) -> f64 {
        1.0 / (1.0 + (-self).exp())
    }
}

pub fn to_f64(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

/// How a texel's loss difference is credited. Only `Once` is right; the others are what the tests must tell from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Attribution {
    /// Once to every distinct latent texel read.
    Once,
    /// Times the tap weight.
    TapWeight,
    /// Once for every tap, so twice where a clamped tap reads the border texel again.
    EveryTap,
}

/// Along one axis: the two latent indices that each position reads, and the fraction between them.
pub struct Axis(pub Vec<(usize, usize, f32)>);

impl Axis {
    fn new(extent: usize, size: usize, filter: Filter) -> Self {
        let tap = |p: usize| {
            let u = (p as f32 + 0.5) / extent as f32;
            let last = size as f32 - 1.0;
            let limit = |i: f32| {
                (if i < 0.0 {
                    0.0
                } else if i > last {
                    last
                } else {
                    i
                }) as usize
            };
            match filter {
                Filter::Bilinear => {
                    let x = u * size as f32 - 0.5;
                    (limit(x.floor()), limit(x.floor() + 1.0), x - x.floor())
                }
                Filter::Nearest => {
                    let x = u * size as f32;
                    (limit(x.floor()), limit(x.floor()), x - x.floor())
                }
            }
        };
        Axis((0..extent).map(tap).collect())
    }
}

pub struct Reference {
    pub structure: Structure,
    pub attribution: Attribution,
    pub state: State,
    features: Vec<Feature>,
    /// Taps \[level], along x and along y.
    axes: Vec<[Axis; 2]>,
    /// Deblocking weights along x and y.
    ring: Option<[Vec<f32>; 2]>,
    target: Vec<Vec<f32>>,
    /// Loss weight of each output.
    weights: Vec<f32>,
    /// Units of every layer, inputs first.
    widths: Vec<usize>,
    noise: Noise,
}

impl Reference {
    pub fn new(problem: &Problem) -> Self {
        let structure = problem.structure.clone();
        let (width, height) = (structure.width, structure.height);
        let features = problem.geometry().features;
        let axes = structure.levels.iter();
        let axes = axes.map(|l| [Axis::new(width, l.width, l.filter), Axis::new(height, l.height, l.filter)]).collect();
        let level0 = &structure.levels[0];
        let ring = structure
            .deblock
            .map(|falloff| [ring(width, width / level0.width, falloff), ring(height, height / level0.height, falloff)]);
        let relative = |t: usize| f64::from(*problem.weights.get(t).unwrap_or(&1.0));
        let sum: f64 = (0..structure.textures.len()).map(relative).sum();
        let mut weights = vec![];
        for (t, texture) in structure.textures.iter().enumerate() {
            weights.extend(vec![(relative(t) / (texture.channels as f64 * sum)) as f32; texture.channels]);
        }
        let mut widths = vec![structure.latent_channels() + features.len()];
        widths.extend(&structure.hidden);
        widths.push(structure.outputs());
        let (target, state, noise) = (problem.target.clone(), problem.state.clone(), problem.noise());
        let attribution = Attribution::Once;
        Reference { structure, attribution, state, features, axes, ring, target, weights, widths, noise }
    }

    fn texels(&self) -> usize {
        self.structure.texels()
    }

    /// One level read at a texel, every channel.
    fn sample<R: Real>(&self, level: usize, values: &[R], x: usize, y: usize) -> Vec<R> {
        let shape = &self.structure.levels[level];
        let [along_x, along_y] = &self.axes[level];
        let ((i0, i1, fx), (j0, j1, fy)) = (along_x.0[x], along_y.0[y]);
        let at = |i: usize, j: usize, c: usize| values[(j * shape.width + i) * shape.channels + c];
        let one = |c: usize| {
            if shape.filter == Filter::Nearest {
                return at(i0, j0, c);
            }
            let (fx, fy) = (R::of(fx), R::of(fy));
            let (gx, gy) = (R::of(1.0) - fx, R::of(1.0) - fy);
            let sum = gx * gy * at(i0, j0, c);
            let sum = (fx * gy).fma(at(i1, j0, c), sum);
            let sum = (gx * fy).fma(at(i0, j1, c), sum);
            (fx * fy).fma(at(i1, j1, c), sum)
        };
        (0..shape.channels).map(one).collect()
    }

    /// Decoder inputs of a texel in parameter order: level 0, level 1, position features.
    fn inputs<R: Real>(&self, levels: &[Vec<R>], x: usize, y: usize) -> Vec<R> {
        let mut inputs: Vec<R> =
            levels.iter().enumerate().flat_map(|(level, values)| self.sample(level, values, x, y)).collect();
        inputs.extend(self.features.iter().map(|f| R::of(f.x[y % f.x.len()][x] * f.y[y])));
        inputs
    }

    /// Parameter columns in the order in which a first-layer sum adds them: position features, level 1, level 0.
    fn order(&self) -> Vec<usize> {
        let channels0 = self.structure.levels[0].channels;
        let latents = self.structure.latent_channels();
        (latents..self.widths[0]).chain(channels0..latents).chain(0..channels0).collect()
    }

    /// Parameter columns of one level.
    fn columns(&self, level: usize) -> std::ops::Range<usize> {
        let channels0 = self.structure.levels[0].channels;
        if level == 0 { 0..channels0 } else { channels0..self.structure.latent_channels() }
    }

    /// Where layer `k`'s weights and biases begin.
    fn offsets(&self, k: usize) -> (usize, usize) {
        let size = |k: usize| (self.widths[k] + 1) * self.widths[k + 1];
        let first = (0..k).map(size).sum();
        (first, first + self.widths[k] * self.widths[k + 1])
    }

    fn layers(&self) -> usize {
        self.widths.len() - 1
    }

    /// Order of the inputs of layer `k`.
    fn order_of(&self, k: usize) -> Vec<usize> {
        if k == 0 { self.order() } else { (0..self.widths[k]).collect() }
    }

    /// Pre-activations of layer `k`.
    fn sums<R: Real>(&self, decoder: &[R], k: usize, inputs: &[R]) -> Vec<R> {
        let (w, b) = self.offsets(k);
        let order = self.order_of(k);
        let unit = |o: usize| {
            let row = &decoder[w + o * self.widths[k]..];
            order.iter().fold(decoder[b + o], |sum, &i| row[i].fma(inputs[i], sum))
        };
        (0..self.widths[k + 1]).map(unit).collect()
    }

    fn activate<R: Real>(&self, x: R) -> R {
        let slope = match self.structure.activation {
            Activation::Tanh => return x.tanh(),
            Activation::Sine => return x.sine(),
            Activation::Leaky => self.structure.leak,
            Activation::Relu => 0.0,
        };
        if x < R::of(0.0) { x * R::of(slope) } else { x }
    }

    fn head<R: Real>(&self, s: R) -> R {
        if !self.structure.clamp {
            return s.sigmoid();
        }
        let x = s + R::of(0.5);
        let x = if x < R::of(0.0) { R::of(0.0) } else { x };
        if x > R::of(1.0) { R::of(1.0) } else { x }
    }

    /// From the pre-activations of layer `k` to the outputs.
    fn finish<R: Real>(&self, decoder: &[R], k: usize, sums: &[R]) -> Vec<R> {
        if k + 1 == self.layers() {
            return sums.iter().map(|&s| self.head(s)).collect();
        }
        let units: Vec<R> = sums.iter().map(|&s| self.activate(s)).collect();
        self.finish(decoder, k + 1, &self.sums(decoder, k + 1, &units))
    }

    /// A texel's outputs before the deblocking filter.
    fn raw<R: Real>(&self, levels: &[Vec<R>], decoder: &[R], x: usize, y: usize) -> Vec<R> {
        self.finish(decoder, 0, &self.sums(decoder, 0, &self.inputs(levels, x, y)))
    }

    /// A texel's left, right, upper and lower neighbour, clamped.
    fn neighbours(&self, x: usize, y: usize) -> [(usize, usize); 4] {
        let (right, below) = ((x + 1).min(self.structure.width - 1), (y + 1).min(self.structure.height - 1));
        [(x.saturating_sub(1), y), (right, y), (x, y.saturating_sub(1)), (x, below)]
    }

    /// A texel's final outputs from the raw outputs that `raw` gives at any texel.
    fn filtered<R: Real>(&self, x: usize, y: usize, raw: impl Fn(usize, usize) -> Vec<R>) -> Vec<R> {
        let centre = raw(x, y);
        let Some([wx, wy]) = &self.ring else { return centre };
        let [left, right, above, below] = self.neighbours(x, y).map(|(x, y)| raw(x, y));
        let (wh, wv) = (R::of(wx[x]), R::of(wy[y]));
        let mix = |o: usize| {
            let c = centre[o];
            let blend = |a: R, b: R, w: R| w.fma((a + c + b) / R::of(3.0) - c, c);
            let (hc, vc) = (blend(left[o], right[o], wh), blend(above[o], below[o], wv));
            if wh + wv > R::of(0.0) { wh.fma(hc, wv * vc) / (wh + wv) } else { c }
        };
        (0..centre.len()).map(mix).collect()
    }

    fn at(&self, texel: usize) -> (usize, usize) {
        (texel % self.structure.width, texel / self.structure.width)
    }

    /// Final outputs \[texel]\[output] of a whole image, from its raw outputs \[texel].
    fn filter_image<R: Real>(&self, raw: Vec<Vec<R>>) -> Vec<Vec<R>> {
        let width = self.structure.width;
        let each = (0..self.texels()).map(|texel| {
            let (x, y) = self.at(texel);
            self.filtered(x, y, |x, y| raw[y * width + x].clone())
        });
        each.collect()
    }

    /// Outputs \[texel]\[output] of a model.
    pub fn image<R: Real>(&self, levels: &[Vec<R>], decoder: &[R]) -> Vec<Vec<R>> {
        let raw = (0..self.texels()).map(|texel| {
            let (x, y) = self.at(texel);
            self.raw(levels, decoder, x, y)
        });
        self.filter_image(raw.collect())
    }

    /// The loss of one texel in units of 2^-36.
    fn texel_loss(&self, weights: &[f32], out: &[f32], target: &[f32]) -> i64 {
        let mut sum = 0.0f32;
        for ((&w, &out), &target) in weights.iter().zip(out).zip(target) {
            let d = out - target;
            sum = (w * d).mul_add(d, sum);
        }
        let scaled = f64::from(sum) * UNIT;
        if scaled <= 2.0 * UNIT { scaled.round_ties_even() as i64 } else { (2.0 * UNIT) as i64 }
    }

    fn target_of(&self, texel: usize) -> Vec<f32> {
        self.target.iter().map(|plane| plane[texel]).collect()
    }

    /// Integer loss of every texel of an image.
    fn losses(&self, image: &[Vec<f32>]) -> Vec<i64> {
        let each = image.iter().enumerate();
        each.map(|(texel, out)| self.texel_loss(&self.weights, out, &self.target_of(texel))).collect()
    }

    /// The loss summed over all texels in units of 2^-36.
    pub fn total_loss(&self, parameters: &Parameters) -> i64 {
        self.losses(&self.image(&parameters.levels, &parameters.decoder)).iter().sum()
    }

    /// One texel's loss without rounding.
    pub fn texel_loss_f64(&self, levels: &[Vec<f64>], decoder: &[f64], texel: usize) -> f64 {
        let (x, y) = self.at(texel);
        let out = self.filtered(x, y, |x, y| self.raw(levels, decoder, x, y));
        let each = self.weights.iter().zip(out).zip(self.target_of(texel));
        each.map(|((&w, out), target)| f64::from(w) * (out - f64::from(target)).powi(2)).sum()
    }

    /// The mean loss over `texels` without rounding.
    pub fn loss_f64(&self, levels: &[Vec<f64>], decoder: &[f64], texels: &[usize]) -> f64 {
        texels.iter().map(|&texel| self.texel_loss_f64(levels, decoder, texel)).sum::<f64>() / texels.len() as f64
    }

    /// What a texel credits on one level: latent texel and factor.
    pub fn credited(&self, level: usize, texel: usize) -> Vec<(usize, f64)> {
        let (x, y) = self.at(texel);
        let mut points = vec![(x, y)];
        if let Some([wx, wy]) = &self.ring {
            let near = self.neighbours(x, y);
            points.extend(if wx[x] > 0.0 { &near[..2] } else { &[] });
            points.extend(if wy[y] > 0.0 { &near[2..] } else { &[] });
        }
        let shape = &self.structure.levels[level];
        let mut factors: BTreeMap<usize, f64> = BTreeMap::new();
        for (x, y) in points {
            let ((i0, i1, fx), (j0, j1, fy)) = (self.axes[level][0].0[x], self.axes[level][1].0[y]);
            let (fx, fy) = (f64::from(fx), f64::from(fy));
            let taps = [
                (i0, j0, (1.0 - fx) * (1.0 - fy)),
                (i1, j0, fx * (1.0 - fy)),
                (i0, j1, (1.0 - fx) * fy),
                (i1, j1, fx * fy),
            ];
            let taps = if shape.filter == Filter::Nearest { &taps[..1] } else { &taps };
            for &(i, j, weight) in taps {
                let factor = factors.entry(j * shape.width + i).or_insert(0.0);
                match self.attribution {
                    Attribution::Once => *factor = 1.0,
                    Attribution::TapWeight => *factor += weight,
                    Attribution::EveryTap => *factor += 1.0,
                }
            }
        }
        factors.into_iter().collect()
    }

    // --- noise -----------------------------------------------------------------------------------------------------

    /// Normals of a decoder step, pair by pair.
    fn decoder_noise(&mut self, step: u32, pairs: usize) -> Vec<Vec<f32>> {
        let n = self.state.parameters.decoder.len();
        let mut polar = PolarNormal::default();
        let mut normal = |pair: usize, i: usize| match &mut self.noise {
            Noise::Hash(hash) => normal_at(hash.key, Stream::DecoderEs, step, pair as u32, i),
            Noise::Mersenne(mersenne) => polar.sample(mersenne),
        };
        (0..pairs).map(|pair| (0..n).map(|i| normal(pair, i)).collect()).collect()
    }

    /// Texels of a decoder step.
    pub fn batch(&mut self, step: u32, batch: Option<usize>) -> Vec<usize> {
        let bound = self.texels() as u32;
        let Some(n) = batch else { return (0..bound as usize).collect() };
        let mut draw = |i: usize| match &mut self.noise {
            Noise::Hash(hash) => {
                let word = philox(hash.key, [(i / 4) as u32, 0, step, Stream::Batch as u32])[i % 4];
                ((u64::from(word) * u64::from(bound)) >> 32) as usize
            }
            Noise::Mersenne(mersenne) => mersenne.below(bound) as usize,
        };
        (0..n).map(&mut draw).collect()
    }

    // --- steps -----------------------------------------------------------------------------------------------------

    /// Adam on `w`, the moments being part `first..` of `adam`'s.
    fn adam(w: &mut [f32], adam: &mut Adam, first: usize, g: &[f32], rate: f32, (power1, power2): (f64, f64)) {
        let (correct1, correct2) = ((1.0 / (1.0 - power1)) as f32, (1.0 / (1.0 - power2)) as f32);
        for (i, w) in w.iter_mut().enumerate() {
            let (m, v) = (&mut adam.m[first + i], &mut adam.v[first + i]);
            *m = 0.9f32.mul_add(*m, (1.0 - 0.9f32) * g[i]);
            *v = 0.999f32.mul_add(*v, (1.0 - 0.999f32) * g[i] * g[i]);
            *w -= rate * (*m * correct1) / ((*v * correct2).sqrt() + 1e-8);
        }
    }

    fn step_decoder(&mut self, g: &[f32], rate: f32) {
        let State { parameters, adam_decoder, .. } = &mut self.state;
        adam_decoder.power1 *= f64::from(0.9f32);
        adam_decoder.power2 *= f64::from(0.999f32);
        let powers = (adam_decoder.power1, adam_decoder.power2);
        Self::adam(&mut parameters.decoder, adam_decoder, 0, g, rate, powers);
    }

    /// The decoder's gradient by ES, with the mean loss and the pairs' differences.
    fn decoder_es_gradient(&mut self, step: &DecoderEs) -> (Vec<f32>, f64, Vec<f32>) {
        let noise = self.decoder_noise(step.step, step.pairs);
        let batch = self.batch(step.step, step.batch);
        let Parameters { levels, decoder } = &self.state.parameters;
        let sum = |sigma: f32, e: &[f32]| -> i64 {
            let moved: Vec<f32> = decoder.iter().zip(e).map(|(w, e)| sigma.mul_add(*e, *w)).collect();
            let losses = self.losses(&self.image(levels, &moved));
            batch.iter().map(|&texel| losses[texel]).sum()
        };
        let unit = 1.0 / (UNIT * batch.len() as f64);
        let mut g = vec![0.0f32; decoder.len()];
        let (mut total, mut d) = (0, vec![]);
        for e in &noise {
            let (plus, minus) = (sum(step.sigma, e), sum(-step.sigma, e));
            total += plus + minus;
            d.push((plus - minus) as f32 * unit as f32);
            g.iter_mut().zip(e).for_each(|(g, e)| *g = d[d.len() - 1].mul_add(*e, *g));
        }
        let scale = (1.0 / (2.0 * step.pairs as f64 * f64::from(step.sigma))) as f32;
        g.iter_mut().for_each(|g| *g *= scale);
        (g, total as f64 * unit / (2 * step.pairs) as f64, d)
    }

    /// The structured estimate: only what one weight changes is carried forward.
    fn structured_gradient(&self, batch: &[usize], h: f32) -> Vec<f32> {
        let Parameters { levels, decoder } = &self.state.parameters;
        let traces: Vec<Trace> = (0..self.texels()).map(|texel| self.trace(levels, decoder, texel)).collect();
        let unit = (1.0 / (UNIT * batch.len() as f64)) as f32;
        let mut g = vec![0.0; decoder.len()];
        for k in 0..self.layers() {
            let (w, b) = self.offsets(k);
            for unit_index in 0..self.widths[k + 1] {
                let row = w + unit_index * self.widths[k];
                let weights = (0..self.widths[k]).map(|i| (row + i, Some(i)));
                for (parameter, input) in weights.chain([(b + unit_index, None)]) {
                    let value = decoder[parameter];
                    let steps = [(value + h) - value, (value - h) - value];
                    let sums = steps.map(|step| {
                        let raw = traces
                            .iter()
                            .map(|trace| self.bumped(decoder, trace, k, unit_index, input, step))
                            .collect();
                        let losses = self.losses(&self.filter_image(raw));
                        batch.iter().map(|&texel| losses[texel]).sum::<i64>()
                    });
                    let distance = steps[0] - steps[1];
                    if distance != 0.0 {
                        g[parameter] = (sums[0] - sums[1]) as f32 * unit / distance;
                    }
                }
            }
        }
        g
    }

    fn trace(&self, levels: &[Vec<f32>], decoder: &[f32], texel: usize) -> Trace {
        let (x, y) = self.at(texel);
        let mut trace = Trace { inputs: vec![self.inputs(levels, x, y)], sums: vec![], rests: vec![] };
        for k in 0..self.layers() {
            let sums = self.sums(decoder, k, &trace.inputs[k]);
            trace.rests.push(self.rests(decoder, k, &trace.inputs[k]));
            trace.inputs.push(sums.iter().map(|&s| self.activate(s)).collect());
            trace.sums.push(sums);
        }
        trace
    }

    /// For each sum of a layer, what its roundings lost.
    fn rests(&self, decoder: &[f32], k: usize, inputs: &[f32]) -> Vec<f32> {
        let (w, b) = self.offsets(k);
        let order = self.order_of(k);
        let unit = |o: usize| {
            let (mut sum, mut rest) = (decoder[b + o], 0.0f32);
            for &i in &order {
                let (w, x) = (decoder[w + o * self.widths[k] + i], inputs[i]);
                let next = w.mul_add(x, sum);
                let product = w * x;
                rest += (product - (next - sum)) + w.mul_add(x, -product);
                sum = next;
            }
            rest
        };
        (0..self.widths[k + 1]).map(unit).collect()
    }

    /// Raw outputs of a texel with one weight (of layer `k`, `unit`, `input` or the bias) moved by `step`.
    fn bumped(
        &self,
        decoder: &[f32],
        trace: &Trace,
        k: usize,
        unit: usize,
        input: Option<usize>,
        step: f32,
    ) -> Vec<f32> {
        let x = input.map_or(1.0, |i| trace.inputs[k][i]);
        let mut sums = trace.sums[k].clone();
        sums[unit] += step.mul_add(x, trace.rests[k][unit]);
        if k + 1 == self.layers() {
            return self.finish(decoder, k, &sums);
        }
        let change = self.activate(sums[unit]) - trace.inputs[k + 1][unit];
        let (w, _) = self.offsets(k + 1);
        let column = |o: usize| decoder[w + o * self.widths[k + 1] + unit];
        let kept = trace.sums[k + 1].iter().zip(&trace.rests[k + 1]).enumerate();
        let next: Vec<f32> = kept.map(|(o, (sum, rest))| sum + column(o).mul_add(change, *rest)).collect();
        self.finish(decoder, k + 1, &next)
    }

    /// Central differences of whole evaluations in f32 and in f64, every weight.
    pub fn naive_gradients(&self, batch: &[usize], h: f32) -> (Vec<f32>, Vec<f64>) {
        let Parameters { levels, decoder } = &self.state.parameters;
        let levels64: Vec<Vec<f64>> = levels.iter().map(|v| to_f64(v)).collect();
        let unit = (1.0 / (UNIT * batch.len() as f64)) as f32;
        let each = decoder.iter().enumerate().map(|(i, &w)| {
            let moved = [w + h, w - h];
            let sums = moved.map(|w| {
                let mut decoder = decoder.clone();
                decoder[i] = w;
                let losses = self.losses(&self.image(levels, &decoder));
                batch.iter().map(|&texel| losses[texel]).sum::<i64>()
            });
            let exact = moved.map(|w| {
                let mut decoder = to_f64(decoder);
                decoder[i] = f64::from(w);
                self.loss_f64(&levels64, &decoder, batch)
            });
            let distance = moved[0] - moved[1];
            ((sums[0] - sums[1]) as f32 * unit / distance, (exact[0] - exact[1]) / f64::from(distance))
        });
        each.unzip()
    }

    /// Levels that take noise.
    fn noisy(&self) -> Vec<usize> {
        let levels = self.structure.levels.iter().enumerate();
        levels.filter(|(_, level)| level.selector_bits.is_empty()).map(|(k, _)| k).collect()
    }

    /// Loss differences \[texel] of one latent pair; `e` is empty for a level that stays.
    fn latent_differences(&self, e: &[Vec<f32>], sigma: [f32; 2]) -> Vec<i64> {
        let Parameters { levels, decoder } = &self.state.parameters;
        let units = self.widths[1];
        let (mut plus, mut minus) = (vec![], vec![]);
        for texel in 0..self.texels() {
            let (x, y) = self.at(texel);
            let base = self.sums(decoder, 0, &self.inputs(levels, x, y));
            let mut delta = vec![0.0f32; units];
            for level in [1, 0].into_iter().filter(|&k| e.get(k).is_some_and(|e| !e.is_empty())) {
                let scaled: Vec<f32> = e[level].iter().map(|e| e * sigma[level]).collect();
                let inputs = self.sample(level, &scaled, x, y);
                for (o, delta) in delta.iter_mut().enumerate() {
                    for (column, input) in self.columns(level).zip(&inputs) {
                        *delta = decoder[o * self.widths[0] + column].mul_add(*input, *delta);
                    }
                }
            }
            let pair = |f: fn(f32, f32) -> f32| -> Vec<f32> {
                let sums: Vec<f32> = base.iter().zip(&delta).map(|(b, d)| f(*b, *d)).collect();
                self.finish(decoder, 0, &sums)
            };
            plus.push(pair(|b, d| b + d));
            minus.push(pair(|b, d| b - d));
        }
        let [plus, minus] = [plus, minus].map(|raw| self.losses(&self.filter_image(raw)));
        plus.iter().zip(&minus).map(|(p, m)| p - m).collect()
    }

    /// The latents' gradient by ES, level by level.
    pub fn latent_es_gradient(&mut self, step: &LatentEs) -> Vec<Vec<f32>> {
        let noisy = self.noisy();
        let sizes: Vec<usize> = self.structure.levels.iter().map(|l| l.values()).collect();
        let mut g: Vec<Vec<f32>> = sizes.iter().map(|&n| vec![0.0; n]).collect();
        let credited: Vec<Vec<Vec<(usize, f64)>>> = (0..sizes.len())
            .map(|level| (0..self.texels()).map(|texel| self.credited(level, texel)).collect())
            .collect();
        let (mut hits, mut polar) = ([0usize; 2], PolarNormal::default());
        for pair in 0..step.pairs {
            let mut e: Vec<Vec<f32>> = vec![vec![]; sizes.len()];
            for (turn, &level) in noisy.iter().enumerate() {
                if step.alternate && (pair + step.step as usize) % noisy.len() != turn {
                    continue;
                }
                hits[level] += 1;
                let first: usize = sizes[..level].iter().sum();
                let mut normal = |i: usize| match &mut self.noise {
                    Noise::Hash(hash) => normal_at(hash.key, Stream::LatentEs, step.step, pair as u32, first + i),
                    Noise::Mersenne(mersenne) => polar.sample(mersenne),
                };
                e[level] = (0..sizes[level]).map(&mut normal).collect();
            }
            let d = self.latent_differences(&e, step.sigma);
            for level in noisy.iter().copied().filter(|&k| !e[k].is_empty()) {
                let channels = self.structure.levels[level].channels;
                let mut credits = vec![0.0f64; sizes[level] / channels];
                for (texel, d) in d.iter().enumerate() {
                    for &(latent, factor) in &credited[level][texel] {
                        // Exact while factors are integers: sums stay below 2^53.
                        credits[latent] += *d as f64 * factor;
                    }
                }
                for (i, g) in g[level].iter_mut().enumerate() {
                    *g = (credits[i / channels] as f32).mul_add(e[level][i], *g);
                }
            }
        }
        for level in noisy.into_iter().filter(|&k| hits[k] > 0) {
            let divisor = 2.0 * hits[level] as f64 * f64::from(step.sigma[level]) * self.texels() as f64 * UNIT;
            g[level].iter_mut().for_each(|g| *g *= (1.0 / divisor) as f32);
        }
        g
    }
}

/// A texel's inputs and pre-activations, layer by layer.
struct Trace {
    inputs: Vec<Vec<f32>>,
    sums: Vec<Vec<f32>>,
    /// What the roundings of each sum lost.
    rests: Vec<Vec<f32>>,
}

/// Deblocking weights along an axis.
fn ring(extent: usize, cell: usize, falloff: f32) -> Vec<f32> {
    let weight = |p: usize| {
        let p = (p % cell) as f32 + 0.5;
        let proximity = (1.0 - p / falloff).max(0.0).max((1.0 - (cell as f32 - p) / falloff).max(0.0));
        (2.0 * proximity).min(1.0)
    };
    (0..extent).map(weight).collect()
}

/// What is judged elsewhere: by brute force in the library, and by the other backends in `backend::check`.
fn undefined<T>() -> Result<T> {
    Err(Error::Backend("the reference defines neither Gauss-Newton nor steps around stored values".into()))
}

impl Backend for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn device(&self) -> String {
        "one number at a time".into()
    }

    fn decoder_es(&mut self, step: &DecoderEs) -> Result<DecoderReport> {
        let (g, loss, d) = self.decoder_es_gradient(step);
        self.step_decoder(&g, step.rate);
        let d = to_f64(&d);
        let mean = d.iter().sum::<f64>() / d.len() as f64;
        let variance = d.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>() / d.len() as f64;
        Ok(DecoderReport { loss, statistic: variance.sqrt() })
    }

    fn decoder_fd(&mut self, step: &DecoderFd) -> Result<DecoderReport> {
        let batch = self.batch(step.step, step.batch);
        let g = self.structured_gradient(&batch, step.h);
        let losses = self.losses(&self.image(&self.state.parameters.levels, &self.state.parameters.decoder));
        let loss = batch.iter().map(|&texel| losses[texel]).sum::<i64>() as f64 / (UNIT * batch.len() as f64);
        self.step_decoder(&g, step.rate);
        let rms = (g.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>() / g.len() as f64).sqrt();
        Ok(DecoderReport { loss, statistic: rms })
    }

    fn reset_decoder_adam(&mut self) -> Result<()> {
        let n = self.state.parameters.decoder.len();
        self.state.adam_decoder = Adam { m: vec![0.0; n], v: vec![0.0; n], power1: 1.0, power2: 1.0 };
        Ok(())
    }

    fn latent_es(&mut self, step: &LatentEs) -> Result<()> {
        let noisy = self.noisy();
        if noisy.is_empty() {
            return Ok(());
        }
        let g = self.latent_es_gradient(step);
        let State { parameters, adam_latents, .. } = &mut self.state;
        adam_latents.power1 *= f64::from(0.9f32);
        adam_latents.power2 *= f64::from(0.999f32);
        let powers = (adam_latents.power1, adam_latents.power2);
        let mut first = 0;
        for (level, values) in parameters.levels.iter_mut().enumerate() {
            let n = values.len();
            if noisy.contains(&level) {
                Self::adam(values, adam_latents, first, &g[level], step.rate, powers);
            }
            first += n;
        }
        Ok(())
    }

    fn search_selectors(&mut self, joint: bool) -> Result<usize> {
        let level0 = self.structure.levels[0].clone();
        let (cw, ch) = (self.structure.width / level0.width, self.structure.height / level0.height);
        let mut levels = self.state.parameters.levels.clone();
        let mut changed = 0;
        for cell in 0..level0.texels() {
            let (cx, cy) = (cell % level0.width, cell / level0.width);
            let step = if joint { level0.channels } else { 1 };
            for first in (0..level0.channels).step_by(step) {
                let at = cell * level0.channels + first;
                let bits = &level0.selector_bits[first..first + step];
                // Combination k written out: the last channel varies fastest.
                let set = |levels: &mut [Vec<f32>], mut k: u32| {
                    for (c, &bits) in bits.iter().enumerate().rev() {
                        levels[0][at + c] = grid_value(k % (1 << bits), bits);
                        k /= 1 << bits;
                    }
                };
                let mut error = |k: u32| -> i64 {
                    set(&mut levels, k);
                    let texels = (cy * ch..(cy + 1) * ch).flat_map(|y| (cx * cw..(cx + 1) * cw).map(move |x| (x, y)));
                    let loss = |(x, y): (usize, usize)| {
                        let out = self.raw(&levels, &self.state.parameters.decoder, x, y);
                        self.texel_loss(&self.weights, &out, &self.target_of(y * self.structure.width + x))
                    };
                    texels.map(loss).sum()
                };
                let before = self.state.parameters.levels[0][at..at + step].to_vec();
                let current = before.iter().zip(bits).fold(0, |k, (&z, &bits)| k * (1 << bits) + grid_index(z, bits));
                let (mut best, mut least) = (current, error(current));
                for k in (0..1u32 << bits.iter().sum::<u32>()).filter(|&k| k != current) {
                    let candidate = error(k);
                    if candidate < least {
                        (best, least) = (k, candidate);
                    }
                }
                set(&mut levels, best);
                changed += levels[0][at..at + step].iter().zip(&before).filter(|(a, b)| a != b).count();
            }
        }
        self.state.parameters.levels = levels;
        Ok(changed)
    }

    fn evaluate(&mut self, parameters: Option<&Parameters>, round: bool) -> Result<Vec<f64>> {
        let Parameters { levels, decoder } = parameters.unwrap_or(&self.state.parameters);
        let image = self.image(levels, decoder);
        let Structure { source_width, source_height, width, .. } = self.structure;
        let mut errors = vec![];
        let mut first = 0;
        for texture in &self.structure.textures {
            let channels = first..first + texture.channels;
            first = channels.end;
            let weights = vec![1.0 / texture.channels as f32; texture.channels];
            let most = ((1u32 << texture.depth) - 1) as f32;
            let stored = |x: f32| if round { (x.clamp(0.0, 1.0) * most).round() / most } else { x };
            let mut sum = 0;
            for y in 0..source_height {
                for x in 0..source_width {
                    let texel = y * width + x;
                    let out: Vec<f32> = image[texel][channels.clone()].iter().map(|&x| stored(x)).collect();
                    sum += self.texel_loss(&weights, &out, &self.target_of(texel)[channels.clone()]);
                }
            }
            errors.push(sum as f64 / (UNIT * (source_width * source_height) as f64));
        }
        Ok(errors)
    }

    fn see_as_stored(&mut self, _: Seen) -> Result<()> {
        undefined()
    }

    fn price(&mut self, prices: Vec<Option<Prices>>) -> Result<()> {
        assert!(prices.is_empty(), "the shared suite has no prices");
        Ok(())
    }

    fn decoder_gn(&mut self, _: &DecoderGn) -> Result<DecoderReport> {
        undefined()
    }

    fn latent_gn(&mut self, _: &LatentGn) -> Result<LatentReport> {
        undefined()
    }

    fn search_grid(&mut self, _: usize, _: u32) -> Result<LatentReport> {
        undefined()
    }

    fn decode(&mut self, parameters: Option<&Parameters>) -> Result<Vec<Vec<f32>>> {
        let Parameters { levels, decoder } = parameters.unwrap_or(&self.state.parameters);
        let image = self.image(levels, decoder);
        Ok((0..self.structure.outputs()).map(|o| image.iter().map(|out| out[o]).collect()).collect())
    }

    fn state(&self) -> Result<State> {
        let mersenne = match &self.noise {
            Noise::Mersenne(mersenne) => Some(mersenne.state()),
            Noise::Hash(_) => None,
        };
        Ok(State { mersenne, ..self.state.clone() })
    }

    fn set_state(&mut self, state: State) -> Result<()> {
        if let Some(words) = &state.mersenne {
            self.noise = Noise::Mersenne(Mersenne::from_state(words).expect("a state of the twister"));
        }
        self.state = state;
        Ok(())
    }
}
