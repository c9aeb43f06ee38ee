//! From latents to texels: reading a strip's decoder inputs, and the deblocking filter behind the decoder.

use super::lanes::Lanes;
use super::latent::{LevelTaps, Support, cell_of, deblock_weights};
use super::mlp::{Network, Row, STRIP};
use super::position::{Feature, PositionSpec};
use super::structure::{Filter, Structure};
use crate::error::Result;

/// Everything that decoding derives from a [`Structure`] once: the network's shape and all per-axis tables.
///
/// Tables along x are longer than the extent by one strip, so that a strip reads past the border without a check.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// What the tables were made from.
    pub structure: Structure,
    /// Layers of the decoder.
    pub network: Network,
    /// Taps of each level.
    pub taps: Vec<LevelTaps>,
    /// Position features in input order.
    pub features: Vec<Feature>,
    /// Deblocking weights along x and y.
    pub deblock: Option<(Vec<f32>, Vec<f32>)>,
    /// Which texels credit each level's latent texels.
    pub supports: Vec<Support>,
}

impl Geometry {
    /// Makes all tables.
    ///
    /// # Errors
    /// A position specification that does not parse or does not fit the levels.
    pub fn new(structure: Structure) -> Result<Self> {
        let (width, height) = (structure.width, structure.height);
        let spec: PositionSpec = structure.position.parse()?;
        spec.check(&structure)?;
        let mut taps: Vec<_> = structure.levels.iter().map(|level| LevelTaps::new(level, width, height)).collect();
        let mut features = spec.features(&structure, &taps);
        let mut deblock = structure.deblock.map(|falloff| {
            let (cw, ch) = cell_of(&structure, 0);
            (deblock_weights(width, cw, falloff), deblock_weights(height, ch, falloff))
        });
        let ring = deblock.as_ref().map(|(x, y)| (x.as_slice(), y.as_slice()));
        let levels = structure.levels.iter().zip(&taps);
        let supports = levels.map(|(level, taps)| Support::new(level, taps, ring)).collect();
        for taps in &mut taps {
            extend(&mut taps.x.first);
            extend(&mut taps.x.second);
            extend(&mut taps.x.fraction);
        }
        features.iter_mut().flat_map(|f| &mut f.x).for_each(extend);
        if let Some((x, _)) = &mut deblock {
            extend(x);
        }
        let network = Network::new(&structure, features.len());
        Ok(Geometry { structure, network, taps, features, deblock, supports })
    }

    /// The strips that cover the width, each counting different columns.
    pub fn strips(&self) -> impl Iterator<Item = Strip> + use<> {
        let (width, halo) = (self.structure.width, usize::from(self.deblock.is_some()));
        let step = STRIP - 2 * halo;
        (0..width).step_by(step).map(move |first| {
            let start = first.saturating_sub(halo);
            Strip { start, first, count: step.min(width - first) }
        })
    }
}

/// Repeats the last value for one more strip.
fn extend<T: Copy>(table: &mut Vec<T>) {
    if let Some(&last) = table.last() {
        table.extend([last; STRIP]);
    }
}

/// A run of texels of one row that are evaluated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strip {
    /// Column of the first lane.
    pub start: usize,
    /// First column that counts; the lanes before it are only read by the deblocking filter.
    pub first: usize,
    /// Columns that count.
    pub count: usize,
}

impl Strip {
    /// Lanes before the first that counts.
    pub fn offset(&self) -> usize {
        self.first - self.start
    }
}

/// What a level is read from.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// Index of the level, whose shape and taps are used.
    pub level: usize,
    /// Latent values, or anything laid out like them.
    pub values: &'a [f32],
    /// Factor of every value.
    pub scale: f32,
}

/// The latent rows under a strip, spread to one value a texel; reused while the image row stays between the same two.
#[derive(Clone, Debug)]
pub struct LevelReader {
    tags: [u32; 2],
    left: [Vec<Row>; 2],
    right: [Vec<Row>; 2],
}

impl LevelReader {
    /// A reader for a level of `channels` channels.
    pub fn new(channels: usize) -> Self {
        let rows = || [vec![Row::ZERO; channels], vec![Row::ZERO; channels]];
        LevelReader { tags: [u32::MAX; 2], left: rows(), right: rows() }
    }

    /// Forgets the latent rows: to be called when the strip or the values change.
    pub fn reset(&mut self) {
        self.tags = [u32::MAX; 2];
    }

    /// The slot that holds latent row `j` of `source`; refills one that does not hold row `keep`.
    #[inline(always)]
    fn slot(&mut self, taps: &LevelTaps, width: usize, source: Source, start: usize, j: u32, keep: u32) -> usize {
        if let Some(slot) = self.tags.iter().position(|&tag| tag == j) {
            return slot;
        }
        let slot = usize::from(self.tags[0] == keep);
        self.tags[slot] = j;
        let (channels, scale) = (self.left[slot].len(), source.scale);
        let row = &source.values[j as usize * width * channels..][..width * channels];
        for lane in 0..STRIP {
            let left = &row[taps.x.first[start + lane] as usize * channels..][..channels];
            let right = &row[taps.x.second[start + lane] as usize * channels..][..channels];
            for c in 0..channels {
                self.left[slot][c].0[lane] = left[c] * scale;
                self.right[slot][c].0[lane] = right[c] * scale;
            }
        }
        slot
    }

    /// Samples `source` on a strip of image row `y` into one row of `out` a channel.
    #[inline(always)]
    pub fn read<L: Lanes>(
        &mut self,
        l: L,
        geometry: &Geometry,
        source: Source,
        start: usize,
        y: usize,
        out: &mut [Row],
    ) {
        let shape = &geometry.structure.levels[source.level];
        let taps = &geometry.taps[source.level];
        let (j0, j1) = (taps.y.first[y], taps.y.second[y]);
        let top = self.slot(taps, shape.width, source, start, j0, j1);
        if shape.filter == Filter::Nearest {
            out.copy_from_slice(&self.left[top]);
            return;
        }
        let bottom = self.slot(taps, shape.width, source, start, j1, j0);
        let mut at = 0;
        while at < STRIP {
            let weights = tap_weights(l, l.load(&taps.x.fraction[start + at..]), l.splat(taps.y.fraction[y]));
            for (c, out) in out.iter_mut().enumerate() {
                let above = [l.load(&self.left[top][c].0[at..]), l.load(&self.right[top][c].0[at..])];
                let below = [l.load(&self.left[bottom][c].0[at..]), l.load(&self.right[bottom][c].0[at..])];
                l.store(tap(l, weights, above, below), &mut out.0[at..]);
            }
            at += L::N;
        }
    }
}

/// Bilinear weights of the four latent texels, left to right, top to bottom.
#[inline(always)]
fn tap_weights<L: Lanes>(l: L, fx: L::F, fy: L::F) -> [L::F; 4] {
    let one = l.splat(1.0);
    let (gx, gy) = (l.sub(one, fx), l.sub(one, fy));
    [l.mul(gx, gy), l.mul(fx, gy), l.mul(gx, fy), l.mul(fx, fy)]
}

/// The weighted sum of four latent values, added in the order of [`tap_weights`].
#[inline(always)]
fn tap<L: Lanes>(l: L, w: [L::F; 4], above: [L::F; 2], below: [L::F; 2]) -> L::F {
    let sum = l.mul(w[0], above[0]);
    let sum = l.fma(w[1], above[1], sum);
    let sum = l.fma(w[2], below[0], sum);
    l.fma(w[3], below[1], sum)
}

/// Channel `c` of a level's `values` as texel (px, py) reads it: the definition of [`LevelReader::read`].
#[inline(always)]
pub fn sample<L: Lanes<F = f32>>(
    l: L,
    geometry: &Geometry,
    level: usize,
    values: &[f32],
    (px, py): (usize, usize),
    c: usize,
) -> f32 {
    let shape = &geometry.structure.levels[level];
    let (x, y) = (&geometry.taps[level].x, &geometry.taps[level].y);
    let row = |j: u32| &values[j as usize * shape.width * shape.channels..][..shape.width * shape.channels];
    let (i0, i1) = (x.first[px] as usize * shape.channels + c, x.second[px] as usize * shape.channels + c);
    let (above, below) = (row(y.first[py]), row(y.second[py]));
    if shape.filter == Filter::Nearest {
        return above[i0];
    }
    let weights = tap_weights(l, x.fraction[px], y.fraction[py]);
    tap(l, weights, [above[i0], above[i1]], [below[i0], below[i1]])
}

/// The position features of a strip of row `y`, one row each.
#[inline(always)]
pub fn read_features<L: Lanes>(l: L, geometry: &Geometry, start: usize, y: usize, out: &mut [Row]) {
    for (feature, out) in geometry.features.iter().zip(out) {
        let x = &feature.x[y % feature.x.len()][start..];
        let factor = l.splat(feature.y[y]);
        let mut at = 0;
        while at < STRIP {
            l.store(l.mul(l.load(&x[at..]), factor), &mut out.0[at..]);
            at += L::N;
        }
    }
}

/// Reads the decoder inputs of strips, in summation order.
#[derive(Clone, Debug)]
pub struct InputReader(Vec<LevelReader>);

impl InputReader {
    /// One reader for all levels.
    pub fn new(geometry: &Geometry) -> Self {
        InputReader(geometry.structure.levels.iter().map(|level| LevelReader::new(level.channels)).collect())
    }

    /// Forgets the latent rows: to be called at each new strip.
    pub fn reset(&mut self) {
        self.0.iter_mut().for_each(LevelReader::reset);
    }

    /// All inputs of a strip of row `y` into [`Network::inputs`] rows.
    #[inline(always)]
    pub fn read<L: Lanes>(
        &mut self,
        l: L,
        geometry: &Geometry,
        levels: &[Vec<f32>],
        start: usize,
        y: usize,
        out: &mut [Row],
    ) {
        read_features(l, geometry, start, y, out);
        for (level, reader) in self.0.iter_mut().enumerate() {
            let columns = geometry.network.columns(level);
            let source = Source { level, values: &levels[level], scale: 1.0 };
            reader.read(l, geometry, source, start, y, &mut out[columns]);
        }
    }
}

/// The deblocking filter's mean step for one value: centre, its neighbours along x and along y, the weights of both axes.
#[inline(always)]
pub fn deblock_one<L: Lanes>(l: L, c: L::F, horizontal: [L::F; 2], vertical: [L::F; 2], wh: L::F, wv: L::F) -> L::F {
    let (hc, vc) = (blend(l, c, horizontal, wh), blend(l, c, vertical, wv));
    let sum = l.add(wh, wv);
    let mixed = l.div(l.fma(wh, hc, l.mul(wv, vc)), sum);
    l.select(l.lt(l.splat(0.0), sum), mixed, c)
}

/// c + w (mean(a, c, b) - c).
#[inline(always)]
fn blend<L: Lanes>(l: L, c: L::F, [a, b]: [L::F; 2], w: L::F) -> L::F {
    let mean = l.div(l.add(l.add(a, c), b), l.splat(3.0));
    l.fma(w, l.sub(mean, c), c)
}

/// Filters one strip of row `y`: `rows` are the outputs of the rows above, at and below (clamped at the border).
#[inline(always)]
fn deblock_strip<L: Lanes>(l: L, geometry: &Geometry, start: usize, y: usize, rows: [&[Row]; 3], out: &mut [Row]) {
    let Some((wx, wy)) = &geometry.deblock else { return };
    let last = geometry.structure.width - 1;
    let [above, centre, below] = rows;
    for (c, out) in out.iter_mut().enumerate() {
        let (mut left, mut right) = (centre[c], centre[c]);
        for lane in 0..STRIP {
            if lane > 0 && start + lane > 0 {
                left.0[lane] = centre[c].0[lane - 1];
            }
            if lane + 1 < STRIP && start + lane < last {
                right.0[lane] = centre[c].0[lane + 1];
            }
        }
        let mut at = 0;
        while at < STRIP {
            let (wh, wv) = (l.load(&wx[start + at..]), l.splat(wy[y]));
            let horizontal = [l.load(&left.0[at..]), l.load(&right.0[at..])];
            let vertical = [l.load(&above[c].0[at..]), l.load(&below[c].0[at..])];
            let x = deblock_one(l, l.load(&centre[c].0[at..]), horizontal, vertical, wh, wv);
            l.store(x, &mut out.0[at..]);
            at += L::N;
        }
    }
}

/// Decodes a strip over rows `y0..y1` for several variants at once and hands on each row, deblocked where that is on.
///
/// `decode(y, out)` writes the outputs of every variant (`out` is variants x outputs rows); `take(variant, y, out)` gets
/// the finished outputs of one variant. With deblocking one more row on each side is decoded.
#[inline(always)]
pub fn sweep_strip<L: Lanes>(
    l: L,
    geometry: &Geometry,
    strip: Strip,
    (y0, y1): (usize, usize),
    window: &mut Window,
    mut decode: impl FnMut(usize, &mut [Row]),
    mut take: impl FnMut(usize, usize, &[Row]),
) {
    let outputs = geometry.network.outputs();
    if geometry.deblock.is_none() {
        for y in y0..y1 {
            decode(y, &mut window.rows[0]);
            for (variant, out) in window.rows[0].chunks_exact(outputs).enumerate() {
                take(variant, y, out);
            }
        }
        return;
    }
    let last = geometry.structure.height - 1;
    let mut next = y0.saturating_sub(1);
    for y in y0..y1 {
        while next <= (y + 1).min(last) {
            decode(next, &mut window.rows[next % 3]);
            next += 1;
        }
        for variant in 0..window.rows[0].len() / outputs {
            let row = |y: usize| &window.rows[y % 3][variant * outputs..][..outputs];
            let rows = [row(y.saturating_sub(1)), row(y), row((y + 1).min(last))];
            deblock_strip(l, geometry, strip.start, y, rows, &mut window.filtered);
            take(variant, y, &window.filtered);
        }
    }
}

/// Output rows of the image rows that [`sweep_strip`] holds at a time.
#[derive(Clone, Debug)]
pub struct Window {
    rows: [Vec<Row>; 3],
    filtered: Vec<Row>,
}

impl Window {
    /// Room for `variants` decodes at once.
    pub fn new(geometry: &Geometry, variants: usize) -> Self {
        let outputs = geometry.network.outputs();
        let spare = if geometry.deblock.is_some() { variants * outputs } else { 0 };
        let rows = [variants * outputs, spare, spare].map(|n| vec![Row::ZERO; n]);
        Window { rows, filtered: vec![Row::ZERO; outputs] }
    }
}
