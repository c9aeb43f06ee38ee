//! Bit packing: numbers of any width up to 16, lowest bit first, one after the other.

/// Writes numbers.
#[derive(Debug, Default)]
pub struct BitWriter {
    bytes: Vec<u8>,
    held: u32,
    count: u32,
}

impl BitWriter {
    /// Appends the low `bits` bits of `value`.
    pub fn put(&mut self, value: u16, bits: u32) {
        self.held |= (u32::from(value) & ((1 << bits) - 1)) << self.count;
        self.count += bits;
        while self.count >= 8 {
            self.bytes.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    /// The bytes; the last one is filled with zeros.
    pub fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.bytes.push(self.held as u8);
        }
        self.bytes
    }
}

/// The `bits` (16 at most) bits from bit `at` on; what lies behind the end is 0.
pub fn bits_at(bytes: &[u8], at: u64, bits: u32) -> u16 {
    let from = usize::try_from(at / 8).unwrap_or(usize::MAX);
    let byte = |k: usize| from.checked_add(k).and_then(|k| bytes.get(k)).map_or(0, |&b| u32::from(b));
    let three = byte(0) | byte(1) << 8 | byte(2) << 16;
    (three >> (at % 8) & ((1 << bits) - 1)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lie_lowest_bit_first() {
        let mut writer = BitWriter::default();
        [(0b1, 1), (0b10, 2), (0b10110, 5), (0xabc, 12), (0xffff, 16)].map(|(v, b)| writer.put(v, b));
        let bytes = writer.finish();
        assert_eq!(bytes, [0b1011_0101, 0xbc, 0xfa, 0xff, 0x0f]);
        assert_eq!(
            [(0, 1), (1, 2), (3, 5), (8, 12), (20, 16)].map(|(at, b)| bits_at(&bytes, at, b)),
            [1, 2, 22, 0xabc, 0xffff]
        );
        assert_eq!((bits_at(&bytes, 36, 16), bits_at(&bytes, u64::MAX, 16), bits_at(&[], 0, 1)), (0, 0, 0));
    }

    #[test]
    fn every_width_comes_back_from_every_offset() {
        for bits in 1..=16 {
            for skip in 0..8 {
                let mut writer = BitWriter::default();
                writer.put(0x55, skip);
                let value = |k: u32| (k.wrapping_mul(40_503) & ((1 << bits) - 1)) as u16;
                (0..50).for_each(|k| writer.put(value(k), bits));
                let bytes = writer.finish();
                assert!((0..50).all(|k| bits_at(&bytes, u64::from(skip + k * bits), bits) == value(k)));
            }
        }
    }
}
