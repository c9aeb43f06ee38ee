//! The decoder: a small multilayer perceptron evaluated on strips of texels.
//!
//! Planar layout: one [`Row`] holds one unit of [`STRIP`] texels, so that lanes load contiguously whatever their number.
//! The order of every sum is fixed (DESIGN section 5, rule 3): a pre-activation starts at the bias and adds inputs in
//! *summation order*: position features, level 1, level 0. [`Network::pack`] permutes the first layer's columns into it.

use super::lanes::Lanes;
use super::math;
use super::structure::{Activation, Structure};

/// Texels evaluated together.
pub const STRIP: usize = 64;

/// One value for each texel of a strip.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Row(pub [f32; STRIP]);

impl Row {
    /// All zeros.
    pub const ZERO: Row = Row([0.0; STRIP]);
}

/// Where one layer's parameters lie: `outputs` x `inputs` weights row-major, then `outputs` biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Values read.
    pub inputs: usize,
    /// Units.
    pub outputs: usize,
    /// Index of the first weight among the decoder's parameters.
    pub weights: usize,
    /// Index of the first bias.
    pub biases: usize,
}

/// The decoder's layers and the order of its inputs.
#[derive(Clone, Debug)]
pub struct Network {
    /// First to last; the last one's units are the decoder's outputs.
    pub layers: Vec<Layer>,
    /// Number of position features: columns 0..position in summation order.
    pub position: usize,
    /// Channels of levels 0 and 1 (0 where there is no level 1). Level 1 follows the position features, level 0 is last.
    pub channels: [usize; 2],
    /// Hidden activation.
    pub activation: Activation,
    /// Slope below zero of the leaky activation.
    pub leak: f32,
    /// Clamp in place of the sigmoid.
    pub clamp: bool,
}

impl Network {
    /// The network of `structure` with `position` position features.
    pub fn new(structure: &Structure, position: usize) -> Self {
        let channels = [structure.levels[0].channels, structure.levels.get(1).map_or(0, |l| l.channels)];
        let mut widths = vec![position + channels[0] + channels[1]];
        widths.extend(&structure.hidden);
        widths.push(structure.outputs());
        let mut next = 0;
        let mut layers = vec![];
        for pair in widths.windows(2) {
            let (inputs, outputs) = (pair[0], pair[1]);
            layers.push(Layer { inputs, outputs, weights: next, biases: next + inputs * outputs });
            next += (inputs + 1) * outputs;
        }
        let Structure { activation, leak, clamp, .. } = *structure;
        Network { layers, position, channels, activation, leak, clamp }
    }

    /// Number of parameters.
    pub fn parameters(&self) -> usize {
        self.layers.iter().map(|l| (l.inputs + 1) * l.outputs).sum()
    }

    /// Decoder inputs.
    pub fn inputs(&self) -> usize {
        self.layers[0].inputs
    }

    /// Decoder outputs.
    pub fn outputs(&self) -> usize {
        self.layers[self.layers.len() - 1].outputs
    }

    /// The widest row count that any layer reads or writes.
    pub fn widest(&self) -> usize {
        self.layers.iter().map(|l| l.inputs.max(l.outputs)).max().unwrap_or(0)
    }

    /// Columns of `level` in summation order.
    pub fn columns(&self, level: usize) -> std::ops::Range<usize> {
        let end1 = self.position + self.channels[1];
        if level == 1 { self.position..end1 } else { end1..end1 + self.channels[0] }
    }

    /// Parameter column of column `k` in summation order.
    pub fn parameter_column(&self, k: usize) -> usize {
        let latents = self.channels[0] + self.channels[1];
        if k < self.position {
            latents + k
        } else if k < self.position + self.channels[1] {
            k - self.position + self.channels[0]
        } else {
            k - self.position - self.channels[1]
        }
    }

    /// Copies parameters with the first layer's columns in summation order.
    pub fn pack(&self, parameters: &[f32], packed: &mut [f32]) {
        packed.copy_from_slice(parameters);
        let first = self.layers[0];
        for unit in 0..first.outputs {
            let row = first.weights + unit * first.inputs;
            for k in 0..first.inputs {
                packed[row + k] = parameters[row + self.parameter_column(k)];
            }
        }
    }

    /// Slope below zero where the activation is piecewise linear.
    fn slope(&self) -> Option<f32> {
        match self.activation {
            Activation::Leaky => Some(self.leak),
            Activation::Relu => Some(0.0),
            Activation::Tanh | Activation::Sine => None,
        }
    }
}

/// What a dense layer's sums start from.
#[derive(Clone, Copy)]
pub enum Start<'a> {
    /// One value a unit, the same for every texel.
    Bias(&'a [f32]),
    /// Zero.
    Zero,
    /// Partial sums made before, one row a unit.
    Rows(&'a [Row]),
}

/// Rows of a dense layer's weight matrix: unit o's weights of consecutive columns start at `o * stride` of `weights`.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    /// Packed parameters from the first used column of unit 0 on.
    pub weights: &'a [f32],
    /// Distance from one unit's row to the next.
    pub stride: usize,
}

impl<'a> Weights<'a> {
    /// The columns of `layer` from `column` on.
    pub fn of(packed: &'a [f32], layer: &Layer, column: usize) -> Self {
        Weights { weights: &packed[layer.weights + column..layer.biases], stride: layer.inputs }
    }
}

/// `y[o] = start[o] + sum over i of w[o][i] x[i]`, fused multiply-adds in the order of i; with a slope, y below zero is
/// multiplied by it.
///
/// Counted as 2 x.len() y.len() flops a texel.
pub fn dense<L: Lanes>(l: L, w: Weights, start: Start, x: &[Row], y: &mut [Row], slope: Option<f32>) {
    l.enter(
        #[inline(always)]
        || match L::BLOCK {
            4 => dense_blocks::<L, 4>(l, w, start, x, y, slope),
            2 => dense_blocks::<L, 2>(l, w, start, x, y, slope),
            _ => dense_blocks::<L, 1>(l, w, start, x, y, slope),
        },
    );
}

#[inline(always)]
fn dense_blocks<L: Lanes, const V: usize>(
    l: L,
    w: Weights,
    start: Start,
    x: &[Row],
    y: &mut [Row],
    slope: Option<f32>,
) {
    let mut unit = 0;
    while unit < y.len() {
        let step = match y.len() - unit {
            1 => dense_units::<L, 1, V>(l, w, start, x, y, unit, slope),
            2 => dense_units::<L, 2, V>(l, w, start, x, y, unit, slope),
            3 => dense_units::<L, 3, V>(l, w, start, x, y, unit, slope),
            4 => dense_units::<L, 4, V>(l, w, start, x, y, unit, slope),
            5 => dense_units::<L, 5, V>(l, w, start, x, y, unit, slope),
            _ => dense_units::<L, 6, V>(l, w, start, x, y, unit, slope),
        };
        unit += step;
    }
}

/// `O` units from `unit` on over the whole strip, `V` vectors at a time; returns `O`.
#[inline(always)]
fn dense_units<L: Lanes, const O: usize, const V: usize>(
    l: L,
    w: Weights,
    start: Start,
    x: &[Row],
    y: &mut [Row],
    unit: usize,
    slope: Option<f32>,
) -> usize {
    // Plain loops fill the arrays: closures given to `array::from_fn` are compiled apart, without the level's instructions.
    let mut rows = [&w.weights[..0]; O];
    for (o, row) in rows.iter_mut().enumerate() {
        *row = &w.weights[(unit + o) * w.stride..][..x.len()];
    }
    let mut at = 0;
    while at < STRIP {
        let zero = l.splat(0.0);
        let mut sums = [[zero; V]; O];
        match start {
            Start::Zero => {}
            Start::Bias(bias) => {
                for (sums, &bias) in sums.iter_mut().zip(&bias[unit..][..O]) {
                    *sums = [l.splat(bias); V];
                }
            }
            Start::Rows(from) => {
                for (sums, from) in sums.iter_mut().zip(&from[unit..][..O]) {
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = l.load(&from.0[at + v * L::N..]);
                    }
                }
            }
        }
        for (i, x) in x.iter().enumerate() {
            let mut values = [zero; V];
            for (v, value) in values.iter_mut().enumerate() {
                *value = l.load(&x.0[at + v * L::N..]);
            }
            for (sums, row) in sums.iter_mut().zip(&rows) {
                let weight = l.splat(row[i]);
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum = l.fma(weight, value, *sum);
                }
            }
        }
        for (o, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                let sum = match slope {
                    Some(slope) => leaky(l, slope, sum),
                    None => sum,
                };
                l.store(sum, &mut y[unit + o].0[at + v * L::N..]);
            }
        }
        at += V * L::N;
    }
    O
}

/// x, or slope x where x is below zero.
#[inline(always)]
pub fn leaky<L: Lanes>(l: L, slope: f32, x: L::F) -> L::F {
    l.select(l.lt(x, l.splat(0.0)), l.mul(x, l.splat(slope)), x)
}

/// A function of one vector: what follows a sum. A trait in place of closures, so that the choice between functions is
/// made once for a strip and not once a vector.
pub trait Pointwise: Copy {
    /// Its value at `x`.
    fn apply<L: Lanes>(self, l: L, x: L::F) -> L::F;
}

/// x, or slope x below zero.
#[derive(Clone, Copy)]
pub struct Leaky(pub f32);
/// Hyperbolic tangent.
#[derive(Clone, Copy)]
pub struct Tanh;
/// Sine.
#[derive(Clone, Copy)]
pub struct Sine;
/// 1 / (1 + exp(-x)).
#[derive(Clone, Copy)]
pub struct Sigmoid;
/// x + 1/2, limited to [0, 1].
#[derive(Clone, Copy)]
pub struct Clamp;

impl Pointwise for Leaky {
    #[inline(always)]
    fn apply<L: Lanes>(self, l: L, x: L::F) -> L::F {
        leaky(l, self.0, x)
    }
}

impl Pointwise for Tanh {
    #[inline(always)]
    fn apply<L: Lanes>(self, l: L, x: L::F) -> L::F {
        math::tanh(l, x)
    }
}

impl Pointwise for Sine {
    #[inline(always)]
    fn apply<L: Lanes>(self, l: L, x: L::F) -> L::F {
        math::sin(l, x)
    }
}

impl Pointwise for Sigmoid {
    #[inline(always)]
    fn apply<L: Lanes>(self, l: L, x: L::F) -> L::F {
        math::sigmoid(l, x)
    }
}

impl Pointwise for Clamp {
    #[inline(always)]
    fn apply<L: Lanes>(self, l: L, x: L::F) -> L::F {
        let (zero, one) = (l.splat(0.0), l.splat(1.0));
        let x = l.add(x, l.splat(0.5));
        let x = l.select(l.lt(x, zero), zero, x);
        l.select(l.lt(one, x), one, x)
    }
}

/// Evaluates an expression with `$f` bound to the network's hidden activation.
macro_rules! with_activation {
    ($network:expr, $f:ident => $body:expr) => {
        match $network.activation {
            $crate::model::structure::Activation::Leaky => {
                let $f = $crate::model::mlp::Leaky($network.leak);
                $body
            }
            $crate::model::structure::Activation::Relu => {
                let $f = $crate::model::mlp::Leaky(0.0);
                $body
            }
            $crate::model::structure::Activation::Tanh => {
                let $f = $crate::model::mlp::Tanh;
                $body
            }
            $crate::model::structure::Activation::Sine => {
                let $f = $crate::model::mlp::Sine;
                $body
            }
        }
    };
}
pub(crate) use with_activation;

/// Evaluates an expression with `$f` bound to the network's output activation.
macro_rules! with_head {
    ($network:expr, $f:ident => $body:expr) => {
        if $network.clamp {
            let $f = $crate::model::mlp::Clamp;
            $body
        } else {
            let $f = $crate::model::mlp::Sigmoid;
            $body
        }
    };
}
pub(crate) use with_head;

/// The hidden activation of pre-activations, in place.
pub fn activate<L: Lanes>(l: L, network: &Network, rows: &mut [Row]) {
    l.enter(
        #[inline(always)]
        || with_activation!(network, f => map_rows(l, rows, f)),
    );
}

/// The output activation of the last layer's sums, in place.
pub fn head<L: Lanes>(l: L, network: &Network, rows: &mut [Row]) {
    l.enter(
        #[inline(always)]
        || with_head!(network, f => map_rows(l, rows, f)),
    );
}

#[inline(always)]
fn map_rows<L: Lanes>(l: L, rows: &mut [Row], f: impl Pointwise) {
    for row in rows {
        let mut at = 0;
        while at < STRIP {
            l.store(f.apply(l, l.load(&row.0[at..])), &mut row.0[at..]);
            at += L::N;
        }
    }
}

/// A dense layer with the hidden activation applied.
pub fn hidden_layer<L: Lanes>(l: L, network: &Network, w: Weights, start: Start, x: &[Row], y: &mut [Row]) {
    dense(l, w, start, x, y, network.slope());
    if network.slope().is_none() {
        activate(l, network, y);
    }
}

/// Everything behind hidden layer `done`: from its activations in `a` to the outputs; `b` is scratch.
pub fn forward_from<'a, L: Lanes>(
    l: L,
    network: &Network,
    packed: &[f32],
    done: usize,
    (mut a, mut b): (&'a mut [Row], &'a mut [Row]),
    out: &mut [Row],
) {
    let last = network.layers.len() - 1;
    for layer in &network.layers[done + 1..last] {
        let bias = Start::Bias(&packed[layer.biases..][..layer.outputs]);
        hidden_layer(l, network, Weights::of(packed, layer, 0), bias, &a[..layer.inputs], &mut b[..layer.outputs]);
        std::mem::swap(&mut a, &mut b);
    }
    let layer = &network.layers[last];
    let bias = Start::Bias(&packed[layer.biases..][..layer.outputs]);
    dense(l, Weights::of(packed, layer, 0), bias, &a[..layer.inputs], out, None);
    head(l, network, out);
}

/// The whole decoder: inputs `x` in summation order to outputs `out`; `a` and `b` are scratch of
/// [`Network::widest`] rows.
pub fn forward<L: Lanes>(
    l: L,
    network: &Network,
    packed: &[f32],
    x: &[Row],
    (a, b): (&mut [Row], &mut [Row]),
    out: &mut [Row],
) {
    let first = &network.layers[0];
    let bias = Start::Bias(&packed[first.biases..][..first.outputs]);
    hidden_layer(l, network, Weights::of(packed, first, 0), bias, x, &mut a[..first.outputs]);
    forward_from(l, network, packed, 0, (a, b), out);
}

/// Activations of an antithetic pair's first layer: `plus` = act(base + delta), `minus` = act(base - delta).
pub fn pair_activations<L: Lanes>(
    l: L,
    network: &Network,
    base: &[Row],
    delta: &[Row],
    plus: &mut [Row],
    minus: &mut [Row],
) {
    l.enter(
        #[inline(always)]
        || with_activation!(network, f => pair_rows(l, f, base, delta, plus, minus)),
    );
}

#[inline(always)]
fn pair_rows<L: Lanes>(l: L, f: impl Pointwise, base: &[Row], delta: &[Row], plus: &mut [Row], minus: &mut [Row]) {
    for (((base, delta), plus), minus) in base.iter().zip(delta).zip(plus).zip(minus) {
        let mut at = 0;
        while at < STRIP {
            let (x, d) = (l.load(&base.0[at..]), l.load(&delta.0[at..]));
            l.store(f.apply(l, l.add(x, d)), &mut plus.0[at..]);
            l.store(f.apply(l, l.sub(x, d)), &mut minus.0[at..]);
            at += L::N;
        }
    }
}
