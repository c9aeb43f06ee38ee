//! Counter-based noise: any number at any time from (seed, stream, step, pair, index), with no state to keep.
//!
//! Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011). The key is a hash
//! of the seed, the counter is (index, pair, step, stream), so no two seeds, streams, steps or pairs share a number.
//! Number n is element n % 4 of the counter with index n / 4. Normals are Box and Muller's (1958), in the arithmetic of
//! [`Lanes`]: the same bits on every level.

use crate::model::lanes::{Lanes, Scalar};
use crate::model::math;

/// What the numbers are for: the last counter word. The values are part of the definition of a run; never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stream {
    /// First values of latent level 0.
    InitLatent0 = 0,
    /// First values of latent level 1.
    InitLatent1 = 1,
    /// First decoder weights.
    InitDecoder = 2,
    /// Perturbations of the decoder step.
    DecoderEs = 3,
    /// The texels of a batch.
    Batch = 4,
    /// Perturbations of the latent step.
    LatentEs = 5,
}

/// Counter-based noise of one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashNoise {
    /// Philox key: low and high half of the hashed seed.
    pub key: [u32; 2],
}

impl HashNoise {
    /// Hashes `seed` with one step of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
    /// OOPSLA 2014), a bijection, before it meets any counter.
    pub fn new(seed: u64) -> Self {
        let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let z = z ^ (z >> 31);
        Self { key: [z as u32, (z >> 32) as u32] }
    }
}

/// Counters worked on side by side; a multiple of every level's lanes.
const COUNTERS: usize = 16;
/// Numbers of one block of counters.
const BLOCK: usize = 4 * COUNTERS;

/// Philox4x32-10: four independent uniform words for a counter.
#[inline(always)]
pub fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    // A word is the low half of a u64 whose high half holds anything: the vector instruction that multiplies u32 to u64
    // takes and gives words in this form, so a loop over counters becomes vectors without a shuffle.
    let [mut c0, mut c1, mut c2, mut c3] = counter.map(u64::from);
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let a = (c0 & 0xffff_ffff) * 0xd251_1f53;
        let b = (c2 & 0xffff_ffff) * 0xcd9e_8d57;
        (c0, c1) = ((b >> 32) ^ c1 ^ u64::from(k0), b);
        (c2, c3) = ((a >> 32) ^ c3 ^ u64::from(k1), a);
        k0 = k0.wrapping_add(0x9e37_79b9);
        k1 = k1.wrapping_add(0xbb67_ae85);
    }
    [c0, c1, c2, c3].map(|word| word as u32)
}

/// The words of [`COUNTERS`] counters from `index` on: [word][counter].
#[inline(always)]
fn words(key: [u32; 2], stream: Stream, step: u32, pair: u32, index: u32) -> [[u32; COUNTERS]; 4] {
    let mut out = [[0; COUNTERS]; 4];
    for i in 0..COUNTERS {
        let four = philox(key, [index.wrapping_add(i as u32), pair, step, stream as u32]);
        for (out, word) in out.iter_mut().zip(four) {
            out[i] = word;
        }
    }
    out
}

/// Two independent standard normals from two uniforms given as integers k below 2^24: u1 = (k1 + 1) 2^-24 and
/// u2 = k2 2^-24. |normal| <= 5.77.
#[inline(always)]
fn box_muller<L: Lanes>(l: L, k1: L::F, k2: L::F) -> (L::F, L::F) {
    let step = l.splat(1.0 / 16_777_216.0);
    let u1 = l.fma(k1, step, step);
    let r = l.sqrt(l.mul(l.splat(-2.0), math::ln_normal(l, u1)));
    let (sin, cos) = math::sin_cos_turns(l, l.mul(k2, step));
    (l.mul(r, cos), l.mul(r, sin))
}

/// Two words of each counter into two normals of each.
#[inline(always)]
fn normals<L: Lanes>(l: L, w1: &[u32; COUNTERS], w2: &[u32; COUNTERS]) -> [[f32; COUNTERS]; 2] {
    // 24 bits are exact as i32 and as f32; the signed conversion is one instruction everywhere.
    let (mut k1, mut k2) = ([0.0; COUNTERS], [0.0; COUNTERS]);
    for i in 0..COUNTERS {
        k1[i] = (w1[i] >> 8) as i32 as f32;
        k2[i] = (w2[i] >> 8) as i32 as f32;
    }
    let mut out = [[0.0; COUNTERS]; 2];
    for i in (0..COUNTERS).step_by(L::N) {
        let (a, b) = box_muller(l, l.load(&k1[i..]), l.load(&k2[i..]));
        l.store(a, &mut out[0][i..]);
        l.store(b, &mut out[1][i..]);
    }
    out
}

/// Standard normals `start .. start + out.len()` of a (stream, step, pair), below 2^34; equals [`normal_at`] to the bit.
#[inline(always)]
pub fn fill_normals<L: Lanes>(
    l: L,
    key: [u32; 2],
    stream: Stream,
    step: u32,
    pair: u32,
    start: usize,
    out: &mut [f32],
) {
    fill_blocks(
        start,
        out,
        // Else the closure may be compiled apart, without the level's instruction set, and is ten times slower.
        #[inline(always)]
        |index, block| {
            let [w0, w1, w2, w3] = words(key, stream, step, pair, index);
            let ([a, b], [c, d]) = (normals(l, &w0, &w1), normals(l, &w2, &w3));
            for i in 0..COUNTERS {
                block[4 * i] = a[i];
                block[4 * i + 1] = b[i];
                block[4 * i + 2] = c[i];
                block[4 * i + 3] = d[i];
            }
        },
    );
}

/// Calls `fill(counter index, block)` so that `out` holds the numbers from `start` on; the ends go through a block that
/// is cut.
#[inline(always)]
fn fill_blocks<T: Copy + Default>(start: usize, out: &mut [T], fill: impl Fn(u32, &mut [T; BLOCK])) {
    let (mut index, mut skip, mut rest) = ((start / 4) as u32, start % 4, out);
    while !rest.is_empty() {
        let taken = rest.len().min(BLOCK - skip);
        let (now, later) = rest.split_at_mut(taken);
        // One call of `fill`, so that its long text is there once.
        let mut block = [T::default(); BLOCK];
        fill(index, &mut block);
        now.copy_from_slice(&block[skip..skip + taken]);
        (index, skip, rest) = (index.wrapping_add(COUNTERS as u32), 0, later);
    }
}

/// Standard normal number `n` (below 2^34) of a (stream, step, pair): the scalar definition of [`fill_normals`].
pub fn normal_at(key: [u32; 2], stream: Stream, step: u32, pair: u32, n: usize) -> f32 {
    let w = philox(key, [(n / 4) as u32, pair, step, stream as u32]);
    let first = n % 4 / 2 * 2;
    let k = |word: u32| (word >> 8) as f32;
    let (a, b) = box_muller(Scalar, k(w[first]), k(w[first + 1]));
    if n.is_multiple_of(2) { a } else { b }
}

/// Integers in 0..`bound`, numbers `start .. start + out.len()` of a (stream, step), pair 0: (word * bound) >> 32. Each
/// value's probability is off by less than 2^-32; `bound` 0 gives 0.
#[inline(always)]
pub fn fill_indices(key: [u32; 2], stream: Stream, step: u32, bound: u32, start: usize, out: &mut [u32]) {
    fill_blocks(
        start,
        out,
        #[inline(always)]
        |index, block| {
            let w = words(key, stream, step, 0, index);
            for (n, out) in block.iter_mut().enumerate() {
                *out = ((u64::from(w[n % 4][n / 4]) * u64::from(bound)) >> 32) as u32;
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAMS: [Stream; 6] = [
        Stream::InitLatent0,
        Stream::InitLatent1,
        Stream::InitDecoder,
        Stream::DecoderEs,
        Stream::Batch,
        Stream::LatentEs,
    ];

    /// The known-answer vectors that the authors' Random123 library lists for philox4x32 with 10 rounds.
    #[test]
    fn philox_gives_the_known_answers() {
        let all = u32::MAX;
        assert_eq!(philox([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([all; 2], [all; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let answer = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
        assert_eq!(philox([0xa409_3822, 0x299f_31d0], counter), answer);
    }

    /// SplitMix64's first outputs for the states 0 and 1234567, as published with its reference code.
    #[test]
    fn the_seed_is_hashed_by_splitmix() {
        let whole = |seed| {
            let [low, high] = HashNoise::new(seed).key;
            u64::from(high) << 32 | u64::from(low)
        };
        assert_eq!(whole(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(whole(1_234_567), 6_457_827_717_110_365_317);
    }

    #[test]
    fn any_part_of_the_sequence_equals_the_scalar_definition() {
        let key = HashNoise::new(3).key;
        for (start, length) in [(0, 1), (1, 1), (3, 2), (0, 64), (5, 64), (62, 131), (63, 1), (1 << 33, 70), (7, 0)] {
            let mut out = vec![0.0; length];
            fill_normals(Scalar, key, Stream::LatentEs, 9, 4, start, &mut out);
            let expected: Vec<f32> =
                (start..).map(|n| normal_at(key, Stream::LatentEs, 9, 4, n)).take(length).collect();
            assert_eq!(out, expected, "start {start}, length {length}");
            let mut out = vec![0; length];
            fill_indices(key, Stream::Batch, 9, 1000, start, &mut out);
            for (n, &index) in (start..).zip(&out) {
                let word = philox(key, [(n / 4) as u32, 0, 9, Stream::Batch as u32])[n % 4];
                assert_eq!(index, ((u64::from(word) * 1000) >> 32) as u32);
            }
        }
    }

    #[test]
    fn box_muller_is_finite_at_both_ends() {
        let top = 16_777_215.0;
        for (k1, k2) in [(0.0, 0.0), (top, 0.0), (0.0, top), (top, top)] {
            let (a, b) = box_muller(Scalar, k1, k2);
            assert!(a.abs() <= 5.77 && b.abs() <= 5.77, "{a} {b}");
        }
        assert_eq!(box_muller(Scalar, 0.0, 0.0).0, (48.0 * std::f32::consts::LN_2).sqrt());
    }

    const COUNT: usize = 1 << 18;

    fn sample(seed: u64, stream: Stream, step: u32, pair: u32) -> Vec<f64> {
        let mut out = vec![0.0; COUNT];
        fill_normals(Scalar, HashNoise::new(seed).key, stream, step, pair, 0, &mut out);
        out.into_iter().map(f64::from).collect()
    }

    fn moment(x: &[f64], power: i32) -> f64 {
        x.iter().map(|x| x.powi(power)).sum::<f64>() / x.len() as f64
    }

    fn correlation(x: &[f64], y: &[f64]) -> f64 {
        x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>() / x.len() as f64
    }

    /// Bounds: five standard errors of each estimate; the seeds are fixed, so the test cannot fail by chance.
    #[test]
    fn normals_have_the_moments_of_a_normal() {
        let n = (COUNT as f64).sqrt();
        for seed in [1, 2, 1 << 40] {
            let x = sample(seed, Stream::LatentEs, 0, 0);
            let m = [1, 2, 3, 4].map(|power| moment(&x, power));
            println!("seed {seed}: moments {m:.4?}");
            assert!(m[0].abs() < 5.0 / n);
            assert!((m[1] - 1.0).abs() < 5.0 * 2f64.sqrt() / n);
            assert!(m[2].abs() < 5.0 * 15f64.sqrt() / n);
            assert!((m[3] - 3.0).abs() < 5.0 * 96f64.sqrt() / n);
        }
    }

    #[test]
    fn normals_have_the_tails_that_rand_distr_draws() {
        use rand_distr::Distribution;
        let mut rng = rand_pcg::Pcg64::new(7, 11);
        let x = sample(5, Stream::DecoderEs, 3, 1);
        let y: Vec<f64> = rand_distr::StandardNormal.sample_iter(&mut rng).take(COUNT).collect();
        for limit in [-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0] {
            let below = |v: &[f64]| v.iter().filter(|&&v| v < limit).count() as f64;
            let (a, b) = (below(&x), below(&y));
            println!("seed 5 and rand_pcg (7, 11): {a} and {b} below {limit}");
            assert!((a - b).abs() < 5.0 * (a + b).sqrt(), "{limit}");
        }
    }

    #[test]
    fn neighbours_are_uncorrelated() {
        let bound = 5.0 / (COUNT as f64).sqrt();
        let base = sample(1, Stream::LatentEs, 10, 20);
        let mut others = vec![("seed 2", sample(2, Stream::LatentEs, 10, 20))];
        others.push(("seed 1 + 2^32", sample(1 + (1 << 32), Stream::LatentEs, 10, 20)));
        others.push(("step 11", sample(1, Stream::LatentEs, 11, 20)));
        others.push(("pair 21", sample(1, Stream::LatentEs, 10, 21)));
        others.push(("pair and step swapped", sample(1, Stream::LatentEs, 20, 10)));
        others.extend(STREAMS[..5].iter().map(|&stream| ("other stream", sample(1, stream, 10, 20))));
        others.extend((1..5).map(|lag| ("shifted", base.iter().copied().cycle().skip(lag).take(COUNT).collect())));
        for (name, other) in &others {
            // Of the values, and of their squares, which Box and Muller's pairs would show first.
            let squares = |v: &[f64]| v.iter().map(|v| (v * v - 1.0) / 2f64.sqrt()).collect::<Vec<_>>();
            let (plain, squared) = (correlation(&base, other), correlation(&squares(&base), &squares(other)));
            println!("seed 1, step 10, pair 20 against {name}: {plain:.5}, squares {squared:.5}");
            assert!(plain.abs() < bound && squared.abs() < bound, "{name}");
        }
    }

    #[test]
    fn indices_are_uniform_and_below_their_bound() {
        let key = HashNoise::new(1).key;
        let mut out = vec![0; 1 << 17];
        for bound in [1, 2, 7, 1000, 1 << 31, u32::MAX] {
            fill_indices(key, Stream::Batch, 0, bound, 0, &mut out);
            assert!(out.iter().all(|&index| index < bound));
            let bins = bound.min(7);
            let mut count = [0f64; 7];
            out.iter().for_each(|&i| count[(u64::from(i) * u64::from(bins) / u64::from(bound)) as usize] += 1.0);
            let expected = out.len() as f64 / f64::from(bins);
            // 1000 is not a multiple of 7: its bins differ by 0.1 %, far below the noise.
            let chi2: f64 = count[..bins as usize].iter().map(|c| (c - expected).powi(2) / expected).sum();
            println!("bound {bound}: chi squared {chi2:.2} of {bins} bins");
            assert!(chi2 < 30.0);
        }
    }
}
