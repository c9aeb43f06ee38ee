//! The decoder's normal equations over a minibatch.
//!
//! A unit's pre-activation is linear in its incoming weights, so bumping it by +-h gives the outputs' sensitivity
//! s_oj(n), and the column of weight (j, a) is that times the unit's input x_a(n) (1 for the bias). Summed over outputs
//! first, the entry of weights (j, a) and (k, b) is sum_n (sum_o s_oj s_ok) x_a x_b: for two layers that is the product
//! of a matrix over pairs of units and one over pairs of inputs, whose size does not grow with the outputs.
//!
//! Texels come in fixed chunks of [`CHUNK`]; a chunk's products are f32, and chunks are added in their order in f64.

use crate::estimate::decoder_fd::places;
use crate::estimate::minibatch::Chunk;
use crate::model::lanes::Lanes;
use crate::model::mlp::{Network, Row, STRIP, Start, Weights, activate, dense, forward_from, head, hidden_layer};
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use std::ops::Range;

/// Texels whose products are made at once.
pub const CHUNK: usize = 1024;

/// Pairs of units that a task multiplies at once.
const PAIRS: usize = 96;

/// Where the quantities of a strip lie among its rows.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Row of each layer's first input; the row behind the last input is the bias's 1.
    inputs: Vec<usize>,
    /// Row of each layer's first sensitivity, \[unit]\[output].
    sensitivities: Vec<usize>,
    /// Row of the first residual.
    residuals: usize,
    /// Rows of a strip.
    pub rows: usize,
    outputs: usize,
    /// (earlier layer, later layer), their pairs of units and pairs of inputs.
    products: Vec<Product>,
}

/// The part of the normal matrix that belongs to two layers.
#[derive(Clone, Debug)]
pub struct Product {
    layers: (usize, usize),
    /// (unit of the first layer, unit of the second).
    units: Vec<(usize, usize)>,
    /// (input of the first layer, input of the second).
    inputs: Vec<(usize, usize)>,
}

impl Product {
    /// Pairs of inputs: rows of the right factor.
    pub fn columns(&self) -> usize {
        self.inputs.len()
    }
}

/// A run of unit pairs of one product: what one thread multiplies.
#[derive(Clone, Debug)]
pub struct Task {
    /// Index of the product.
    pub product: usize,
    units: Range<usize>,
    /// Sums so far, \[unit pair]\[input pair].
    sums: Vec<f64>,
    left: Vec<f32>,
    chunk: Vec<f32>,
}

impl Layout {
    /// The layout for `network`.
    pub fn new(network: &Network) -> Self {
        let shape: Vec<_> = network.layers.iter().map(|l| (l.inputs + 1, l.outputs)).collect();
        let outputs = network.outputs();
        let mut rows = 0;
        let mut take = |n: usize| {
            rows += n;
            rows - n
        };
        let inputs = shape.iter().map(|&(inputs, _)| take(inputs)).collect();
        let sensitivities = shape.iter().map(|&(_, units)| take(units * outputs)).collect();
        let residuals = take(outputs);
        let pairs = |a: usize, b: usize, same: bool| -> Vec<(usize, usize)> {
            (0..a).flat_map(|i| (if same { i } else { 0 }..b).map(move |j| (i, j))).collect()
        };
        let mut products = vec![];
        for (i, a) in shape.iter().enumerate() {
            for (j, b) in shape.iter().enumerate().skip(i) {
                let same = i == j;
                let mut units = pairs(a.1, b.1, same);
                if same && i + 1 == shape.len() {
                    // An output's sums reach that output alone.
                    units.retain(|(j, k)| j == k);
                }
                products.push(Product { layers: (i, j), units, inputs: pairs(a.0, b.0, same) });
            }
        }
        Layout { inputs, sensitivities, residuals, rows, outputs, products }
    }

    /// The products of all pairs of layers.
    pub fn products(&self) -> &[Product] {
        &self.products
    }

    /// The first row of a layer's inputs, of its sensitivities, and of the residuals.
    pub fn rows_of(&self, layer: usize) -> [usize; 3] {
        [self.inputs[layer], self.sensitivities[layer], self.residuals]
    }

    /// The pairs of rows that a product multiplies: first sensitivities of units, and inputs.
    pub fn row_pairs(&self, product: &Product) -> [Vec<[u32; 2]>; 2] {
        let (a, b) = product.layers;
        let unit = |layer: usize, unit: usize| (self.sensitivities[layer] + unit * self.outputs) as u32;
        let input = |layer: usize, input: usize| (self.inputs[layer] + input) as u32;
        [
            product.units.iter().map(|&(j, k)| [unit(a, j), unit(b, k)]).collect(),
            product.inputs.iter().map(|&(j, k)| [input(a, j), input(b, k)]).collect(),
        ]
    }

    /// Product number `product` as one task whose sums, \[unit pair]\[input pair], were made elsewhere.
    pub fn task_of(&self, product: usize, sums: Vec<f64>) -> Task {
        Task { product, units: 0..self.products[product].units.len(), sums, left: vec![], chunk: vec![] }
    }

    /// All products, cut into runs of unit pairs, with no sums yet.
    pub fn tasks(&self) -> Vec<Task> {
        let mut tasks = vec![];
        for (index, product) in self.products.iter().enumerate() {
            for start in (0..product.units.len()).step_by(PAIRS) {
                let units = start..(start + PAIRS).min(product.units.len());
                let n = units.len() * product.inputs.len();
                let left = vec![0.0; units.len() * CHUNK];
                tasks.push(Task { product: index, units, sums: vec![0.0; n], left, chunk: vec![0.0; n] });
            }
        }
        tasks
    }

    /// One row of a product's right factor over a chunk of strips: inputs a and b of pair `pair`, multiplied.
    #[inline(always)]
    pub fn input_pair(&self, product: &Product, pair: usize, strips: &[Vec<Row>], out: &mut [f32]) {
        let (a, b) = product.inputs[pair];
        let (a, b) = (self.inputs[product.layers.0] + a, self.inputs[product.layers.1] + b);
        for (out, strip) in out.chunks_exact_mut(STRIP).zip(strips) {
            for ((out, x), y) in out.iter_mut().zip(&strip[a].0).zip(&strip[b].0) {
                *out = x * y;
            }
        }
    }

    /// Adds a chunk's products to a task's sums; `right` is the right factor, \[input pair]\[texel].
    #[inline(always)]
    pub fn multiply(&self, task: &mut Task, strips: &[Vec<Row>], right: &[f32]) {
        let product = &self.products[task.product];
        let texels = strips.len() * STRIP;
        let first = |layer: usize, unit: usize| self.sensitivities[layer] + unit * self.outputs;
        for (&(j, k), row) in product.units[task.units.clone()].iter().zip(task.left.chunks_exact_mut(texels)) {
            let (j, k) = (first(product.layers.0, j), first(product.layers.1, k));
            for (out, strip) in row.chunks_exact_mut(STRIP).zip(strips) {
                out.fill(0.0);
                for (s, t) in strip[j..j + self.outputs].iter().zip(&strip[k..k + self.outputs]) {
                    for ((out, s), t) in out.iter_mut().zip(&s.0).zip(&t.0) {
                        *out = s.mul_add(*t, *out);
                    }
                }
            }
        }
        let (rows, columns) = (task.units.len(), product.inputs.len());
        let left = MatRef::from_row_major_slice(&task.left[..rows * texels], rows, texels);
        let right = MatRef::from_row_major_slice(&right[..columns * texels], columns, texels);
        let into = MatMut::from_row_major_slice_mut(&mut task.chunk, rows, columns);
        matmul(into, Accum::Replace, left, right.transpose(), 1.0, Par::Seq);
        for (sum, x) in task.sums.iter_mut().zip(&task.chunk) {
            *sum += f64::from(*x);
        }
    }

    /// Adds a strip's part of J^T r to `g` (in parameter order of packed weights): sums over the strip in lane order.
    #[inline(always)]
    pub fn add_gradient(&self, network: &Network, strip: &[Row], g: &mut [f64]) {
        let residuals = &strip[self.residuals..][..self.outputs];
        for (k, layer) in network.layers.iter().enumerate() {
            for unit in 0..layer.outputs {
                let mut q = Row::ZERO;
                let s = &strip[self.sensitivities[k] + unit * self.outputs..][..self.outputs];
                for (s, r) in s.iter().zip(residuals) {
                    for ((q, s), r) in q.0.iter_mut().zip(&s.0).zip(&r.0) {
                        *q = s.mul_add(*r, *q);
                    }
                }
                for (a, x) in strip[self.inputs[k]..][..=layer.inputs].iter().enumerate() {
                    let mut parts = [0.0f32; 16];
                    for (q, x) in q.0.chunks_exact(16).zip(x.0.chunks_exact(16)) {
                        for ((part, q), x) in parts.iter_mut().zip(q).zip(x) {
                            *part = q.mul_add(*x, *part);
                        }
                    }
                    let sum: f64 = parts.iter().map(|&x| f64::from(x)).sum();
                    g[places(network, k, layer, unit, a).1] += sum;
                }
            }
        }
    }

    /// Writes a layer's part of J^T r, \[unit]\[input, then bias], into `g` in parameter order.
    pub fn place_gradient(&self, network: &Network, k: usize, sums: &[f64], g: &mut [f64]) {
        let layer = &network.layers[k];
        for (unit, sums) in sums.chunks_exact(layer.inputs + 1).enumerate() {
            sums.iter().enumerate().for_each(|(a, &sum)| g[places(network, k, layer, unit, a).1] = sum);
        }
    }

    /// Writes a task's sums into the lower triangle of the normal matrix, column-major, in parameter order.
    pub fn scatter(&self, network: &Network, task: &Task, matrix: &mut [f64]) {
        let product = &self.products[task.product];
        let size = network.parameters();
        let (first, second) = product.layers;
        let place =
            |layer: usize, unit: usize, input: usize| places(network, layer, &network.layers[layer], unit, input).1;
        for (&(j, k), sums) in product.units[task.units.clone()].iter().zip(task.sums.chunks_exact(product.columns())) {
            for (&(a, b), &sum) in product.inputs.iter().zip(sums) {
                let mut put = |p: usize, q: usize| {
                    let (row, column) = if p < q { (q, p) } else { (p, q) };
                    matrix[column * size + row] = sum;
                };
                put(place(first, j, a), place(second, k, b));
                if first == second {
                    put(place(first, j, b), place(second, k, a));
                }
            }
        }
    }
}

/// Scratch of one thread for filling strips.
#[derive(Clone, Debug)]
pub struct Bumps {
    /// Pre-activations of each layer, the last one's sums included.
    sums: Vec<Vec<Row>>,
    /// Activations of each hidden layer.
    units: Vec<Vec<Row>>,
    decoded: Vec<Row>,
    a: Vec<Row>,
    b: Vec<Row>,
    out: [Vec<Row>; 2],
}

impl Bumps {
    /// Room for one thread.
    pub fn new(network: &Network) -> Self {
        let rows = |n: usize| vec![Row::ZERO; n];
        let sums: Vec<_> = network.layers.iter().map(|layer| rows(layer.outputs)).collect();
        let units = sums[..sums.len() - 1].to_vec();
        let (a, b, out) = (rows(network.widest()), rows(network.widest()), rows(network.outputs()));
        Bumps { sums, units, decoded: out.clone(), a, b, out: [out.clone(), out] }
    }

    /// Evaluates the decoder and keeps every layer.
    fn record<L: Lanes>(&mut self, l: L, network: &Network, packed: &[f32], inputs: &[Row]) {
        for (k, layer) in network.layers.iter().enumerate() {
            let x = if k == 0 { inputs } else { &self.units[k - 1] };
            let bias = Start::Bias(&packed[layer.biases..][..layer.outputs]);
            dense(l, Weights::of(packed, layer, 0), bias, x, &mut self.sums[k], None);
            if let Some(units) = self.units.get_mut(k) {
                units.copy_from_slice(&self.sums[k]);
                activate(l, network, units);
            }
        }
        self.decoded.copy_from_slice(&self.sums[network.layers.len() - 1]);
        head(l, network, &mut self.decoded);
    }

    /// The outputs with one unit's pre-activation moved by `step`, into `out[sign]`; everything that it does not reach
    /// is kept.
    fn bump<L: Lanes>(
        &mut self,
        l: L,
        network: &Network,
        packed: &[f32],
        (k, unit): (usize, usize),
        step: f32,
        sign: usize,
    ) {
        let out = &mut self.out[sign];
        let last = network.layers.len() - 1;
        let mut moved = self.sums[k][unit];
        moved.0.iter_mut().for_each(|x| *x += step);
        let moved = std::slice::from_mut(&mut moved);
        if k == last {
            out.copy_from_slice(&self.decoded);
            head(l, network, moved);
            out[unit] = moved[0];
            return;
        }
        activate(l, network, moved);
        moved[0].0.iter_mut().zip(&self.units[k][unit].0).for_each(|(x, was)| *x -= was);
        let next = &network.layers[k + 1];
        let (column, start) = (Weights::of(packed, next, unit), Start::Rows(&self.sums[k + 1]));
        if k + 1 == last {
            dense(l, column, start, moved, out, None);
            head(l, network, out);
        } else {
            hidden_layer(l, network, column, start, moved, &mut self.a[..next.outputs]);
            forward_from(l, network, packed, k + 1, (&mut self.a, &mut self.b), out);
        }
    }

    /// Fills a strip's rows from a gathered chunk: inputs of every layer, sensitivities by bumps of +-h, residuals.
    /// `roots` are the roots of the loss weights; lanes that do not count are zero.
    pub fn fill<L: Lanes>(
        &mut self,
        l: L,
        network: &Network,
        (packed, roots): (&[f32], &[f32]),
        h: f32,
        (layout, chunk): (&Layout, &Chunk),
        rows: &mut [Row],
    ) {
        let inputs = &chunk.inputs[0];
        self.record(l, network, packed, inputs);
        for (k, layer) in network.layers.iter().enumerate() {
            let into = &mut rows[layout.inputs[k]..][..=layer.inputs];
            into[..layer.inputs].copy_from_slice(if k == 0 { inputs } else { &self.units[k - 1] });
            into[layer.inputs] = Row([1.0; STRIP]);
            for unit in 0..layer.outputs {
                for (sign, step) in [h, -h].into_iter().enumerate() {
                    self.bump(l, network, packed, (k, unit), step, sign);
                }
                let into = &mut rows[layout.sensitivities[k] + unit * layout.outputs..][..layout.outputs];
                let [plus, minus] = &self.out;
                for (((into, plus), minus), root) in into.iter_mut().zip(plus).zip(minus).zip(roots) {
                    difference(l, plus, minus, root / (2.0 * h), chunk.count, into);
                }
            }
        }
        let into = &mut rows[layout.residuals..][..layout.outputs];
        for (((into, out), target), root) in into.iter_mut().zip(&self.decoded).zip(&chunk.target).zip(roots) {
            difference(l, out, target, *root, chunk.count, into);
        }
    }
}

/// out = (a - b) scale in the first `count` lanes, 0 behind them.
pub(super) fn difference<L: Lanes>(l: L, a: &Row, b: &Row, scale: f32, count: usize, out: &mut Row) {
    l.enter(
        #[inline(always)]
        || {
            let mut at = 0;
            while at < STRIP {
                let d = l.sub(l.load(&a.0[at..]), l.load(&b.0[at..]));
                l.store(l.mul(d, l.splat(scale)), &mut out.0[at..]);
                at += L::N;
            }
        },
    );
    out.0[count..].fill(0.0);
}
