//! What values cost in the coded file, as searches weigh it against the error.

use super::loss::UNIT;

/// Parts of a bit that costs are counted in.
pub const PARTS: f64 = 1024.0;

/// Costs of a level's values: for each value, as (y, x, channel), those of a window of grid indices.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// First index of each value's window.
    pub first: Vec<u16>,
    /// Indices of a window.
    pub window: usize,
    /// Costs \[value]\[index - first], in 1/1024 bit.
    pub costs: Vec<i32>,
    /// Units of loss, 2^-36, that 1/1024 bit stands for.
    pub unit: i64,
}

impl Prices {
    /// Units of loss for 1/1024 bit at `lambda` squared 8-bit levels, of one texel's loss, a bit.
    pub fn unit(lambda: f32) -> i64 {
        (f64::from(lambda) * UNIT / (255.0 * 255.0 * PARTS)).round() as i64
    }

    /// The price of index `index` of value number `place`, in units of loss; beyond the window that of its end.
    pub fn of(&self, place: usize, index: u32) -> i64 {
        let at = (index as usize).saturating_sub(usize::from(self.first[place])).min(self.window - 1);
        i64::from(self.costs[place * self.window + at]) * self.unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_by_hand() {
        // One squared level is 2^36 / 65025 = 1056816.3 units of loss; a part of it 1032.05.
        assert_eq!((Prices::unit(1.0), Prices::unit(10.0), Prices::unit(0.0)), (1032, 10320, 0));
        let prices = Prices { first: vec![0, 4], window: 2, costs: vec![1024, 512, 0, 3], unit: 10 };
        assert_eq!([0, 1, 2].map(|k| prices.of(0, k)), [10240, 5120, 5120]);
        assert_eq!([0, 4, 5, 6].map(|k| prices.of(1, k)), [0, 0, 30, 30]);
    }
}
