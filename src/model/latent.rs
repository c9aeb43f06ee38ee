//! Where a texel reads a latent level, and which texels read a latent texel.
//!
//! Both are per-axis tables made once on the host in f32; no backend computes a tap (DESIGN section 5, rule 5).

use super::structure::{Filter, Level, Structure};

/// Taps of one level along one axis, one entry a texel position.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisTaps {
    /// First latent index read, clamped to the level.
    pub first: Vec<u32>,
    /// Second latent index read; the same as `first` for a nearest level and where clamping merges the two.
    pub second: Vec<u32>,
    /// Weight of `second` (bilinear), or the offset inside the cell (nearest); in [0, 1).
    pub fraction: Vec<f32>,
    /// Latent index before clamping: -1 left of the first latent centre of a bilinear level.
    pub unclamped: Vec<i32>,
}

impl AxisTaps {
    /// Taps of `extent` texels on `size` latent texels (SPEC section 2).
    pub fn new(extent: usize, size: usize, filter: Filter) -> Self {
        let mut taps = AxisTaps { first: vec![], second: vec![], fraction: vec![], unclamped: vec![] };
        let last = size as i32 - 1;
        for p in 0..extent {
            let u = (p as f32 + 0.5) / extent as f32;
            let x = match filter {
                Filter::Bilinear => u * size as f32 - 0.5,
                Filter::Nearest => u * size as f32,
            };
            let i = x.floor() as i32;
            let next = if filter == Filter::Bilinear { i + 1 } else { i };
            taps.first.push(i.clamp(0, last) as u32);
            taps.second.push(next.clamp(0, last) as u32);
            taps.fraction.push(x - x.floor());
            taps.unclamped.push(i);
        }
        taps
    }
}

/// For each latent index of an axis, the half-open range of texel positions that read it; empty = (0, 0).
#[derive(Clone, Debug, PartialEq)]
pub struct Footprint(pub Vec<(u32, u32)>);

impl Footprint {
    /// Positions whose taps read each of `size` latent indices. With a deblocking `ring` (a weight a position, 0 = off),
    /// a position inside the ring also reads what its two neighbours read.
    pub fn new(taps: &AxisTaps, size: usize, ring: Option<&[f32]>) -> Self {
        let mut ranges = vec![(u32::MAX, 0u32); size];
        let extent = taps.first.len();
        for p in 0..extent {
            let near = match ring {
                Some(ring) if ring[p] > 0.0 => p.saturating_sub(1)..(p + 2).min(extent),
                _ => p..p + 1,
            };
            for q in near {
                for i in [taps.first[q], taps.second[q]] {
                    let range = &mut ranges[i as usize];
                    *range = (range.0.min(p as u32), range.1.max(p as u32 + 1));
                }
            }
        }
        Footprint(ranges.into_iter().map(|(a, b)| if a == u32::MAX { (0, 0) } else { (a, b) }).collect())
    }
}

/// Deblocking weights along one axis of `extent` texels with level 0's cell of `cell` texels (SPEC section 4).
pub fn deblock_weights(extent: usize, cell: usize, falloff: f32) -> Vec<f32> {
    let positive = |x: f32| if x > 0.0 { x } else { 0.0 };
    (0..extent)
        .map(|px| {
            let p = (px % cell) as f32 + 0.5;
            let near = positive(1.0 - p / falloff);
            let far = positive(1.0 - (cell as f32 - p) / falloff);
            let twice = 2.0 * if near > far { near } else { far };
            if twice < 1.0 { twice } else { 1.0 }
        })
        .collect()
}

/// Tables of one level along both axes.
#[derive(Clone, Debug)]
pub struct LevelTaps {
    /// Along x.
    pub x: AxisTaps,
    /// Along y.
    pub y: AxisTaps,
}

impl LevelTaps {
    /// The taps of `level` over an extent of `width` x `height` texels.
    pub fn new(level: &Level, width: usize, height: usize) -> Self {
        LevelTaps {
            x: AxisTaps::new(width, level.width, level.filter),
            y: AxisTaps::new(height, level.height, level.filter),
        }
    }
}

/// The texels that credit each latent texel of one level, as ranges along each axis.
///
/// Without deblocking a texel credits `own.x` x `own.y`. With it, a ring texel also credits what the neighbours mixed in
/// read: the union of `ring.x` x `own.y` and `own.x` x `ring.y`, whose intersection is `own.x` x `own.y`.
#[derive(Clone, Debug)]
pub struct Support {
    /// (x, y) footprints of the taps alone.
    pub own: (Footprint, Footprint),
    /// (x, y) footprints widened by the deblocking ring.
    pub ring: Option<(Footprint, Footprint)>,
}

impl Support {
    /// Footprints of `level` with taps `taps` and the deblocking weights of both axes, if any.
    pub fn new(level: &Level, taps: &LevelTaps, deblock: Option<(&[f32], &[f32])>) -> Self {
        let own = (Footprint::new(&taps.x, level.width, None), Footprint::new(&taps.y, level.height, None));
        let ring = deblock.map(|(x, y)| {
            (Footprint::new(&taps.x, level.width, Some(x)), Footprint::new(&taps.y, level.height, Some(y)))
        });
        Support { own, ring }
    }
}

/// Texels that one latent texel of a level covers along each axis (floor; exact where the level divides the extent).
pub fn cell_of(structure: &Structure, level: usize) -> (usize, usize) {
    let l = &structure.levels[level];
    ((structure.width / l.width).max(1), (structure.height / l.height).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bilinear_taps_of_four_texels_on_two() {
        // x = u*2 - 1/2 at u = 1/8, 3/8, 5/8, 7/8: -0.25, 0.25, 0.75, 1.25
        let t = AxisTaps::new(4, 2, Filter::Bilinear);
        assert_eq!(t.first, [0, 0, 0, 1]);
        assert_eq!(t.second, [0, 1, 1, 1]);
        assert_eq!(t.fraction, [0.75, 0.25, 0.75, 0.25]);
        assert_eq!(t.unclamped, [-1, 0, 0, 1]);
        // The first latent texel is read by positions 0..3, the second by 1..4: a clamped border texel counts once.
        assert_eq!(Footprint::new(&t, 2, None).0, [(0, 3), (1, 4)]);
    }

    #[test]
    fn nearest_taps_give_the_cell_offset() {
        let t = AxisTaps::new(4, 2, Filter::Nearest);
        assert_eq!(t.first, [0, 0, 1, 1]);
        assert_eq!(t.second, t.first);
        assert_eq!(t.fraction, [0.25, 0.75, 0.25, 0.75]);
        let ring = deblock_weights(4, 2, 1.0);
        assert_eq!(ring, [1.0; 4]);
        assert_eq!(Footprint::new(&t, 2, Some(&ring)).0, [(0, 3), (1, 4)]);
    }

    #[test]
    fn footprints_of_every_size_hold_exactly_the_readers() {
        for extent in 1..40usize {
            for size in 1..50usize {
                for filter in [Filter::Bilinear, Filter::Nearest] {
                    let t = AxisTaps::new(extent, size, filter);
                    let f = Footprint::new(&t, size, None);
                    for i in 0..size as u32 {
                        let (a, b) = f.0[i as usize];
                        for p in 0..extent {
                            let reads = t.first[p] == i || t.second[p] == i;
                            assert_eq!(reads, (a..b).contains(&(p as u32)), "extent {extent} size {size} {filter:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn deblock_weight_is_one_on_the_ring_and_zero_inside() {
        assert_eq!(deblock_weights(8, 4, 1.0), [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
        // falloff 3: proximity at p = 0.5 is 5/6, at 1.5 it is 1/2: twice that is capped at 1.
        assert_eq!(deblock_weights(4, 4, 3.0), [1.0; 4]);
        // falloff 2 on a cell of 8: 1 - 1.5/2 = 1/4 -> 1/2 on the second texel.
        assert_eq!(deblock_weights(8, 8, 2.0), [1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0]);
    }
}
