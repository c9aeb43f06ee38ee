//! mt19937 and the draws that libstdc++ makes from it, so that a run can follow the reference number by number.
//!
//! Matsumoto and Nishimura, Mersenne Twister, ACM TOMACS 8 (1998). CPU only: the numbers come in one order. The
//! logarithm is the project's own, so a normal may differ from libstdc++'s in its last two bits, and not by machine.

use crate::model::lanes::Scalar;
use crate::model::math;

/// State words.
const N: usize = 624;
/// Distance of the recurrence.
const M: usize = 397;

/// The 32-bit Mersenne Twister, as `std::mt19937`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mersenne {
    words: Box<[u32; N]>,
    /// Words of this round that are drawn already: 0..=624.
    position: usize,
}

impl Mersenne {
    /// The generator that `std::mt19937(seed)` is.
    pub fn new(seed: u32) -> Self {
        let mut words = Box::new([seed; N]);
        for i in 1..N {
            let last = words[i - 1];
            words[i] = (last ^ (last >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Self { words, position: N }
    }

    /// What a checkpoint keeps: the 624 words, then how many of them are drawn (0..=624).
    pub fn state(&self) -> Vec<u32> {
        self.words.iter().copied().chain([self.position as u32]).collect()
    }

    /// The generator that [`Mersenne::state`] was taken from; `None` where `state` is not one.
    pub fn from_state(state: &[u32]) -> Option<Self> {
        let (&position, words) = state.split_last()?;
        let words: [u32; N] = words.try_into().ok()?;
        let position = usize::try_from(position).ok().filter(|&position| position <= N)?;
        Some(Self { words: Box::new(words), position })
    }

    /// The next 32 uniform bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.position == N {
            self.twist();
            self.position = 0;
        }
        let mut y = self.words[self.position];
        self.position += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    fn twist(&mut self) {
        let w = &mut self.words;
        for i in 0..N {
            let y = (w[i] & 0x8000_0000) | (w[(i + 1) % N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            w[i] = w[(i + M) % N] ^ (y >> 1) ^ odd;
        }
    }

    /// Uniform in [0, 1), as `std::generate_canonical<float, 24>`: one word, rounded to f32; what rounds to 1 is 1 - 2^-24.
    fn uniform(&mut self) -> f32 {
        let u = self.next_u32() as f32 * (1.0 / 4_294_967_296.0);
        if u < 1.0 { u } else { 1.0 - f32::EPSILON / 2.0 }
    }

    /// One group of standard normals: as a fresh `std::normal_distribution<float>`, so an odd group drops its last half.
    pub fn fill_normals(&mut self, out: &mut [f32]) {
        let mut normal = PolarNormal::default();
        out.iter_mut().for_each(|out| *out = normal.sample(self));
    }

    /// Uniform in 0..`n` for `n` >= 1, without bias, as `std::uniform_int_distribution(0, n - 1)` from GCC 11 on draws it:
    /// multiply-high with rejection (Lemire, Fast Random Integer Generation in an Interval, ACM TOMACS 29, 2019). `n` = 0
    /// gives 0.
    pub fn below(&mut self, n: u32) -> u32 {
        let mut product = u64::from(self.next_u32()) * u64::from(n);
        if (product as u32) < n {
            let threshold = n.wrapping_neg() % n;
            while (product as u32) < threshold {
                product = u64::from(self.next_u32()) * u64::from(n);
            }
        }
        (product >> 32) as u32
    }
}

/// Marsaglia's polar method (Marsaglia and Bray, A Convenient Method for Generating Normal Variables, SIAM Review 6,
/// 1964) in the order of `std::normal_distribution<float>`: y first, then the kept x. A fresh one for each group.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolarNormal {
    kept: Option<f32>,
}

impl PolarNormal {
    /// The next standard normal.
    pub fn sample(&mut self, rng: &mut Mersenne) -> f32 {
        if let Some(kept) = self.kept.take() {
            return kept;
        }
        loop {
            let x = 2.0 * rng.uniform() - 1.0;
            let y = 2.0 * rng.uniform() - 1.0;
            let r2 = x * x + y * y;
            if r2 <= 1.0 && r2 != 0.0 {
                let m = (-2.0 * math::ln(Scalar, r2) / r2).sqrt();
                self.kept = Some(x * m);
                return y * m;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! The expected numbers were printed by a program of std::mt19937, std::normal_distribution<float> and
    //! std::uniform_int_distribution, compiled by g++ 12.2 (libstdc++, x86-64, -O1 -ffp-contract=off).
    use super::*;

    fn assert_close(got: f32, bits: u32, what: &str) {
        let expected = f32::from_bits(bits);
        // Of equal sign, bit patterns count in ulp.
        assert!(got.to_bits().abs_diff(bits) <= 2, "{what}: {got:e}, expected {expected:e}");
    }

    #[test]
    fn words_are_those_of_the_standard() {
        let mut rng = Mersenne::new(1);
        let first = [0; 4].map(|_| rng.next_u32());
        assert_eq!(first, [1_791_095_845, 4_282_876_139, 3_093_770_124, 4_005_303_368]);
        // The C++ standard (rand.predef) names this one.
        let mut rng = Mersenne::new(5489);
        assert_eq!((0..10_000).map(|_| rng.next_u32()).last(), Some(4_123_659_995));
    }

    #[test]
    fn a_restored_generator_goes_on_with_the_same_words() {
        for drawn in [0, 1, 623, 624, 625, 2000] {
            let mut rng = Mersenne::new(7);
            (0..drawn).for_each(|_| _ = rng.next_u32());
            let mut restored = Mersenne::from_state(&rng.state()).unwrap();
            assert_eq!(restored, rng);
            for _ in 0..1300 {
                assert_eq!(restored.next_u32(), rng.next_u32());
            }
        }
        assert_eq!(Mersenne::from_state(&[]), None);
        assert_eq!(Mersenne::from_state(&[1; 624]), None);
        assert_eq!(Mersenne::from_state(&[625; 625]), None);
    }

    /// (seed, normals 0..12, normal 100 000, the word drawn after it)
    const NORMALS: [(u32, [u32; 12], u32, u32); 3] = [
        (
            1,
            [
                0x3e9c_e06b,
                0x3e1f_cfaf,
                0xbed9_4927,
                0xbf11_6b0e,
                0xbe51_74af,
                0xbf4e_68ee,
                0xbedb_8380,
                0xbf99_9b0c,
                0x3fa7_19b7,
                0xbf98_0841,
                0x3f25_c106,
                0xbe1d_2651,
            ],
            0x3e81_9e60,
            2_563_818_105,
        ),
        (
            5489,
            [
                0xbe96_20d2,
                0x3e81_9e52,
                0xbd69_d27f,
                0x3dad_3d9a,
                0xbfb8_1773,
                0x3f7e_0931,
                0x3dda_d2ad,
                0xbf69_20ad,
                0xbf58_2e10,
                0xbf19_a9ca,
                0x3e4a_3492,
                0x3c99_dd9d,
            ],
            0x3e3f_f372,
            1_074_902_354,
        ),
        (
            u32::MAX,
            [
                0x3e03_0a66,
                0x3f57_7d2b,
                0x3e08_fb75,
                0x3fbc_06ab,
                0x3f31_e7a3,
                0x3f38_13c1,
                0x3b99_8505,
                0x3f00_62f7,
                0x3fd3_62fa,
                0x3f49_7eb4,
                0x3ee5_1eba,
                0xbf4b_6333,
            ],
            0x3f0b_5f6a,
            873_546_776,
        ),
    ];

    #[test]
    fn normals_follow_libstdcxx() {
        for (seed, first, far, word) in NORMALS {
            let mut rng = Mersenne::new(seed);
            let mut normal = PolarNormal::default();
            for (i, bits) in first.into_iter().enumerate() {
                assert_close(normal.sample(&mut rng), bits, &format!("seed {seed}, normal {i}"));
            }
            (first.len()..100_000).for_each(|_| _ = normal.sample(&mut rng));
            assert_close(normal.sample(&mut rng), far, &format!("seed {seed}, normal 100000"));
            assert_eq!(rng.next_u32(), word, "seed {seed}: the rejections differ");
        }
    }

    #[test]
    fn a_fresh_group_drops_the_kept_half() {
        let mut rng = Mersenne::new(42);
        let (mut five, mut three) = ([0.0; 5], [0.0; 3]);
        rng.fill_normals(&mut five);
        rng.fill_normals(&mut three);
        let expected =
            [0x3f9c_67eb, 0xbf04_57c3, 0x3f5e_a076, 0x3f38_a942, 0x3fcb_55d0, 0xbe3f_9d9d, 0xbf98_1a80, 0xbd81_e25b];
        for (got, bits) in five.into_iter().chain(three).zip(expected) {
            assert_close(got, bits, "seed 42");
        }
        assert_eq!([rng.below(1000), rng.below(1000)], [866, 333]);
    }

    /// (n, the first eight draws of seed 1, the word that follows the thousandth). 1.5e9 and 3e9 reject words here.
    const BELOW: [(u32, [u32; 8], u32); 9] = [
        (1, [0; 8], 375_733_240),
        (2, [0, 1, 1, 1, 0, 0, 0, 1], 375_733_240),
        (7, [2, 6, 5, 6, 0, 0, 2, 6], 375_733_240),
        (1000, [417, 997, 720, 932, 0, 128, 302, 999], 375_733_240),
        (65_536, [27_329, 65_351, 47_207, 61_116, 7, 8_396, 19_813, 65_473], 375_733_240),
        (
            1_500_000_000,
            [625_532_997, 1_080_486_733, 1_398_836_041, 171_571, 192_186_671, 453_498_851, 220_133_838, 354_133_464],
            268_474_684,
        ),
        (
            2_147_483_647,
            [
                895_547_922,
                2_141_438_068,
                1_546_885_061,
                2_002_651_683,
                245_631,
                275_145_156,
                649_254_245,
                2_145_423_169,
            ],
            375_733_240,
        ),
        (
            3_000_000_000,
            [
                1_251_065_995,
                2_991_554_424,
                2_160_973_467,
                2_797_672_083,
                384_373_343,
                440_267_677,
                708_266_928,
                277_015_786,
            ],
            689_030_378,
        ),
        (
            u32::MAX,
            [
                1_791_095_844,
                4_282_876_138,
                3_093_770_123,
                4_005_303_367,
                491_262,
                550_290_312,
                1_298_508_490,
                4_290_846_340,
            ],
            375_733_240,
        ),
    ];

    #[test]
    fn bounded_integers_follow_libstdcxx() {
        for (n, first, word) in BELOW {
            let mut rng = Mersenne::new(1);
            assert_eq!([0; 8].map(|_| rng.below(n)), first, "n = {n}");
            (8..1000).for_each(|_| _ = rng.below(n));
            assert_eq!(rng.next_u32(), word, "n = {n}");
        }
    }
}
