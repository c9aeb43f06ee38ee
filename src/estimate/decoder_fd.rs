//! Central differences of the loss in every decoder weight, carrying only what one weight changes.
//!
//! The estimate is that of evaluating the whole decoder at w+h and w-h, weight by weight. Changing one weight changes one
//! unit, so a texel's activations are kept and only the unit, one column of the next layer and what follows are redone:
//! some 57 times less work for 5-36-36-3 (METHOD, "Finite differences").
//!
//! A kept sum is kept with what its roundings lost. Without that the sums at w+h and w-h would start from one point of the
//! f32 grid, their rounding errors would be mirror images, and the difference would add them up.

use super::minibatch::Chunk;
use crate::model::decode::Geometry;
use crate::model::lanes::Lanes;
use crate::model::loss::{differences, sum_losses};
use crate::model::mlp::{
    Layer, Network, Pointwise, Row, STRIP, Weights, activate, forward_from, head, with_activation, with_head,
};

/// Everything that one evaluation of the decoder computes, kept.
#[derive(Clone, Debug)]
struct Trace {
    /// Sums of each layer, as the decoder rounds them, and what the roundings lost.
    sums: Vec<Vec<Row>>,
    rests: Vec<Vec<Row>>,
    /// Activations of each hidden layer.
    units: Vec<Vec<Row>>,
    /// The outputs.
    out: Vec<Row>,
}

/// Scratch of one thread.
#[derive(Clone, Debug)]
pub struct Differences {
    traces: Vec<Trace>,
    out: Vec<Vec<Row>>,
    a: Vec<Row>,
    b: Vec<Row>,
    loss: [Row; 2],
}

/// The two steps of a parameter as f32 realises them: fl(w + h) - w and fl(w - h) - w.
#[inline(always)]
pub fn realised_steps(w: f32, h: f32) -> [f32; 2] {
    [(w + h) - w, (w - h) - w]
}

impl Differences {
    /// Room for one thread; `points` as in [`Chunk`].
    pub fn new(geometry: &Geometry) -> Self {
        let network = &geometry.network;
        let rows = |layers: &[Layer]| layers.iter().map(|layer| vec![Row::ZERO; layer.outputs]).collect::<Vec<_>>();
        let (all, hidden) = (&network.layers[..], &network.layers[..network.layers.len() - 1]);
        let trace = || Trace {
            sums: rows(all),
            rests: rows(all),
            units: rows(hidden),
            out: vec![Row::ZERO; network.outputs()],
        };
        let points = if geometry.deblock.is_some() { 5 } else { 1 };
        Differences {
            traces: (0..points).map(|_| trace()).collect(),
            out: vec![vec![Row::ZERO; network.outputs()]; points],
            a: vec![Row::ZERO; network.widest()],
            b: vec![Row::ZERO; network.widest()],
            loss: [Row::ZERO; 2],
        }
    }

    /// Adds L(w+h) - L(w-h) over a chunk, in units of 2^-36, to `sums` (one a parameter, in parameter order); returns the
    /// unperturbed loss of the chunk.
    pub fn add_chunk<L: Lanes>(
        &mut self,
        l: L,
        geometry: &Geometry,
        decoder: Decoder,
        chunk: &Chunk,
        sums: &mut [i64],
    ) -> i64 {
        let network = &geometry.network;
        let packed = decoder.packed;
        for (trace, inputs) in self.traces.iter_mut().zip(&chunk.inputs) {
            trace.record(l, network, packed, inputs);
        }
        for (k, layer) in network.layers.iter().enumerate() {
            for unit in 0..layer.outputs {
                for column in 0..=layer.inputs {
                    let (place, parameter) = places(network, k, layer, unit, column);
                    let bumps =
                        realised_steps(packed[place], decoder.h).map(|step| Bump { layer: k, unit, column, step });
                    sums[parameter] += self.difference(l, network, decoder, chunk, bumps);
                }
            }
        }
        for (out, trace) in self.out.iter_mut().zip(&self.traces) {
            out.copy_from_slice(&trace.out);
        }
        chunk.loss(l, decoder.weights, &mut self.out, &mut self.loss[0]);
        sum_losses(&self.loss[0], chunk.count)
    }

    fn difference<L: Lanes>(
        &mut self,
        l: L,
        network: &Network,
        decoder: Decoder,
        chunk: &Chunk,
        bumps: [Bump; 2],
    ) -> i64 {
        for (sign, bump) in bumps.into_iter().enumerate() {
            let points = self.traces.iter().zip(&chunk.inputs).zip(&mut self.out);
            for ((trace, inputs), out) in points {
                trace.bumped(l, network, decoder.packed, inputs, bump, (&mut self.a, &mut self.b, out));
            }
            chunk.loss(l, decoder.weights, &mut self.out, &mut self.loss[sign]);
        }
        let mut d = [0; STRIP];
        differences(&self.loss[0], &self.loss[1], &mut d);
        d[..chunk.count].iter().sum()
    }
}

/// The decoder whose weights are changed.
#[derive(Clone, Copy)]
pub struct Decoder<'a> {
    /// Parameters as [`Network::pack`] lays them out.
    pub packed: &'a [f32],
    /// Loss weight of each output.
    pub weights: &'a [f32],
    /// Half the distance between the two evaluations of a weight.
    pub h: f32,
}

/// A change by `step` of one weight: of `layer`, `unit`, input `column` in summation order; the column behind the last is
/// the bias.
#[derive(Clone, Copy)]
struct Bump {
    layer: usize,
    unit: usize,
    column: usize,
    step: f32,
}

/// Where a weight lies among the packed parameters, and among the parameters.
pub(super) fn places(network: &Network, k: usize, layer: &Layer, unit: usize, column: usize) -> (usize, usize) {
    if column == layer.inputs {
        return (layer.biases + unit, layer.biases + unit);
    }
    let row = layer.weights + unit * layer.inputs;
    let parameter = if k == 0 { network.parameter_column(column) } else { column };
    (row + column, row + parameter)
}

impl Trace {
    /// Evaluates the decoder and keeps every layer.
    fn record<L: Lanes>(&mut self, l: L, network: &Network, packed: &[f32], inputs: &[Row]) {
        let last = network.layers.len() - 1;
        for (k, layer) in network.layers.iter().enumerate() {
            let x = if k == 0 { inputs } else { &self.units[k - 1] };
            let (sums, rests) = (&mut self.sums[k], &mut self.rests[k]);
            l.enter(
                #[inline(always)]
                || split_sums(l, packed, layer, x, sums, rests),
            );
            if k < last {
                self.units[k].copy_from_slice(&self.sums[k]);
                activate(l, network, &mut self.units[k]);
            }
        }
        self.out.copy_from_slice(&self.sums[last]);
        head(l, network, &mut self.out);
    }

    /// The outputs with one weight changed.
    fn bumped<L: Lanes>(
        &self,
        l: L,
        network: &Network,
        packed: &[f32],
        inputs: &[Row],
        bump: Bump,
        (a, b, out): (&mut [Row], &mut [Row], &mut [Row]),
    ) {
        let step = bump.step;
        let last = network.layers.len() - 1;
        let below = if bump.layer == 0 { inputs } else { &self.units[bump.layer - 1] };
        let input = below.get(bump.column);
        let (sum, rest) = (&self.sums[bump.layer][bump.unit], &self.rests[bump.layer][bump.unit]);
        if bump.layer == last {
            out.copy_from_slice(&self.out);
            let out = &mut out[bump.unit];
            l.enter(
                #[inline(always)]
                || with_head!(network, f => bump_row(l, (sum, rest), input, step, f, out)),
            );
            return;
        }
        let mut change = Row::ZERO;
        let unit = &self.units[bump.layer][bump.unit];
        l.enter(
            #[inline(always)]
            || {
                with_activation!(network, f => bump_row(l, (sum, rest), input, step, f, &mut change));
                subtract(l, &mut change, unit);
            },
        );
        let next = &network.layers[bump.layer + 1];
        let column = Weights::of(packed, next, bump.unit);
        let (sums, rests) = (&self.sums[bump.layer + 1], &self.rests[bump.layer + 1]);
        if bump.layer + 1 == last {
            l.enter(
                #[inline(always)]
                || with_head!(network, f => add_column(l, f, column, &change, sums, rests, out)),
            );
            return;
        }
        let units = &mut a[..next.outputs];
        l.enter(
            #[inline(always)]
            || with_activation!(network, f => add_column(l, f, column, &change, sums, rests, units)),
        );
        forward_from(l, network, packed, bump.layer + 1, (a, b), out);
    }
}

/// The sums of a dense layer in their fixed order, and for each the sum of what its roundings lost.
///
/// An fma rounds s + w x to n; with p = fl(w x) and its exact error fma(w, x, -p), what is lost is about
/// (p - (n - s)) + error (two-sum, exact where |s| >= |p|).
#[inline(always)]
fn split_sums<L: Lanes>(l: L, packed: &[f32], layer: &Layer, x: &[Row], sums: &mut [Row], rests: &mut [Row]) {
    for (o, (sums, rests)) in sums.iter_mut().zip(rests).enumerate() {
        let row = &packed[layer.weights + o * layer.inputs..][..layer.inputs];
        let mut at = 0;
        while at < STRIP {
            let (mut sum, mut rest) = (l.splat(packed[layer.biases + o]), l.splat(0.0));
            for (w, x) in row.iter().zip(x) {
                let (w, x) = (l.splat(*w), l.load(&x.0[at..]));
                let product = l.mul(w, x);
                let error = l.fma(w, x, l.neg(product));
                let next = l.fma(w, x, sum);
                rest = l.add(rest, l.add(l.sub(product, l.sub(next, sum)), error));
                sum = next;
            }
            l.store(sum, &mut sums.0[at..]);
            l.store(rest, &mut rests.0[at..]);
            at += L::N;
        }
    }
}

/// `y[o] = f(sums[o] + (rests[o] + w[o] change))` for one column of a layer.
#[inline(always)]
fn add_column<L: Lanes>(
    l: L,
    f: impl Pointwise,
    column: Weights,
    change: &Row,
    sums: &[Row],
    rests: &[Row],
    y: &mut [Row],
) {
    for (o, ((sum, rest), y)) in sums.iter().zip(rests).zip(y).enumerate() {
        let w = l.splat(column.weights[o * column.stride]);
        let mut at = 0;
        while at < STRIP {
            let moved = l.fma(w, l.load(&change.0[at..]), l.load(&rest.0[at..]));
            l.store(f.apply(l, l.add(l.load(&sum.0[at..]), moved)), &mut y.0[at..]);
            at += L::N;
        }
    }
}

/// row -= other.
#[inline(always)]
fn subtract<L: Lanes>(l: L, row: &mut Row, other: &Row) {
    let mut at = 0;
    while at < STRIP {
        l.store(l.sub(l.load(&row.0[at..]), l.load(&other.0[at..])), &mut row.0[at..]);
        at += L::N;
    }
}

/// out = f(sum + (rest + step input)), the input being 1 for a bias.
#[inline(always)]
fn bump_row<L: Lanes>(
    l: L,
    (sum, rest): (&Row, &Row),
    input: Option<&Row>,
    step: f32,
    f: impl Pointwise,
    out: &mut Row,
) {
    let mut at = 0;
    while at < STRIP {
        let x = match input {
            Some(input) => l.load(&input.0[at..]),
            None => l.splat(1.0),
        };
        let moved = l.fma(l.splat(step), x, l.load(&rest.0[at..]));
        l.store(f.apply(l, l.add(l.load(&sum.0[at..]), moved)), &mut out.0[at..]);
        at += L::N;
    }
}
