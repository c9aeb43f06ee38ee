//! The bundled material's generator: a procedural cobblestone whose maps all derive from one height field.
//!
//! It tiles in both axes and gives the same bits on every machine: `+ - * /`, `sqrt` and `floor` of f64 only, an integer
//! lattice noise, and PCG for the stones. Lengths are in stones: the tile is eight stones wide and high.

use std::path::Path;

use rand::Rng;
use rand_pcg::Pcg64;

use super::write::write_png;
use crate::error::{Error, Result};

/// Stones across and down; even, so that every other row can be shifted by half a stone.
const ROWS: usize = 8;
/// Largest picture that is generated, in texels a side.
pub const MAX_SIZE: usize = 8192;

/// The maps of a `size` x `size` tile with their meaning: normal (RGB, green up), roughness (grey), albedo (RGB), ambient
/// occlusion (grey; 1 = open). Planes are `[channel][texel]` in 0..1. The seed places and tints the stones.
pub fn cobblestone(size: usize, seed: u64) -> [(&'static str, Vec<Vec<f32>>); 4] {
    let stones = stones(seed);
    let surface = Surface::new(size, seed, &stones);
    let openness = surface.openness();
    [
        ("normal", surface.normal()),
        ("roughness", surface.map(|i| [surface.roughness(&stones, i, openness[i])])),
        ("albedo", surface.map(|i| surface.albedo(&stones, i, openness[i]))),
        ("ao", surface.map(|i| [surface.occlusion(i, openness[i])])),
    ]
}

/// Writes m1.png (normal), m2.png (roughness), m3.png (albedo) and m4.png (ambient occlusion) into `dir`, 8 bits.
pub fn write_material(dir: &Path, size: usize, seed: u64) -> Result<()> {
    if !(1..=MAX_SIZE).contains(&size) {
        return Err(Error::config(format!("--size {size}: the material has 1 to {MAX_SIZE} texels a side")));
    }
    std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
    for (k, (_, planes)) in cobblestone(size, seed).iter().enumerate() {
        let slices: Vec<_> = planes.iter().map(Vec::as_slice).collect();
        write_png(&dir.join(format!("m{}.png", k + 1)), size, size, 8, &slices)?;
    }
    Ok(())
}

/// One stone of the pattern.
struct Stone {
    /// Centre in stones, inside the tile up to the jitter.
    centre: [f64; 2],
    /// Height of its top above the mean.
    lift: f64,
    /// Slope of its top along x and y.
    tilt: [f64; 2],
    /// Colour of its face.
    tint: [f64; 3],
    /// Added to the roughness of its face.
    rough: f64,
}

/// The stones of the tile, row by row: a brick pattern, jittered.
fn stones(seed: u64) -> Vec<Stone> {
    let mut pcg = Pcg64::new(u128::from(seed), 0xC0BB1E);
    let mut uniform = move || (pcg.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let mut stone = |k: usize| {
        let (column, row) = (k % ROWS, k / ROWS);
        let mut signed = |scale: f64| (2.0 * uniform() - 1.0) * scale;
        let shift = 0.5 * (row % 2) as f64;
        Stone {
            centre: [column as f64 + 0.5 + shift + signed(0.17), row as f64 + 0.5 + signed(0.13)],
            lift: signed(0.09),
            tilt: [signed(0.12), signed(0.12)],
            tint: tint(0.5 + signed(0.5), 0.5 + signed(0.5), 1.0 + signed(0.22)),
            rough: signed(0.09),
        }
    };
    (0..ROWS * ROWS).map(&mut stone).collect()
}

/// A stone colour between grey, brown, blue-grey and dark basalt, by two numbers in 0..1 and a brightness.
fn tint(warm: f64, dark: f64, brightness: f64) -> [f64; 3] {
    let [grey, brown, blue, basalt] = [[0.50, 0.49, 0.47], [0.52, 0.45, 0.39], [0.44, 0.46, 0.49], [0.34, 0.33, 0.33]];
    std::array::from_fn(|c| {
        let light = mix(grey[c], brown[c], step(0.35, 0.95, warm));
        brightness * mix(light, mix(blue[c], basalt[c], warm), step(0.5, 0.9, dark))
    })
}

/// Height and what it was made from, per texel of the tile.
struct Surface {
    size: usize,
    seed: u64,
    /// In stones, about 0..1.
    height: Vec<f64>,
    /// Which stone the texel lies on or is nearest to.
    stone: Vec<usize>,
    /// 0 in the grout, 1 on the stone's face.
    face: Vec<f64>,
}

impl Surface {
    fn new(size: usize, seed: u64, stones: &[Stone]) -> Self {
        let mut surface = Surface { size, seed, height: vec![], stone: vec![], face: vec![] };
        for i in 0..size * size {
            let p = surface.position(i);
            // Wavy outlines: the pattern is looked up at a warped place.
            let warp = |salt| 0.16 * (surface.fractal(i, 2, 4, salt) - 0.5);
            let warped = [p[0] + warp(1), p[1] + warp(2)];
            let (nearest, centre, inside) = nearest_stone(stones, warped);
            let stone = &stones[nearest];
            let rise = clamp((inside - 0.028) / 0.19);
            let dome = (1.0 - (1.0 - rise) * (1.0 - rise)).sqrt();
            let slope = stone.tilt[0] * (warped[0] - centre[0]) + stone.tilt[1] * (warped[1] - centre[1]);
            let bumps = 0.16 * (surface.fractal(i, 2, 6, 3) - 0.5) + 0.03 * surface.pits(i);
            let top = 0.30 + 0.42 * dome + stone.lift + slope + bumps;
            let grout = 0.22 + 0.14 * (surface.fractal(i, 4, 5, 4) - 0.5) + 0.05 * surface.gravel(i);
            let face = step(0.0, 0.35, rise);
            surface.height.push(mix(grout, top, face));
            surface.stone.push(nearest);
            surface.face.push(face);
        }
        surface
    }

    /// Centre of texel `i` in stones.
    fn position(&self, i: usize) -> [f64; 2] {
        let scale = ROWS as f64 / self.size as f64;
        [(i % self.size) as f64 * scale + 0.5 * scale, (i / self.size) as f64 * scale + 0.5 * scale]
    }

    /// Tiling noise in 0..1 around 0.5: `octaves` from `cells` lattice cells a stone upwards, each half as strong.
    fn fractal(&self, i: usize, cells: usize, octaves: u32, salt: u64) -> f64 {
        let p = self.position(i);
        let (mut sum, mut weight, mut total) = (0.0, 1.0, 0.0);
        for octave in 0..octaves {
            let cells = (cells << octave) as f64;
            let key = self.seed ^ (salt << 8 | u64::from(octave)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            // Every other octave runs along the diagonals, so that no direction shows; integer factors keep the period.
            let q = if octave % 2 == 1 { [p[0] + p[1], p[1] - p[0]] } else { p };
            sum += weight * value_noise(q[0] * cells, q[1] * cells, (ROWS as f64 * cells) as i64, key);
            total += weight;
            weight *= 0.5;
        }
        sum / total
    }

    /// Small holes in the faces: -1..0, mostly 0.
    fn pits(&self, i: usize) -> f64 {
        -step(0.60, 0.82, self.fractal(i, 8, 3, 5))
    }

    /// Grains of sand and small stones between the stones: 0..1.
    fn gravel(&self, i: usize) -> f64 {
        step(0.45, 0.75, self.fractal(i, 10, 2, 6))
    }

    /// The planes of a map given texel by texel.
    fn map<const C: usize>(&self, texel: impl Fn(usize) -> [f64; C]) -> Vec<Vec<f32>> {
        let mut planes = vec![Vec::with_capacity(self.height.len()); C];
        for i in 0..self.height.len() {
            for (plane, value) in planes.iter_mut().zip(texel(i)) {
                plane.push(clamp(value) as f32);
            }
        }
        planes
    }

    /// Tangent-space normals from central differences, n / 2 + 1/2.
    fn normal(&self) -> Vec<Vec<f32>> {
        let n = self.size;
        let steepness = 0.5 * n as f64 / ROWS as f64; // half of the true slope: the stones look worn
        self.map(|i| {
            let (x, y) = (i % n, i / n);
            let at = |x: usize, y: usize| self.height[y % n * n + x % n];
            let dx = 0.5 * (at(x + 1, y) - at(x + n - 1, y)) * steepness;
            let dy = 0.5 * (at(x, y + 1) - at(x, y + n - 1)) * steepness;
            let length = (dx * dx + dy * dy + 1.0).sqrt();
            // The slope along y counts upwards, rows count downwards: the signs cancel.
            [-dx / length, dy / length, 1.0 / length].map(|v| 0.5 + 0.5 * v)
        })
    }

    /// How open each texel lies, 0..1: how far the height stays below its surroundings at three scales.
    fn openness(&self) -> Vec<f64> {
        let mut open = vec![1.0; self.height.len()];
        for (divisor, strength) in [(160, 1.0), (64, 0.6), (24, 0.4)] {
            let around = blur(&self.height, self.size, (self.size / divisor).max(1));
            for ((o, a), h) in open.iter_mut().zip(&around).zip(&self.height) {
                *o /= 1.0 + strength * 4.0 * (a - h).max(0.0);
            }
        }
        open
    }

    fn occlusion(&self, i: usize, open: f64) -> f64 {
        let dirt = 0.12 * step(0.5, 0.8, self.fractal(i, 2, 5, 7)) * (1.0 - 0.6 * self.face[i]);
        open * (1.0 - dirt)
    }

    fn roughness(&self, stones: &[Stone], i: usize, open: f64) -> f64 {
        let stone = &stones[self.stone[i]];
        let worn = step(0.55, 0.85, self.height[i]);
        let grain = self.fractal(i, 6, 5, 8) - 0.5;
        let face = 0.62 + stone.rough - 0.16 * worn + 0.30 * grain - 0.12 * self.pits(i);
        let grout = 0.88 + 0.16 * grain - 0.08 * self.gravel(i);
        mix(grout, face, self.face[i]) + 0.05 * (1.0 - open)
    }

    fn albedo(&self, stones: &[Stone], i: usize, open: f64) -> [f64; 3] {
        let stone = &stones[self.stone[i]];
        let (blotch, grain) = (self.fractal(i, 1, 5, 9) - 0.5, self.fractal(i, 10, 4, 10) - 0.5);
        let worn = step(0.55, 0.9, self.height[i]);
        let shade = (1.0 + 0.60 * blotch + 0.70 * grain + 0.10 * worn) * (1.0 + 0.25 * self.pits(i));
        let moss = step(0.50, 0.68, self.fractal(i, 1, 5, 11)) * (1.0 - self.face[i]);
        let (soil, sand, green) = ([0.25, 0.20, 0.15], [0.46, 0.41, 0.34], [0.20, 0.25, 0.10]);
        std::array::from_fn(|c| {
            let face = stone.tint[c] * shade;
            let grain = 1.0 + 0.7 * grain + 0.3 * blotch;
            let grout = mix(mix(soil[c], sand[c], 0.6 * self.gravel(i)), green[c], moss) * grain;
            mix(grout, face, self.face[i]) * (0.68 + 0.32 * open)
        })
    }
}

/// The stone whose cell `p` lies in: its number, its centre in p's period, and the distance to the cell's rounded border.
fn nearest_stone(stones: &[Stone], p: [f64; 2]) -> (usize, [f64; 2], f64) {
    let n = ROWS as i64;
    let (column, row) = (p[0].floor() as i64, p[1].floor() as i64);
    let mut near = [(0, [0.0; 2], 0.0); 25];
    for (k, slot) in near.iter_mut().enumerate() {
        let (c, r) = (column + k as i64 % 5 - 2, row + k as i64 / 5 - 2);
        let index = (r.rem_euclid(n) * n + c.rem_euclid(n)) as usize;
        let wrap = [(c - c.rem_euclid(n)) as f64, (r - r.rem_euclid(n)) as f64];
        let centre = [stones[index].centre[0] + wrap[0], stones[index].centre[1] + wrap[1]];
        let (dx, dy) = (centre[0] - p[0], centre[1] - p[1]);
        *slot = (index, centre, dx * dx + dy * dy);
    }
    let nearest = near.iter().fold(near[0], |best, s| if s.2 < best.2 { *s } else { best });
    let (index, a, _) = nearest;
    let mut inside = 1.0;
    for (_, b, _) in near.iter().filter(|s| s.1 != a) {
        let (ex, ey) = (b[0] - a[0], b[1] - a[1]);
        let along = (0.5 * (a[0] + b[0]) - p[0]) * ex + (0.5 * (a[1] + b[1]) - p[1]) * ey;
        inside = smooth_min(inside, along / (ex * ex + ey * ey).sqrt(), 0.14);
    }
    (index, a, inside)
}

/// Minimum with corners rounded over the width `k`.
fn smooth_min(a: f64, b: f64, k: f64) -> f64 {
    let h = clamp(0.5 + 0.5 * (b - a) / k);
    mix(b, a, h) - k * h * (1.0 - h)
}

/// Lattice values in 0..1, smoothly interpolated; repeats after `period` cells in both axes.
fn value_noise(x: f64, y: f64, period: i64, key: u64) -> f64 {
    let (column, row) = (x.floor(), y.floor());
    let fade = |t: f64| t * t * t * (t * (t * 6.0 - 15.0) + 10.0);
    let (fx, fy) = (fade(x - column), fade(y - row));
    let corner = |dx: i64, dy: i64| {
        let (c, r) = ((column as i64 + dx).rem_euclid(period), (row as i64 + dy).rem_euclid(period));
        (scramble(key ^ scramble((c as u64) << 32 | r as u64)) >> 11) as f64 / (1u64 << 53) as f64
    };
    mix(mix(corner(0, 0), corner(1, 0), fx), mix(corner(0, 1), corner(1, 1), fx), fy)
}

/// A bijection of 64 bits that spreads every input bit (the finaliser of SplitMix64).
fn scramble(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Three passes of a box of 2 `radius` + 1 texels along each axis, wrapping around: close to a Gaussian.
fn blur(plane: &[f64], size: usize, radius: usize) -> Vec<f64> {
    let mut plane = plane.to_vec();
    for _ in 0..3 {
        for k in 0..size {
            blur_line(&mut plane, size, radius, k * size, 1);
        }
        for k in 0..size {
            blur_line(&mut plane, size, radius, k, size);
        }
    }
    plane
}

/// One box pass over the `size` values from `start` on, `stride` apart.
fn blur_line(plane: &mut [f64], size: usize, radius: usize, start: usize, stride: usize) {
    let line: Vec<f64> = (0..size).map(|k| plane[start + k * stride]).collect();
    let at = |k: usize| line[k % size];
    let mut sum: f64 = (0..=2 * radius).map(|k| at(k + size * radius - radius)).sum();
    for k in 0..size {
        plane[start + k * stride] = sum / (2 * radius + 1) as f64;
        sum += at(k + radius + 1) - at(k + size * radius - radius);
    }
}

fn mix(a: f64, b: f64, t: f64) -> f64 {
    a + (b - a) * t
}

fn clamp(x: f64) -> f64 {
    if x > 1.0 {
        1.0
    } else if x > 0.0 {
        x
    } else {
        0.0
    }
}

/// 0 below `low`, 1 above `high`, smooth between.
fn step(low: f64, high: f64, x: f64) -> f64 {
    let t = clamp((x - low) / (high - low));
    t * t * (3.0 - 2.0 * t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_files_are_what_the_generator_makes() {
        let folder = tempfile::tempdir().unwrap();
        write_material(folder.path(), 512, 1).unwrap();
        for k in 1..=4 {
            let name = format!("m{k}.png");
            let committed = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(&name)).unwrap();
            let made = std::fs::read(folder.path().join(&name)).unwrap();
            // Not assert_eq: a difference would print half a million numbers.
            assert!(made == committed, "data/{name} differs: run ntc-es synth --out data --size 512 --seed 1");
        }
    }

    #[test]
    fn every_size_works_and_seeds_differ() {
        for size in [1, 2, 7, 33] {
            for (name, planes) in cobblestone(size, 5) {
                assert!(planes.iter().all(|p| p.len() == size * size), "{name} {size}");
                assert!(planes.iter().flatten().all(|v| (0.0..=1.0).contains(v)), "{name} {size}");
            }
        }
        assert!(cobblestone(16, 1)[2].1 != cobblestone(16, 2)[2].1);
        assert!(write_material(Path::new("unused"), 0, 1).unwrap_err().to_string().contains("--size 0"));
    }

    #[test]
    fn the_tile_wraps() {
        // Moving by a whole tile finds the same stone, distance and noise.
        let stones = stones(3);
        let n = ROWS as f64;
        for (x, y) in [(0.25, 0.5), (7.75, 3.125), (4.5, 7.9375)] {
            let (a, b) = (nearest_stone(&stones, [x, y]), nearest_stone(&stones, [x - n, y + n]));
            assert_eq!(a.0, b.0);
            assert!((a.2 - b.2).abs() < 1e-12);
            assert_eq!(value_noise(x, y, 8, 1), value_noise(x - n, y + n, 8, 1));
        }
    }

    #[test]
    fn blurring_keeps_a_constant_and_the_mean() {
        assert!(blur(&[2.0; 25], 5, 3).iter().all(|v| (v - 2.0).abs() < 1e-12));
        let plane: Vec<f64> = (0..64).map(|k| f64::from(k * k % 17)).collect();
        let mean = |p: &[f64]| p.iter().sum::<f64>() / 64.0;
        assert!((mean(&blur(&plane, 8, 2)) - mean(&plane)).abs() < 1e-12);
    }
}
