//! The latent step's normal equations.
//!
//! A texel's outputs depend on a level only through the value that it samples, so a bump of the *sampled* value by +-h
//! gives its sensitivity S (outputs x channels), two decodes a channel, and the normal matrix of a level is B^T S^T S B
//! with B its taps. Texels with the same taps form an *element*: a cell of a nearest level, the rectangle between latent
//! centres of a bilinear one. S^T S is summed over each element times the products of tap weights, and elements are then
//! assembled into one stencil a latent texel: itself and its eight neighbours (itself alone on a nearest level).

use super::decoder::difference;
use super::solve::{at as entry, triangle};
use crate::estimate::selector_search::{Problem, load_target};
use crate::model::decode::{Geometry, InputReader};
use crate::model::lanes::Lanes;
use crate::model::loss::strip_loss;
use crate::model::mlp::{Row, STRIP, Start, Weights, dense, forward_from, pair_activations};
use crate::model::structure::Filter;
use std::ops::Range;

/// The elements of one axis of a level.
#[derive(Clone, Debug, PartialEq)]
struct Axis {
    /// Texel positions of each element; some are empty.
    ranges: Vec<(usize, usize)>,
    /// First and second latent index that each element reads; the same one twice at a border or on a nearest level.
    corners: Vec<[usize; 2]>,
}

impl Axis {
    fn new(extent: usize, size: usize, filter: Filter, first: &[u32], unclamped: &[i32]) -> Self {
        let bilinear = filter == Filter::Bilinear;
        let count = if bilinear { size + 1 } else { size };
        let mut ranges = vec![(0, 0); count];
        for p in 0..extent {
            let e = if bilinear { (unclamped[p] + 1) as usize } else { first[p] as usize };
            let range: &mut (usize, usize) = &mut ranges[e];
            *range = if range.1 == 0 { (p, p + 1) } else { (range.0, p + 1) };
        }
        let corner = |e: usize| {
            if bilinear { [e.saturating_sub(1), e.min(size - 1)] } else { [e, e] }
        };
        Axis { ranges, corners: (0..count).map(corner).collect() }
    }

    /// The elements that read latent index `i`.
    fn around(&self, i: usize, corners: usize) -> Range<usize> {
        i..i + corners
    }
}

/// How a level's texels fall into elements, and what is kept of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Elements {
    /// Index of the level.
    pub level: usize,
    across: Axis,
    down: Axis,
    /// Latent texels read along each axis: 2 bilinear, 1 nearest.
    pub corners: usize,
    /// Channels of the level.
    pub channels: usize,
    /// Latent texels across and down.
    pub size: (usize, usize),
}

impl Elements {
    /// The elements of `level`.
    pub fn new(geometry: &Geometry, level: usize) -> Self {
        let shape = &geometry.structure.levels[level];
        let (x, y) = (&geometry.taps[level].x, &geometry.taps[level].y);
        let (width, height) = (geometry.structure.width, geometry.structure.height);
        Elements {
            level,
            across: Axis::new(width, shape.width, shape.filter, &x.first, &x.unclamped),
            down: Axis::new(height, shape.height, shape.filter, &y.first, &y.unclamped),
            corners: if shape.filter == Filter::Bilinear { 2 } else { 1 },
            channels: shape.channels,
            size: (shape.width, shape.height),
        }
    }

    /// Elements across.
    pub fn columns(&self) -> usize {
        self.across.ranges.len()
    }

    /// Elements down.
    pub fn rows(&self) -> usize {
        self.down.ranges.len()
    }

    /// Texel positions \[first, last) of each element across and down; some are empty.
    pub fn ranges(&self) -> [&[(usize, usize)]; 2] {
        [&self.across.ranges, &self.down.ranges]
    }

    /// Products of two tap weights along one axis.
    fn monomials(&self) -> usize {
        2 * self.corners - 1
    }

    /// Values kept of an element: \[y monomial]\[x monomial]\[triangle of channels], then \[y corner]\[x corner]\[channel].
    pub fn stride(&self) -> usize {
        self.monomials().pow(2) * triangle(self.channels) + self.corners.pow(2) * self.channels
    }

    /// Values kept of one image column in a row of elements: \[y monomial]\[triangle of channels], \[y corner]\[channel].
    pub fn column(&self) -> usize {
        self.monomials() * triangle(self.channels) + self.corners * self.channels
    }

    /// Values of a latent texel's stencil.
    pub fn stencil(&self) -> usize {
        self.monomials().pow(2) * self.channels * self.channels
    }

    /// The error of everything that reads latent texel (x, y), from the errors of all elements.
    pub fn footprint(&self, errors: &[i64], x: usize, y: usize) -> i64 {
        let columns = self.across.around(x, self.corners);
        let rows = self.down.around(y, self.corners);
        rows.map(|r| errors[r * self.columns()..][columns.clone()].iter().sum::<i64>()).sum()
    }

    /// Copies the errors that [`Elements::footprint`] sums.
    pub fn copy_footprint(&self, from: &[i64], x: usize, y: usize, to: &mut [i64]) {
        let columns = self.across.around(x, self.corners);
        for row in self.down.around(y, self.corners) {
            let range = row * self.columns() + columns.start..row * self.columns() + columns.end;
            to[range.clone()].copy_from_slice(&from[range]);
        }
    }

    /// Adds one latent row's stencils and right-hand sides from all elements' sums.
    ///
    /// `blocks` is \[latent texel]\[dy]\[dx]\[channel]\[channel of the neighbour], `g` \[latent texel]\[channel].
    pub fn assemble_row(&self, sums: &[f32], y: usize, blocks: &mut [f32], g: &mut [f32]) {
        blocks.fill(0.0);
        g.fill(0.0);
        let (c, n, near) = (self.channels, self.corners, self.monomials());
        let part = triangle(c);
        for ey in self.down.around(y, n) {
            for ya in (0..n).filter(|&ya| self.down.corners[ey][ya] == y) {
                for x in 0..self.size.0 {
                    let (blocks, g) = (&mut blocks[x * self.stencil()..][..self.stencil()], &mut g[x * c..][..c]);
                    for ex in self.across.around(x, n) {
                        let element = &sums[(ey * self.columns() + ex) * self.stride()..][..self.stride()];
                        let (matrix, right) = element.split_at(near * near * part);
                        for xa in (0..n).filter(|&xa| self.across.corners[ex][xa] == x) {
                            g.iter_mut().zip(&right[(ya * n + xa) * c..]).for_each(|(g, r)| *g += r);
                            for (yb, xb) in (0..n).flat_map(|yb| (0..n).map(move |xb| (yb, xb))) {
                                let dy = self.down.corners[ey][yb] + n - 1 - y;
                                let dx = self.across.corners[ex][xb] + n - 1 - x;
                                let from = &matrix[((ya + yb) * near + xa + xb) * part..][..part];
                                let into = &mut blocks[(dy * near + dx) * c * c..][..c * c];
                                for i in 0..c {
                                    for j in 0..c {
                                        into[i * c + j] += from[entry(i, j)];
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Index in a stencil of the latent texel's own block.
    pub fn own(&self) -> usize {
        self.monomials().pow(2) / 2 * self.channels * self.channels
    }

    /// out = A v on one latent row, A being the stencils `blocks` of all rows.
    #[inline(always)]
    pub fn multiply_row(&self, blocks: &[f32], v: &[f32], y: usize, out: &mut [f32]) {
        for (x, out) in out.chunks_exact_mut(self.channels).enumerate() {
            self.multiply_one(blocks, v, (x, y), out);
        }
    }

    /// (A v) at one latent texel.
    #[inline(always)]
    pub fn multiply_one(&self, blocks: &[f32], v: &[f32], (x, y): (usize, usize), out: &mut [f32]) {
        let (c, near, (width, height)) = (self.channels, self.monomials(), self.size);
        let reach = self.corners - 1;
        let stencil = &blocks[(y * width + x) * self.stencil()..][..self.stencil()];
        out.fill(0.0);
        for dy in 0..near {
            for dx in 0..near {
                let (Some(qx), Some(qy)) = ((x + dx).checked_sub(reach), (y + dy).checked_sub(reach)) else { continue };
                if qx >= width || qy >= height {
                    continue;
                }
                let block = &stencil[(dy * near + dx) * c * c..][..c * c];
                let v = &v[(qy * width + qx) * c..][..c];
                for (out, row) in out.iter_mut().zip(block.chunks_exact(c)) {
                    for (a, v) in row.iter().zip(v) {
                        *out = a.mul_add(*v, *out);
                    }
                }
            }
        }
    }
}

/// Scratch of one thread.
#[derive(Clone, Debug)]
pub struct Sampler {
    reader: InputReader,
    inputs: Vec<Row>,
    base: Vec<Row>,
    delta: Vec<Row>,
    plus: Vec<Row>,
    minus: Vec<Row>,
    spare: Vec<Row>,
    out: [Vec<Row>; 3],
    target: Vec<Row>,
    residual: Vec<Row>,
    /// \[channel]\[output]
    sensitivity: Vec<Row>,
    /// \[y monomial]\[triangle of channels]
    matrix: Vec<Row>,
    /// \[y corner]\[channel]
    right: Vec<Row>,
    loss: Row,
}

impl Sampler {
    /// Room for one thread on levels of at most `channels` channels.
    pub fn new(geometry: &Geometry, channels: usize) -> Self {
        let network = &geometry.network;
        let rows = |n: usize| vec![Row::ZERO; n];
        let (first, widest, outputs) = (network.layers[0].outputs, network.widest(), network.outputs());
        Sampler {
            reader: InputReader::new(geometry),
            inputs: rows(network.inputs()),
            base: rows(first),
            delta: rows(first),
            plus: rows(widest),
            minus: rows(widest),
            spare: rows(widest),
            out: [rows(outputs), rows(outputs), rows(outputs)],
            target: rows(outputs),
            residual: rows(outputs),
            sensitivity: rows(channels * outputs),
            matrix: rows(3 * triangle(channels)),
            right: rows(2 * channels),
            loss: Row::ZERO,
        }
    }

    /// Decodes one strip of row `y`: first-layer sums, activations, outputs and targets.
    #[inline(always)]
    fn decode<L: Lanes>(
        &mut self,
        l: L,
        geometry: &Geometry,
        problem: &Problem,
        (start, count): (usize, usize),
        y: usize,
    ) {
        let network = &geometry.network;
        let first = &network.layers[0];
        self.reader.read(l, geometry, problem.levels, start, y, &mut self.inputs);
        let bias = Start::Bias(&problem.packed[first.biases..][..first.outputs]);
        dense(l, Weights::of(problem.packed, first, 0), bias, &self.inputs, &mut self.base, None);
        self.delta.fill(Row::ZERO);
        pair_activations(l, network, &self.base, &self.delta, &mut self.plus, &mut self.minus);
        forward_from(l, network, problem.packed, 0, (&mut self.plus, &mut self.spare), &mut self.out[2]);
        load_target(problem.target, geometry.structure.width, start, count, y, &mut self.target);
    }

    /// The errors of one row of elements, in units of 2^-36.
    pub fn errors<L: Lanes>(
        &mut self,
        l: L,
        geometry: &Geometry,
        problem: &Problem,
        elements: &Elements,
        ey: usize,
        errors: &mut [i64],
    ) {
        errors.fill(0);
        let (y0, y1) = elements.down.ranges[ey];
        let strips = strips(geometry.structure.width, y1 - y0);
        l.enter(
            #[inline(always)]
            || {
                for (start, count) in strips {
                    self.reader.reset();
                    for y in y0..y1 {
                        self.decode(l, geometry, problem, (start, count), y);
                        strip_loss(l, problem.weights, &self.out[2], &self.target, &mut self.loss);
                        add_errors(elements, start, &self.loss.0[..count], errors);
                    }
                }
            },
        );
    }

    /// The sums of one row of elements: `sums` as [`Elements::stride`] says, `errors` as from [`Sampler::errors`].
    /// `roots` are the roots of the loss weights.
    #[allow(clippy::too_many_arguments)]
    pub fn sums<L: Lanes>(
        &mut self,
        l: L,
        geometry: &Geometry,
        problem: &Problem,
        (roots, h): (&[f32], f32),
        elements: &Elements,
        ey: usize,
        sums: &mut [f32],
        errors: &mut [i64],
    ) {
        errors.fill(0);
        sums.fill(0.0);
        let (y0, y1) = elements.down.ranges[ey];
        let strips = strips(geometry.structure.width, y1 - y0);
        l.enter(
            #[inline(always)]
            || {
                for (start, count) in strips {
                    self.reader.reset();
                    self.matrix.fill(Row::ZERO);
                    self.right.fill(Row::ZERO);
                    for y in y0..y1 {
                        self.decode(l, geometry, problem, (start, count), y);
                        strip_loss(l, problem.weights, &self.out[2], &self.target, &mut self.loss);
                        add_errors(elements, start, &self.loss.0[..count], errors);
                        self.bump(l, geometry, problem, (roots, h), elements);
                        self.accumulate(l, elements, geometry.taps[elements.level].y.fraction[y]);
                    }
                    self.flush(geometry, elements, (start, count), sums);
                }
            },
        );
    }

    /// Residuals, and the sensitivity of every output to every channel of the level.
    #[inline(always)]
    fn bump<L: Lanes>(
        &mut self,
        l: L,
        geometry: &Geometry,
        problem: &Problem,
        (roots, h): (&[f32], f32),
        elements: &Elements,
    ) {
        let network = &geometry.network;
        let first = &network.layers[0];
        let outputs = network.outputs();
        let step = [Row([h; STRIP])];
        for c in 0..elements.channels {
            let column = network.columns(elements.level).start + c;
            let weights = Weights::of(problem.packed, first, column);
            dense(l, weights, Start::Zero, &step, &mut self.delta, None);
            pair_activations(l, network, &self.base, &self.delta, &mut self.plus, &mut self.minus);
            let [plus, minus, _] = &mut self.out;
            forward_from(l, network, problem.packed, 0, (&mut self.plus, &mut self.spare), plus);
            forward_from(l, network, problem.packed, 0, (&mut self.minus, &mut self.spare), minus);
            let into = &mut self.sensitivity[c * outputs..][..outputs];
            for (((into, plus), minus), root) in into.iter_mut().zip(plus).zip(minus).zip(roots) {
                difference(l, plus, minus, root / (2.0 * h), STRIP, into);
            }
        }
        for (((into, out), target), root) in self.residual.iter_mut().zip(&self.out[2]).zip(&self.target).zip(roots) {
            difference(l, out, target, *root, STRIP, into);
        }
    }

    /// Adds one row's S^T S and S^T r, times the tap weights of the row, column by column.
    #[inline(always)]
    fn accumulate<L: Lanes>(&mut self, l: L, elements: &Elements, fy: f32) {
        let (c, outputs) = (elements.channels, self.residual.len());
        let (gy, part) = (1.0 - fy, triangle(c));
        let (two, one) = ([gy * gy, gy * fy, fy * fy], [gy, fy]);
        let (two, one): (&[f32], &[f32]) = if elements.corners == 2 { (&two, &one) } else { (&[1.0], &[1.0]) };
        let mut at = 0;
        while at < STRIP {
            for i in 0..c {
                let s = &self.sensitivity[i * outputs..][..outputs];
                for j in 0..=i {
                    let t = &self.sensitivity[j * outputs..][..outputs];
                    let product = products(l, s, t, at);
                    for (k, weight) in two.iter().enumerate() {
                        add_scaled(l, product, *weight, &mut self.matrix[k * part + entry(i, j)], at);
                    }
                }
                let product = products(l, s, &self.residual, at);
                for (k, weight) in one.iter().enumerate() {
                    add_scaled(l, product, *weight, &mut self.right[k * c + i], at);
                }
            }
            at += L::N;
        }
    }

    /// Adds the columns of a strip to their elements.
    #[inline(always)]
    fn flush(&self, geometry: &Geometry, elements: &Elements, (start, count): (usize, usize), sums: &mut [f32]) {
        let (c, n, near) = (elements.channels, elements.corners, elements.monomials());
        let part = triangle(c);
        for (e, &(x0, x1)) in elements.across.ranges.iter().enumerate() {
            let (x0, x1) = (x0.max(start), x1.min(start + count));
            let sums = &mut sums[e * elements.stride()..][..elements.stride()];
            let (matrix, right) = sums.split_at_mut(near * near * part);
            for x in x0..x1 {
                let fx = geometry.taps[elements.level].x.fraction[x];
                let (gx, lane) = (1.0 - fx, x - start);
                let (two, one) = ([gx * gx, gx * fx, fx * fx], [gx, fx]);
                let (two, one): (&[f32], &[f32]) = if n == 2 { (&two, &one) } else { (&[1.0], &[1.0]) };
                for ky in 0..near {
                    for (kx, weight) in two.iter().enumerate() {
                        let into = &mut matrix[(ky * near + kx) * part..][..part];
                        for (into, row) in into.iter_mut().zip(&self.matrix[ky * part..]) {
                            *into = weight.mul_add(row.0[lane], *into);
                        }
                    }
                }
                for ky in 0..n {
                    for (kx, weight) in one.iter().enumerate() {
                        let into = &mut right[(ky * n + kx) * c..][..c];
                        for (into, row) in into.iter_mut().zip(&self.right[ky * c..]) {
                            *into = weight.mul_add(row.0[lane], *into);
                        }
                    }
                }
            }
        }
    }
}

/// (first column, columns) of the strips over a width; none where there are no rows.
fn strips(width: usize, rows: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..if rows > 0 { width } else { 0 }).step_by(STRIP).map(move |start| (start, STRIP.min(width - start)))
}

fn add_errors(elements: &Elements, start: usize, loss: &[f32], errors: &mut [i64]) {
    for (&(x0, x1), error) in elements.across.ranges.iter().zip(errors) {
        for x in x0.max(start)..x1.min(start + loss.len()) {
            *error += loss[x - start] as i64;
        }
    }
}

/// sum over outputs of s t, one vector.
#[inline(always)]
fn products<L: Lanes>(l: L, s: &[Row], t: &[Row], at: usize) -> L::F {
    let mut sum = l.splat(0.0);
    for (s, t) in s.iter().zip(t) {
        sum = l.fma(l.load(&s.0[at..]), l.load(&t.0[at..]), sum);
    }
    sum
}

#[inline(always)]
fn add_scaled<L: Lanes>(l: L, x: L::F, scale: f32, row: &mut Row, at: usize) {
    let sum = l.fma(x, l.splat(scale), l.load(&row.0[at..]));
    l.store(sum, &mut row.0[at..]);
}
