//! An adaptive binary range coder: decisions with 12-bit probabilities to bytes and back, in integers alone.
//!
//! The interval is `range` wide from `low`; a decision cuts it at `(range >> 12) * p`, the lower part standing for 1.
//! Carries run back through bytes that were held for it. A stream of k renormalisations is k + 4 bytes long, and its
//! reader takes exactly these.

/// Whole of the probabilities: `p / ONE` is that of a 1.
pub const ONE: u32 = 1 << PRECISION;
/// Bits of a probability.
const PRECISION: u32 = 12;
/// Below this width the range takes another byte.
const NARROW: u32 = 1 << 24;
/// Decisions that one byte can hold at most: each takes 0.996 log2(4096 / 4095) bits or more.
pub const DECISIONS_PER_BYTE: u64 = 23_000;

/// Takes decisions one by one: writes them, reads them or counts what they cost.
///
/// Models are written once against this, so that writer and reader cannot differ.
pub trait Coder {
    /// Codes one decision, 0 or 1, where 1 has probability `p / ONE`, 0 < p < ONE, and returns it. A reader ignores `bit`.
    fn code(&mut self, bit: u32, p: u32) -> u32;

    /// Whether the bytes have sufficed so far.
    fn sound(&self) -> bool {
        true
    }

    /// What follows belongs to this account.
    fn account(&mut self, _account: usize) {}

    /// Codes `count` bits of `value`, highest first, at even odds.
    fn code_even(&mut self, value: u32, count: u32) -> u32 {
        (0..count).rev().fold(0, |read, k| 2 * read + self.code(value >> k & 1, ONE / 2))
    }
}

/// A coder whose bytes nobody wants: models learn as if it wrote.
pub struct Learner;

impl Coder for Learner {
    fn code(&mut self, bit: u32, _p: u32) -> u32 {
        bit
    }
}

/// Writes decisions.
#[derive(Debug)]
pub struct Encoder {
    low: u64,
    range: u32,
    /// The byte that a carry may still reach; none before the first, which is always 0.
    held: Option<u8>,
    /// Bytes of 255 behind it.
    pending: usize,
    bytes: Vec<u8>,
}

impl Encoder {
    /// An empty stream.
    pub fn new() -> Self {
        Encoder { low: 0, range: u32::MAX, held: None, pending: 0, bytes: vec![] }
    }

    fn shift(&mut self) {
        if self.low < 0xff00_0000 || self.low > 0xffff_ffff {
            let carry = (self.low >> 32) as u8;
            self.bytes.extend(self.held.map(|byte| byte.wrapping_add(carry)));
            self.bytes.extend(std::iter::repeat_n(255u8.wrapping_add(carry), self.pending));
            self.pending = 0;
            self.held = Some((self.low >> 24) as u8);
        } else {
            self.pending += 1;
        }
        self.low = (self.low & 0x00ff_ffff) << 8;
    }

    /// The bytes of everything coded.
    pub fn finish(mut self) -> Vec<u8> {
        (0..5).for_each(|_| self.shift());
        self.bytes
    }
}

impl Coder for Encoder {
    #[inline]
    fn code(&mut self, bit: u32, p: u32) -> u32 {
        let bound = (self.range >> PRECISION) * p;
        if bit != 0 {
            self.range = bound;
        } else {
            self.low += u64::from(bound);
            self.range -= bound;
        }
        while self.range < NARROW {
            self.range <<= 8;
            self.shift();
        }
        bit
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads decisions.
#[derive(Debug)]
pub struct Decoder<'a> {
    code: u32,
    range: u32,
    bytes: std::slice::Iter<'a, u8>,
    /// Whether a byte was wanted behind the end.
    short: bool,
}

impl<'a> Decoder<'a> {
    /// Reads from `bytes`; what is missing counts as 0 and is remembered.
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Decoder { code: 0, range: u32::MAX, bytes: bytes.iter(), short: false };
        (0..4).for_each(|_| decoder.shift());
        decoder
    }

    fn shift(&mut self) {
        let byte = self.bytes.next();
        self.short |= byte.is_none();
        self.code = self.code << 8 | u32::from(byte.copied().unwrap_or(0));
    }

    /// Whether all bytes were read and none was missing.
    pub fn is_complete(&self) -> bool {
        !self.short && self.bytes.len() == 0
    }
}

impl Coder for Decoder<'_> {
    #[inline]
    fn code(&mut self, _bit: u32, p: u32) -> u32 {
        let bound = (self.range >> PRECISION) * p;
        let bit = if self.code < bound {
            self.range = bound;
            1
        } else {
            self.code -= bound;
            self.range -= bound;
            0
        };
        while self.range < NARROW {
            self.range <<= 8;
            self.shift();
        }
        bit
    }

    fn sound(&self) -> bool {
        !self.short
    }
}

/// Adds up what decisions cost, by account.
#[derive(Debug)]
pub struct Tally {
    /// Bits of each account.
    pub bits: Vec<f64>,
    /// Decisions of all accounts.
    pub decisions: u64,
    account: usize,
}

impl Tally {
    /// No cost yet.
    pub fn new(accounts: usize) -> Self {
        Tally { bits: vec![0.0; accounts], decisions: 0, account: 0 }
    }
}

impl Coder for Tally {
    fn code(&mut self, bit: u32, p: u32) -> u32 {
        let p = f64::from(if bit != 0 { p } else { ONE - p }) / f64::from(ONE);
        self.decisions += 1;
        if let Some(bits) = self.bits.get_mut(self.account) {
            *bits -= p.log2();
        }
        bit
    }

    fn account(&mut self, account: usize) {
        self.account = account;
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Decisions with their probabilities, from a fixed sequence.
    fn decisions(n: usize, p: impl Fn(u32) -> u32) -> Vec<(u32, u32)> {
        let mut state = 12345u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        (0..n).map(|_| (next(), next())).map(|(a, b)| (p(a), b)).map(|(p, b)| (u32::from(b % ONE < p), p)).collect()
    }

    #[test]
    fn what_is_written_is_read_and_costs_what_the_tally_says() {
        let cases: [fn(u32) -> u32; 5] =
            [|a| 1 + a % (ONE - 1), |_| 1, |_| ONE - 1, |a| if a % 2 == 0 { 1 } else { ONE - 1 }, |_| ONE / 2];
        for p in cases {
            for n in [0, 1, 7, 20_000] {
                let decisions = decisions(n, p);
                let (mut encoder, mut tally) = (Encoder::new(), Tally::new(1));
                for &(bit, p) in &decisions {
                    encoder.code(bit, p);
                    tally.code(bit, p);
                }
                let bytes = encoder.finish();
                assert!((bytes.len() as f64 - tally.bits[0] / 8.0 - 4.0).abs() < 1.0 + 0.005 * bytes.len() as f64);
                let mut decoder = Decoder::new(&bytes);
                assert!(decisions.iter().all(|&(bit, p)| decoder.code(0, p) == bit));
                assert!(decoder.is_complete());
            }
        }
    }

    /// The less likely of two improbable outcomes against the odds all the time: the longest runs of carries.
    #[test]
    fn carries_reach_back() {
        for pattern in 0..256u32 {
            let decisions: Vec<_> =
                (0..400).map(|k| (pattern >> (k % 8) & 1, if k % 3 == 0 { 1 } else { 4000 })).collect();
            let mut encoder = Encoder::new();
            decisions.iter().for_each(|&(bit, p)| _ = encoder.code(bit, p));
            let bytes = encoder.finish();
            let mut decoder = Decoder::new(&bytes);
            assert!(decisions.iter().all(|&(bit, p)| decoder.code(0, p) == bit), "{pattern}");
            assert!(decoder.is_complete());
        }
    }

    #[test]
    fn a_byte_holds_no_more_decisions_than_promised() {
        for bit in [0, 1] {
            let mut encoder = Encoder::new();
            let n = 2_000_000u64;
            (0..n).for_each(|_| _ = encoder.code(bit, if bit == 0 { 1 } else { ONE - 1 }));
            let bytes = encoder.finish().len() as u64;
            assert!(n < bytes * DECISIONS_PER_BYTE, "{bytes}");
        }
    }

    #[test]
    fn missing_bytes_are_noticed() {
        let mut decoder = Decoder::new(&[1, 2, 3]);
        assert!(!decoder.sound());
        (0..100).for_each(|_| _ = decoder.code(0, 7));
        assert!(!decoder.is_complete());
        assert!(!Decoder::new(&[0; 5]).is_complete());
    }

    #[test]
    fn even_bits_keep_their_order() {
        let mut encoder = Encoder::new();
        encoder.code_even(0b1011, 4);
        encoder.code_even(77, 7);
        let bytes = encoder.finish();
        let mut decoder = Decoder::new(&bytes);
        assert_eq!((decoder.code_even(0, 4), decoder.code_even(0, 7)), (0b1011, 77));
    }
}
