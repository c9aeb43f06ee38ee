//! Which decisions stand for selectors and latents, and what each is expected from.
//!
//! Every function codes in place: a writer leaves the values as they are, a reader puts in what it reads. Values are
//! coded row by row, and the channels of a latent texel one after the other.

use super::mixing::Mixture;
use super::range_coder::{Coder, Learner};

/// Channels with models of their own; later ones share the last.
const OWN: usize = 8;
/// Decisions of a value that are told apart by all that came before them: the first four.
const EXACT: u32 = 4;
/// Earlier channels that a latent is predicted from.
const EARLIER: usize = 4;

/// A level of integers.
#[derive(Debug)]
pub struct Grid<'a> {
    /// Latent texels across.
    pub width: usize,
    /// Latent texels down.
    pub height: usize,
    /// Bits of each channel.
    pub bits: &'a [u32],
    /// (y, x, channel), channel fastest.
    pub indices: &'a mut [u16],
}

impl Grid<'_> {
    fn place(&self, x: usize, y: usize, c: usize) -> usize {
        (y * self.width + x) * self.bits.len() + c
    }

    /// The value at a position that may lie outside.
    fn at(&self, x: isize, y: isize, c: usize) -> Option<i32> {
        let (x, y) = (usize::try_from(x).ok()?, usize::try_from(y).ok()?);
        let inside = x < self.width && y < self.height;
        inside.then(|| self.indices.get(self.place(x, y, c)).map(|&v| i32::from(v))).flatten()
    }

    fn set(&mut self, place: usize, value: u32) {
        if let Some(index) = self.indices.get_mut(place) {
            *index = value as u16;
        }
    }

    fn bits(&self, c: usize) -> u32 {
        self.bits.get(c).copied().unwrap_or(1)
    }
}

/// What selectors know of the level below them: the latent texel of their block.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    /// Latent texels across.
    pub width: usize,
    /// Latent texels down.
    pub height: usize,
    /// Bits of each channel.
    pub bits: &'a [u32],
    /// (y, x, channel), channel fastest.
    pub indices: &'a [u16],
}

impl Blocks<'_> {
    /// The top three bits of the first four channels of a latent texel.
    fn class(&self, x: usize, y: usize) -> usize {
        let channels = self.bits.len();
        let texel = self.indices.get((y * self.width + x) * channels..).unwrap_or(&[]);
        let top = |class: usize, (&v, &bits): (&u16, &u32)| 8 * class + (usize::from(v) >> bits.saturating_sub(3)) % 8;
        texel.iter().zip(self.bits).take(4).fold(0, top)
    }
}

/// Number of contexts that the decisions of one value of `bits` bits are told apart by.
fn nodes(bits: u32) -> usize {
    if bits <= EXACT { 1 << bits } else { (1 << EXACT) + (bits - EXACT) as usize }
}

/// One block's part of a length, and the number of parts, at most four.
fn part(position: usize, cell: usize) -> usize {
    let inside = position % cell;
    if cell <= 4 { inside } else { inside * 4 / cell }
}

/// The model of one selector channel.
struct Selectors {
    mixture: Mixture<5>,
    /// Contexts of one value's decisions.
    nodes: usize,
}

impl Selectors {
    fn new(bits: u32) -> Self {
        let nodes = nodes(bits);
        Selectors { mixture: Mixture::new([256, 128, 4096, 4096, 512].map(|n| n * nodes), nodes * 16), nodes }
    }

    fn code(&mut self, coder: &mut impl Coder, bits: u32, around: Around, value: u32) -> u32 {
        let mut read = 0;
        for k in 0..bits {
            let (contexts, set) = around.decision(self.nodes, k, read);
            read = 2 * read + self.mixture.code(coder, contexts, set, value >> (bits - 1 - k) & 1);
        }
        read
    }

    /// What `value` would cost, in 1/1024 bit.
    fn cost(&self, bits: u32, around: Around, value: u32) -> i32 {
        let decision = |k: u32| {
            let (contexts, set) = around.decision(self.nodes, k, value >> (bits - k));
            self.mixture.cost(contexts, set, value >> (bits - 1 - k) & 1)
        };
        (0..bits).map(decision).sum()
    }
}

/// What a selector is expected from.
#[derive(Clone, Copy)]
struct Around {
    contexts: [usize; 5],
    /// Place in the block, 0 to 15.
    position: usize,
}

impl Around {
    /// Contexts and set of weights of decision `k` behind those of `read`, in a model of `nodes`.
    #[inline(always)]
    fn decision(self, nodes: usize, k: u32, read: u32) -> ([usize; 5], usize) {
        let node = if k < EXACT { 1 << k | read as usize } else { (1 << EXACT) + (k - EXACT) as usize };
        (self.contexts.map(|context| context * nodes + node), node * 16 + self.position)
    }
}

/// Models of all channels of a level of selectors, and what they look at.
struct SelectorModels<'a> {
    models: Vec<Selectors>,
    blocks: Option<Blocks<'a>>,
    /// Selectors across and down a block.
    cell: (usize, usize),
}

impl<'a> SelectorModels<'a> {
    fn new(grid: &Grid, blocks: Option<Blocks<'a>>) -> Self {
        let channels = grid.bits.len();
        let deepest =
            |c: usize| if c + 1 < OWN { grid.bits(c) } else { (c..channels).map(|c| grid.bits(c)).max().unwrap_or(1) };
        let models = (0..channels.min(OWN)).map(|c| Selectors::new(deepest(c))).collect();
        let blocks = blocks.filter(|b| b.width > 0 && grid.width.is_multiple_of(b.width));
        let blocks = blocks.filter(|b| b.height > 0 && grid.height.is_multiple_of(b.height));
        let cell = blocks.map_or((4, 4), |b| (grid.width / b.width, grid.height / b.height));
        SelectorModels { models, blocks, cell }
    }

    /// The latent class of the block at (x, y).
    fn class(&self, x: usize, y: usize) -> usize {
        self.blocks.map_or(0, |b| b.class(x / self.cell.0, y / self.cell.1))
    }

    /// What channel c at (x, y) is expected from.
    #[inline(always)]
    fn around(&self, grid: &Grid, class: usize, (x, y, c): (usize, usize, usize)) -> Around {
        let top = |value: i32, c: usize| (value >> grid.bits(c).saturating_sub(3)) as usize;
        let near = |(dx, dy)| top(grid.at(x as isize + dx, y as isize + dy, c).unwrap_or(0), c);
        let before = c.checked_sub(1).and_then(|c| Some(top(grid.at(x as isize, y as isize, c)?, c))).unwrap_or(0);
        let [left, up, up_left, up_right] = NEAR.map(near);
        let position = 4 * part(y, self.cell.1) + part(x, self.cell.0);
        let border = usize::from(x % self.cell.0 == 0) + 2 * usize::from(y % self.cell.1 == 0);
        let contexts = [
            (up_left * 8 + up_right) * 4 + border,
            position * 8 + left,
            class,
            ((left * 8 + up) * 8 + up_left) * 8 + up_right,
            (left * 8 + up) * 8 + before,
        ];
        Around { contexts, position }
    }
}

/// Neighbours that a selector is expected from: left, up, up-left, up-right.
const NEAR: [(isize, isize); 4] = [(-1, 0), (0, -1), (-1, -1), (1, -1)];

/// Codes a level of selectors; `account` is that of channel 0. Returns false where the coder ran out of bytes.
pub fn selectors(coder: &mut impl Coder, grid: &mut Grid, blocks: Option<Blocks>, account: usize) -> bool {
    let mut all = SelectorModels::new(grid, blocks);
    for y in 0..grid.height {
        for x in 0..grid.width {
            let class = all.class(x, y);
            for c in 0..grid.bits.len() {
                let around = all.around(grid, class, (x, y, c));
                let place = grid.place(x, y, c);
                let value = grid.indices.get(place).map_or(0, |&v| u32::from(v));
                coder.account(account + c);
                let Some(model) = all.models.get_mut(c.min(OWN - 1)) else { return false };
                let value = model.code(coder, grid.bits(c), around, value);
                grid.set(place, value);
            }
            if !coder.sound() {
                return false;
            }
        }
    }
    true
}

/// Costs of every value of every selector in 1/1024 bit, \[selector]\[value], and the number of values: what it would
/// take itself, and what the selectors that are expected from it would take then, all others as they are.
pub fn selector_costs(grid: &mut Grid, blocks: Option<Blocks>) -> (usize, Vec<i32>) {
    let window = 1usize << grid.bits.iter().copied().max().unwrap_or(0);
    let mut costs = vec![0i32; grid.indices.len() * window];
    let mut all = SelectorModels::new(grid, blocks);
    let mut add = |place: usize, value: u32, cost: i32| {
        if let Some(sum) = costs.get_mut(place * window + value as usize) {
            *sum += cost;
        }
    };
    for y in 0..grid.height {
        for x in 0..grid.width {
            let class = all.class(x, y);
            for c in 0..grid.bits.len() {
                let Some(model) = all.models.get(c.min(OWN - 1)) else { continue };
                let (bits, place) = (grid.bits(c), grid.place(x, y, c));
                let value = grid.indices.get(place).map_or(0, |&v| u32::from(v));
                let around = all.around(grid, class, (x, y, c));
                (0..1 << bits).for_each(|v| add(place, v, model.cost(bits, around, v)));
                let inside = |&(dx, dy): &(isize, isize)| {
                    let (x, y) = (x.checked_add_signed(dx)?, y.checked_add_signed(dy)?);
                    (x < grid.width).then(|| (grid.place(x, y, c), bits))
                };
                let before = c.checked_sub(1).map(|c| (grid.place(x, y, c), grid.bits(c)));
                for (source, depth) in NEAR.iter().filter_map(inside).chain(before).collect::<Vec<_>>() {
                    let now = grid.indices.get(source).map_or(0, |&v| u32::from(v));
                    for v in 0..1 << depth {
                        grid.set(source, v);
                        add(source, v, model.cost(bits, all.around(grid, class, (x, y, c)), value));
                    }
                    grid.set(source, now);
                }
                if let Some(model) = all.models.get_mut(c.min(OWN - 1)) {
                    model.code(&mut Learner, bits, around, value);
                }
            }
        }
    }
    (window, costs)
}

/// Size classes of a magnitude, two an octave: 0, 1, 2, 3, 4-5, 6-7, 8-11, ...; 15 at most.
fn size_class(magnitude: i64) -> usize {
    let Some(octave) = u64::try_from(magnitude).ok().and_then(u64::checked_ilog2) else { return 0 };
    let half = if octave > 0 { magnitude >> (octave - 1) & 1 } else { 0 };
    (2 * octave as usize + half as usize).clamp(0, 14) + 1
}

/// 0, 1 or 2 for a negative value, zero and a positive one.
fn sign_class(x: i32) -> usize {
    (x.signum() + 1) as usize
}

/// The prediction of one latent channel from its neighbours: weights that follow the error (normalised least mean
/// squares), in 1/65536.
#[derive(Clone, Debug)]
struct Predictor {
    weights: Vec<i64>,
    inputs: Vec<i64>,
}

impl Predictor {
    /// Step of the weights.
    const STEP: i64 = 2000;
    /// Weights stay within +- this.
    const MOST: i64 = 1 << 24;

    fn new(channel: usize) -> Self {
        let mut weights = vec![45_000, 45_000, -25_000, 0, 0, 0];
        weights.resize(6 + 3 * channel.min(EARLIER), 0);
        Predictor { weights, inputs: vec![] }
    }

    /// The expected value in 1/16, counted from the middle of the range.
    fn predict(&self, half: i64) -> i64 {
        let sum: i64 = self.weights.iter().zip(&self.inputs).map(|(w, x)| w * x).sum();
        (sum >> 12).clamp(-16 * half, 16 * (half - 1))
    }

    /// Learns from the error in 1/16.
    fn update(&mut self, error: i64) {
        let norm = 16 * (64 + self.inputs.iter().map(|x| x * x).sum::<i64>());
        // |error| <= 2^21 with 16 bits: 2^48 above, and 2^38 times 2^15 below.
        let step = ((error * Self::STEP) << 16) / norm;
        for (weight, x) in self.weights.iter_mut().zip(&self.inputs) {
            *weight = (*weight + ((step * x + 0x8000) >> 16)).clamp(-Self::MOST, Self::MOST);
        }
    }
}

/// Decisions that a difference from its prediction is written in.
struct Difference {
    mixture: Mixture<3>,
}

impl Difference {
    /// Contexts of one difference's decisions.
    const NODES: usize = 64;
    /// What decisions are about: whether it is 0, its sign, its octave from here on, its bits from here on.
    const OCTAVE: usize = 2;
    const DIGITS: usize = 18;
    /// Bits behind the first two.
    const REST: usize = 63;

    fn new() -> Self {
        Difference { mixture: Mixture::new([48, 64, 48].map(|n| n * Self::NODES), Self::NODES) }
    }

    /// Codes `difference`, which lies within -`below`..=`above` (a reader's may lie beyond).
    fn code(&mut self, coder: &mut impl Coder, contexts: [usize; 3], difference: i32, limits: (i32, i32)) -> i32 {
        Self::walk(difference, limits, |node, bit| {
            let contexts = contexts.map(|context| context * Self::NODES + node);
            self.mixture.code(coder, contexts, node, u32::from(bit)) != 0
        })
    }

    /// What `difference` would cost, in 1/1024 bit.
    fn cost(&self, contexts: [usize; 3], difference: i32, limits: (i32, i32)) -> i32 {
        let mut sum = 0;
        Self::walk(difference, limits, |node, bit| {
            let contexts = contexts.map(|context| context * Self::NODES + node);
            sum += self.mixture.cost(contexts, node, u32::from(bit));
            bit
        });
        sum
    }

    /// The decisions of a difference, each taken by `decide`; returns what they say.
    #[inline(always)]
    fn walk(difference: i32, (below, above): (i32, i32), mut decide: impl FnMut(usize, bool) -> bool) -> i32 {
        if decide(0, difference == 0) || (below <= 0 && above <= 0) {
            return 0;
        }
        let negative = if below > 0 && above > 0 { decide(1, difference < 0) } else { below > 0 };
        let most = (if negative { below } else { above }).unsigned_abs().checked_ilog2().unwrap_or(0);
        let magnitude = difference.unsigned_abs();
        let octave = magnitude.checked_ilog2().unwrap_or(0);
        let mut read = 0;
        while read < most && decide(Self::OCTAVE + read as usize, read < octave) {
            read += 1;
        }
        let mut value = 1u32;
        for k in (0..read).rev() {
            let node = match read - 1 - k {
                0 => Self::DIGITS + 3 * (read as usize - 1),
                1 => Self::DIGITS + 3 * (read as usize - 1) + 1 + (value & 1) as usize,
                _ => Self::REST,
            };
            value = 2 * value + u32::from(decide(node, magnitude >> k & 1 != 0));
        }
        if negative { -(value as i32) } else { value as i32 }
    }
}

/// Codes a level of latents; `account` is that of channel 0. Returns false where the coder ran out of bytes.
pub fn latents(coder: &mut impl Coder, grid: &mut Grid, account: usize) -> bool {
    let channels = grid.bits.len();
    let mut predictors: Vec<_> = (0..channels).map(Predictor::new).collect();
    let mut models: Vec<_> = (0..channels.min(OWN)).map(|_| Difference::new()).collect();
    // Differences of this row and the row above, each [x][channel].
    let mut rows = [vec![0i32; grid.width * channels], vec![0i32; grid.width * channels]];
    for y in 0..grid.height {
        for x in 0..grid.width {
            for (c, predictor) in predictors.iter_mut().enumerate() {
                coder.account(account + c);
                let Some(model) = models.get_mut(c.min(OWN - 1)) else { return false };
                latent(coder, grid, (x, y, c), predictor, model, &mut rows);
            }
            if !coder.sound() {
                return false;
            }
        }
        rows.swap(0, 1);
    }
    true
}

/// Values that [`latent_costs`] prices around the present one, each way.
const REACH: u32 = 2;

/// Costs of the values around every latent's own in 1/1024 bit: the first index priced of each, how many are, and the costs
/// \[latent]\[index - first]. What later latents would take for it is left out.
pub fn latent_costs(grid: &mut Grid) -> (Vec<u16>, usize, Vec<i32>) {
    let window = 2 * REACH as usize + 1;
    let channels = grid.bits.len();
    let (mut first, mut costs) = (Vec::with_capacity(grid.indices.len()), Vec::new());
    let mut predictors: Vec<_> = (0..channels).map(Predictor::new).collect();
    let mut models: Vec<_> = (0..channels.min(OWN)).map(|_| Difference::new()).collect();
    let mut rows = [vec![0i32; grid.width * channels], vec![0i32; grid.width * channels]];
    for y in 0..grid.height {
        for x in 0..grid.width {
            for (c, predictor) in predictors.iter_mut().enumerate() {
                let Some(model) = models.get_mut(c.min(OWN - 1)) else { continue };
                let expected = expect(grid, (x, y, c), predictor, &rows);
                let value = grid.indices.get(grid.place(x, y, c)).map_or(0, |&v| u32::from(v));
                let last = (1u32 << grid.bits(c)) - 1;
                let start = value.saturating_sub(REACH);
                first.push(start as u16);
                costs.extend((start..start + window as u32).map(|v| {
                    let difference = i64::from(v.min(last)) - expected.value;
                    model.cost(expected.contexts, difference as i32, expected.limits)
                }));
                latent(&mut Learner, grid, (x, y, c), predictor, model, &mut rows);
            }
        }
        rows.swap(0, 1);
    }
    (first, window, costs)
}

/// What a latent is expected to be, and what the decisions about it are told apart by.
struct Expected {
    /// In 1/16, counted from the middle of the range.
    fine: i64,
    value: i64,
    contexts: [usize; 3],
    /// How far a value may lie below and above.
    limits: (i32, i32),
}

/// Expects one latent; the predictor's inputs are left for its update.
fn expect(grid: &Grid, (x, y, c): (usize, usize, usize), predictor: &mut Predictor, rows: &[Vec<i32>; 2]) -> Expected {
    let bits = grid.bits(c);
    let (half, last) = (1i64 << (bits - 1), (1i64 << bits) - 1);
    gather(grid, (x, y, c), &mut predictor.inputs);
    let fine = predictor.predict(half);
    let expected = (((fine + 8) >> 4) + half).clamp(0, last);

    let channels = grid.bits.len();
    let [this, above] = rows;
    let difference = |row: &[i32], dx: isize, back: usize| {
        let place = usize::try_from(x as isize + dx).ok().filter(|&x| x < grid.width).zip(c.checked_sub(back));
        place.and_then(|(x, c)| row.get(x * channels + c)).copied().unwrap_or(0)
    };
    let [left, up, up_left, up_right] = match predictor.inputs[..] {
        [left, up, up_left, up_right, ..] => [left, up, up_left, up_right],
        _ => [0; 4],
    };
    let texture = (left - up_left).abs() + (up - up_left).abs() + (up_right - up).abs();
    let size = |row: &[i32], dx: isize| i64::from(difference(row, dx, 0).abs());
    let energy = 2 * size(this, -1) + 2 * size(above, 0) + size(above, -1) + size(above, 1);
    let earlier = |back: usize| if c >= back { difference(this, 0, back) } else { 0 };
    let contexts = [
        3 * size_class(texture * 4 / 3) + sign_class(difference(this, -1, 0)),
        8 * (size_class(4 * i64::from(earlier(1).abs())) / 2) + size_class(4 * i64::from(earlier(2).abs())) / 2,
        3 * size_class(energy * 2 / 3) + sign_class(earlier(1)),
    ];
    let limits = (expected as i32, (last - expected) as i32);
    Expected { fine, value: expected, contexts, limits }
}

/// Codes one latent; `rows` are the differences of this row and of the one above.
fn latent(
    coder: &mut impl Coder,
    grid: &mut Grid,
    (x, y, c): (usize, usize, usize),
    predictor: &mut Predictor,
    model: &mut Difference,
    rows: &mut [Vec<i32>; 2],
) {
    let (half, last) = (1i64 << (grid.bits(c) - 1), (1i64 << grid.bits(c)) - 1);
    let Expected { fine, value: expected, contexts, limits } = expect(grid, (x, y, c), predictor, rows);
    let channels = grid.bits.len();
    let place = grid.place(x, y, c);
    let value = grid.indices.get(place).map_or(0, |&v| i64::from(v));
    let coded = model.code(coder, contexts, (value - expected) as i32, limits);
    let value = (expected + i64::from(coded)).clamp(0, last);
    grid.set(place, value as u32);
    let [this, _] = rows;
    if let Some(stored) = this.get_mut(x * channels + c) {
        *stored = (value - expected) as i32;
    }
    predictor.update(16 * (value - half) - fine);
}

/// What a latent is predicted from, each counted from the middle of its range: left, up, up-left, up-right, two to the
/// left, two up; then of up to four earlier channels the value here, left and up.
fn gather(grid: &Grid, (x, y, c): (usize, usize, usize), into: &mut Vec<i64>) {
    let middle = |c: usize| 1i64 << (grid.bits(c) - 1);
    let near = |dx: isize, dy: isize, c: usize| {
        let (x, y) = (x as isize, y as isize);
        let value = grid.at(x + dx, y + dy, c).or_else(|| grid.at(x - 1, y, c)).or_else(|| grid.at(x, y - 1, c));
        value.map_or(0, |v| i64::from(v) - middle(c))
    };
    into.clear();
    into.extend([(-1, 0), (0, -1), (-1, -1), (1, -1), (-2, 0), (0, -2)].map(|(dx, dy)| near(dx, dy, c)));
    for earlier in c.saturating_sub(EARLIER)..c {
        into.extend([(0, 0), (-1, 0), (0, -1)].map(|(dx, dy)| near(dx, dy, earlier)));
    }
}
