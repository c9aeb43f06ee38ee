//! Central differences of the loss in every decoder weight, carrying only what one weight changes.
//!
//! The estimate is that of evaluating the whole decoder at w+h and w-h, weight by weight. Changing one weight changes one
//! unit, so a texel's activations are kept and only the unit, one column of the next layer and what follows are redone:
//! some 57 times less work for 5-36-36-3 (METHOD, "Finite differences").

use super::minibatch::Chunk;
use crate::model::decode::Geometry;
use crate::model::lanes::Lanes;
use crate::model::loss::{differences, sum_losses};
use crate::model::mlp::{
    Layer, Network, Pointwise, Row, STRIP, Start, Weights, activate, dense, forward_from, head, hidden_layer,
    with_activation, with_head,
};

/// Everything that one evaluation of the decoder computes, kept.
#[derive(Clone, Debug)]
struct Trace {
    /// Pre-activations of each hidden layer.
    sums: Vec<Vec<Row>>,
    /// Activations of each hidden layer.
    units: Vec<Vec<Row>>,
    /// The last layer's sums.
    last: Vec<Row>,
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
        let hidden = &network.layers[..network.layers.len() - 1];
        let rows = || hidden.iter().map(|layer| vec![Row::ZERO; layer.outputs]).collect::<Vec<_>>();
        let out = || vec![Row::ZERO; network.outputs()];
        let points = if geometry.deblock.is_some() { 5 } else { 1 };
        Differences {
            traces: (0..points).map(|_| Trace { sums: rows(), units: rows(), last: out(), out: out() }).collect(),
            out: vec![out(); points],
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
fn places(network: &Network, k: usize, layer: &Layer, unit: usize, column: usize) -> (usize, usize) {
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
        let hidden = network.layers.len() - 1;
        for k in 0..hidden {
            let layer = &network.layers[k];
            let (before, after) = self.units.split_at_mut(k);
            let x = before.last().map_or(inputs, |units| units.as_slice());
            let bias = Start::Bias(&packed[layer.biases..][..layer.outputs]);
            dense(l, Weights::of(packed, layer, 0), bias, x, &mut self.sums[k], None);
            after[0].copy_from_slice(&self.sums[k]);
            activate(l, network, &mut after[0]);
        }
        let layer = &network.layers[hidden];
        let bias = Start::Bias(&packed[layer.biases..][..layer.outputs]);
        dense(l, Weights::of(packed, layer, 0), bias, &self.units[hidden - 1], &mut self.last, None);
        self.out.copy_from_slice(&self.last);
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
        if bump.layer == last {
            out.copy_from_slice(&self.out);
            let (sum, out) = (&self.last[bump.unit], &mut out[bump.unit]);
            l.enter(
                #[inline(always)]
                || with_head!(network, f => bump_row(l, sum, input, step, f, None, out)),
            );
            return;
        }
        let mut change = Row::ZERO;
        let (sum, unit) = (&self.sums[bump.layer][bump.unit], &self.units[bump.layer][bump.unit]);
        l.enter(
            #[inline(always)]
            || with_activation!(network, f => bump_row(l, sum, input, step, f, Some(unit), &mut change)),
        );
        let next = &network.layers[bump.layer + 1];
        let column = Weights::of(packed, next, bump.unit);
        let change = std::slice::from_ref(&change);
        if bump.layer + 1 == last {
            dense(l, column, Start::Rows(&self.last), change, out, None);
            head(l, network, out);
            return;
        }
        let units = &mut a[..next.outputs];
        hidden_layer(l, network, column, Start::Rows(&self.sums[bump.layer + 1]), change, units);
        forward_from(l, network, packed, bump.layer + 1, (a, b), out);
    }
}

/// out = f(sum + step input) - before, the input being 1 for a bias and `before` 0 where absent.
#[inline(always)]
fn bump_row<L: Lanes>(
    l: L,
    sum: &Row,
    input: Option<&Row>,
    step: f32,
    f: impl Pointwise,
    before: Option<&Row>,
    out: &mut Row,
) {
    let mut at = 0;
    while at < STRIP {
        let x = match input {
            Some(input) => l.load(&input.0[at..]),
            None => l.splat(1.0),
        };
        let y = f.apply(l, l.fma(l.splat(step), x, l.load(&sum.0[at..])));
        let y = match before {
            Some(before) => l.sub(y, l.load(&before.0[at..])),
            None => y,
        };
        l.store(y, &mut out.0[at..]);
        at += L::N;
    }
}
