//! Position features: what the decoder knows of a texel besides its latents (SPEC section 2).

use super::lanes::Scalar;
use super::latent::{LevelTaps, cell_of};
use super::math;
use super::structure::{Filter, Structure};
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// One kind of position feature with its count or index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Uv,
    Fourier(usize),
    Dct(usize),
    Local,
    LocalFourier(usize),
    LocalDct(usize),
    LocalQuadratic,
    PeriodDct(usize, usize),
    Level1Local,
    Level1Dct(usize),
    BlockDct(usize),
    BlockDctOne(usize),
    OneHot,
    Bc7Partition(usize),
}

/// Names of the kinds, each with the range of its number where it takes one.
const KINDS: [(&str, Option<(usize, usize)>); 15] = [
    ("uv", None),
    ("fourier", Some((1, 20))),
    ("dct", Some((1, 64))),
    ("local", None),
    ("lfourier", Some((1, 20))),
    ("ldct", Some((1, 64))),
    ("lquad", None),
    ("ldct2", Some((1, 64))),
    ("ldct4", Some((1, 64))),
    ("lv1local", None),
    ("lv1ldct", Some((1, 64))),
    ("bdct", Some((1, 15))),
    ("bdcte", Some((1, 15))),
    ("onehot", None),
    ("bc7part", Some((1, 64))),
];

/// Frequencies (a, b) of `bdct` in its order.
const BLOCK_DCT: [(u32, u32); 15] = [
    (1, 0),
    (0, 1),
    (0, 2),
    (1, 1),
    (2, 0),
    (3, 0),
    (2, 1),
    (1, 2),
    (0, 3),
    (1, 3),
    (2, 2),
    (3, 1),
    (3, 2),
    (2, 3),
    (3, 3),
];

/// BC7's two-subset partitions: bit i is set where texel i (raster order in 4x4) is in subset 1.
const BC7_TWO_SUBSETS: [u16; 64] = [
    0xCCCC, 0x8888, 0xEEEE, 0xECC8, 0xC880, 0xFEEC, 0xFEC8, 0xEC80, 0xC800, 0xFFEC, 0xFE80, 0xE800, 0xFFE8, 0xFF00,
    0xFFF0, 0xF000, 0xF710, 0x008E, 0x7100, 0x08CE, 0x008C, 0x7310, 0x3100, 0x8CCE, 0x088C, 0x3110, 0x6666, 0x366C,
    0x17E8, 0x0FF0, 0x718E, 0x399C, 0xAAAA, 0xF0F0, 0x5A5A, 0x33CC, 0x3C3C, 0x55AA, 0x9696, 0xA55A, 0x73CE, 0x13C8,
    0x324C, 0x3BDC, 0x6996, 0xC33C, 0x9966, 0x0660, 0x0272, 0x04E4, 0x4E40, 0x2720, 0xC936, 0x936C, 0x39C6, 0x639C,
    0x9336, 0x9CC6, 0x817E, 0xE718, 0xCCF0, 0x0FCC, 0x7744, 0xEE22,
];

/// A list of position features in the order of the decoder's inputs; `Display` gives its canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionSpec(Vec<Kind>);

impl FromStr for PositionSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.trim() == "none" {
            return Ok(PositionSpec(vec![]));
        }
        text.split(',').map(|item| parse_kind(item.trim())).collect::<Result<_>>().map(PositionSpec)
    }
}

fn parse_kind(item: &str) -> Result<Kind> {
    let (name, number) = match item.split_once(':') {
        Some((name, number)) => (name, Some(number)),
        None => (item, None),
    };
    let Some(&(_, range)) = KINDS.iter().find(|k| k.0 == name) else {
        let known: Vec<_> = KINDS.iter().map(|k| k.0).collect();
        return Err(Error::config(format!(
            "--pos: `{item}` is not a position kind; one of {}, none",
            known.join(", ")
        )));
    };
    let n = match (range, number) {
        (None, None) => 0,
        (None, Some(_)) => return Err(Error::config(format!("--pos: `{name}` takes no number, got `{item}`"))),
        (Some((low, high)), None) => {
            return Err(Error::config(format!(
                "--pos: `{name}` needs a number from {low} to {high}, as in `{name}:{low}`"
            )));
        }
        (Some((low, high)), Some(text)) => match text.parse::<usize>() {
            Ok(n) if (low..=high).contains(&n) => n,
            _ => return Err(Error::config(format!("--pos: `{item}`: the number must be from {low} to {high}"))),
        },
    };
    Ok(match name {
        "uv" => Kind::Uv,
        "fourier" => Kind::Fourier(n),
        "dct" => Kind::Dct(n),
        "local" => Kind::Local,
        "lfourier" => Kind::LocalFourier(n),
        "ldct" => Kind::LocalDct(n),
        "lquad" => Kind::LocalQuadratic,
        "ldct2" => Kind::PeriodDct(2, n),
        "ldct4" => Kind::PeriodDct(4, n),
        "lv1local" => Kind::Level1Local,
        "lv1ldct" => Kind::Level1Dct(n),
        "bdct" => Kind::BlockDct(n),
        "bdcte" => Kind::BlockDctOne(n),
        "onehot" => Kind::OneHot,
        _ => Kind::Bc7Partition(n),
    })
}

impl fmt::Display for PositionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (k, kind) in self.0.iter().enumerate() {
            if k > 0 {
                f.write_str(",")?;
            }
            match kind {
                Kind::Uv => write!(f, "uv"),
                Kind::Fourier(n) => write!(f, "fourier:{n}"),
                Kind::Dct(n) => write!(f, "dct:{n}"),
                Kind::Local => write!(f, "local"),
                Kind::LocalFourier(n) => write!(f, "lfourier:{n}"),
                Kind::LocalDct(n) => write!(f, "ldct:{n}"),
                Kind::LocalQuadratic => write!(f, "lquad"),
                Kind::PeriodDct(period, n) => write!(f, "ldct{period}:{n}"),
                Kind::Level1Local => write!(f, "lv1local"),
                Kind::Level1Dct(n) => write!(f, "lv1ldct:{n}"),
                Kind::BlockDct(n) => write!(f, "bdct:{n}"),
                Kind::BlockDctOne(n) => write!(f, "bdcte:{n}"),
                Kind::OneHot => write!(f, "onehot"),
                Kind::Bc7Partition(n) => write!(f, "bc7part:{n}"),
            }?;
        }
        Ok(())
    }
}

impl PositionSpec {
    /// Decoder inputs that the features take, for level-0 cells of `cell` texels.
    pub fn count(&self, cell: (usize, usize)) -> usize {
        let per = |kind: &Kind| match *kind {
            Kind::Uv | Kind::Local | Kind::Level1Local => 2,
            Kind::Fourier(n) | Kind::LocalFourier(n) => 4 * n,
            Kind::Dct(n) | Kind::LocalDct(n) | Kind::PeriodDct(_, n) | Kind::Level1Dct(n) => 2 * n,
            Kind::LocalQuadratic => 3,
            Kind::BlockDct(n) | Kind::Bc7Partition(n) => n,
            Kind::BlockDctOne(_) => 1,
            Kind::OneHot => cell.0.saturating_mul(cell.1),
        };
        self.0.iter().map(per).fold(0, usize::saturating_add)
    }

    /// Whether every kind makes sense on these levels; the message names the kind and what it needs.
    pub fn check(&self, structure: &Structure) -> Result<()> {
        let level0 = &structure.levels[0];
        let cells = level0.filter == Filter::Nearest
            && structure.width.is_multiple_of(level0.width)
            && structure.height.is_multiple_of(level0.height);
        for kind in &self.0 {
            let name = PositionSpec(vec![*kind]);
            match kind {
                Kind::Level1Local | Kind::Level1Dct(_) if structure.levels.len() < 2 => {
                    return Err(Error::config(format!("--pos {name}: there is no level 1; add --latent2 W H C")));
                }
                Kind::OneHot if !cells => {
                    return Err(Error::config(format!("--pos {name}: level 0 must be nearest and divide the image")));
                }
                Kind::Bc7Partition(_) if !cells || cell_of(structure, 0) != (4, 4) => {
                    return Err(Error::config(format!(
                        "--pos {name}: level 0 must be nearest with cells of 4x4 texels"
                    )));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The feature tables, in the order of the decoder's inputs.
    pub fn features(&self, structure: &Structure, taps: &[LevelTaps]) -> Vec<Feature> {
        let axes = Axes { structure, taps };
        self.0.iter().flat_map(|kind| axes.features(*kind)).collect()
    }
}

/// One decoder input as tables: the value at (px, py) is `x[py % x.len()][px] * y[py]`.
///
/// Every kind is a product of one function of px and one of py, but `bc7part`, whose x table depends on py mod 4.
#[derive(Clone, Debug)]
pub struct Feature {
    /// One table over px, or one for each py modulo their number.
    pub x: Vec<Vec<f32>>,
    /// One table over py.
    pub y: Vec<f32>,
}

impl Feature {
    /// The value at texel (px, py).
    pub fn at(&self, px: usize, py: usize) -> f32 {
        self.x[py % self.x.len()][px] * self.y[py]
    }
}

/// cos and sin of 2 pi t, reduced exactly in f64 and evaluated by the project's own polynomials.
fn turns(t: f64) -> (f32, f32) {
    let (sin, cos) = math::sin_cos_turns(Scalar, (t - t.floor()) as f32);
    (cos, sin)
}

/// cos(pi k x).
fn half_wave(k: usize, x: f32) -> f32 {
    turns(k as f64 * f64::from(x) / 2.0).0
}

struct Axes<'a> {
    structure: &'a Structure,
    taps: &'a [LevelTaps],
}

impl Axes<'_> {
    /// u = (p + 1/2) / extent along both axes.
    fn uv(&self) -> (Vec<f32>, Vec<f32>) {
        let axis = |n: usize| (0..n).map(|p| (p as f32 + 0.5) / n as f32).collect();
        (axis(self.structure.width), axis(self.structure.height))
    }

    fn local(&self, level: usize) -> (Vec<f32>, Vec<f32>) {
        (self.taps[level].x.fraction.clone(), self.taps[level].y.fraction.clone())
    }

    /// Offset inside a period of `period` latent texels of level 0, in [0, 1).
    fn period(&self, period: usize) -> (Vec<f32>, Vec<f32>) {
        let axis = |taps: &super::latent::AxisTaps| {
            let whole = taps.unclamped.iter().map(|i| i.rem_euclid(period as i32) as f32);
            whole.zip(&taps.fraction).map(|(i, f)| (i + f) / period as f32).collect()
        };
        (axis(&self.taps[0].x), axis(&self.taps[0].y))
    }

    fn features(&self, kind: Kind) -> Vec<Feature> {
        match kind {
            Kind::Uv => self.pair(self.uv(), |u| 2.0 * u - 1.0),
            Kind::Fourier(n) => self.fourier(self.uv(), n),
            Kind::Dct(n) => self.dct(self.uv(), n),
            Kind::Local => self.pair(self.local(0), |f| 2.0 * f - 1.0),
            Kind::LocalFourier(n) => self.fourier(self.local(0), n),
            Kind::LocalDct(n) => self.dct(self.local(0), n),
            Kind::LocalQuadratic => self.quadratic(),
            Kind::PeriodDct(period, n) => self.dct(self.period(period), n),
            Kind::Level1Local => self.pair(self.local(1), |f| 2.0 * f - 1.0),
            Kind::Level1Dct(n) => self.dct(self.local(1), n),
            Kind::BlockDct(n) => BLOCK_DCT[..n].iter().map(|&ab| self.block_dct(ab)).collect(),
            Kind::BlockDctOne(n) => vec![self.block_dct(BLOCK_DCT[n - 1])],
            Kind::OneHot => self.one_hot(),
            Kind::Bc7Partition(n) => BC7_TWO_SUBSETS[..n].iter().map(|&bits| self.partition(bits)).collect(),
        }
    }

    /// A function of x alone.
    fn along_x(&self, x: Vec<f32>) -> Feature {
        Feature { x: vec![x], y: vec![1.0; self.structure.height] }
    }

    /// A function of y alone.
    fn along_y(&self, y: Vec<f32>) -> Feature {
        Feature { x: vec![vec![1.0; self.structure.width]], y }
    }

    /// `f` along x, then along y.
    fn pair(&self, (x, y): (Vec<f32>, Vec<f32>), f: impl Fn(f32) -> f32) -> Vec<Feature> {
        vec![self.along_x(x.into_iter().map(&f).collect()), self.along_y(y.into_iter().map(&f).collect())]
    }

    fn fourier(&self, (x, y): (Vec<f32>, Vec<f32>), n: usize) -> Vec<Feature> {
        let wave = |k: usize, p: &[f32]| p.iter().map(|&u| turns((1u64 << k) as f64 * f64::from(u))).unzip();
        let one = |k: usize| {
            let (cos_x, sin_x): (Vec<_>, Vec<_>) = wave(k, &x);
            let (cos_y, sin_y): (Vec<_>, Vec<_>) = wave(k, &y);
            [self.along_x(sin_x), self.along_x(cos_x), self.along_y(sin_y), self.along_y(cos_y)]
        };
        (0..n).flat_map(one).collect()
    }

    fn dct(&self, axes: (Vec<f32>, Vec<f32>), n: usize) -> Vec<Feature> {
        (1..=n).flat_map(|k| self.pair(axes.clone(), |u| half_wave(k, u))).collect()
    }

    fn quadratic(&self) -> Vec<Feature> {
        let (x, y) = self.local(0);
        let signed = |f: Vec<f32>| -> Vec<f32> { f.into_iter().map(|f| 2.0 * f - 1.0).collect() };
        let (a, b) = (signed(x), signed(y));
        let square = |v: &[f32]| v.iter().map(|x| x * x).collect();
        let (aa, bb) = (square(&a), square(&b));
        vec![Feature { x: vec![a], y: b }, self.along_x(aa), self.along_y(bb)]
    }

    fn block_dct(&self, (a, b): (u32, u32)) -> Feature {
        let (x, y) = self.local(0);
        let wave = |k: u32, f: Vec<f32>| f.into_iter().map(|f| half_wave(k as usize, f)).collect();
        Feature { x: vec![wave(a, x)], y: wave(b, y) }
    }

    fn one_hot(&self) -> Vec<Feature> {
        let (cw, ch) = cell_of(self.structure, 0);
        let hot = |extent: usize, cell: usize, k: usize| -> Vec<f32> {
            (0..extent).map(|p| if p % cell == k { 1.0 } else { 0.0 }).collect()
        };
        let one = |i: usize| Feature {
            x: vec![hot(self.structure.width, cw, i % cw)],
            y: hot(self.structure.height, ch, i / cw),
        };
        (0..cw * ch).map(one).collect()
    }

    fn partition(&self, bits: u16) -> Feature {
        let sign = |px: usize, py: usize| if bits >> (4 * (py % 4) + px % 4) & 1 == 1 { 1.0 } else { -1.0 };
        let row = |py: usize| (0..self.structure.width).map(|px| sign(px, py)).collect();
        Feature { x: (0..4).map(row).collect(), y: vec![1.0; self.structure.height] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::structure::{Activation, Level, TextureInfo};

    fn structure(width: usize, height: usize, lw: usize, lh: usize, filter: Filter) -> Structure {
        let level = Level { width: lw, height: lh, channels: 1, filter, selector_bits: vec![], grid_bits: None };
        Structure {
            width,
            height,
            source_width: width,
            source_height: height,
            textures: vec![TextureInfo { name: "t".into(), channels: 3, depth: 8, role: None, sources: vec![] }],
            levels: vec![level],
            position: "uv".into(),
            hidden: vec![4],
            activation: Activation::Leaky,
            leak: 0.01,
            clamp: false,
            deblock: None,
            qbits: 8,
            mlp_bits: 16,
        }
    }

    fn values(spec: &str, s: &Structure, px: usize, py: usize) -> Vec<f32> {
        let taps: Vec<_> = s.levels.iter().map(|l| LevelTaps::new(l, s.width, s.height)).collect();
        let spec: PositionSpec = spec.parse().unwrap();
        let features = spec.features(s, &taps);
        assert_eq!(features.len(), spec.count(cell_of(s, 0)));
        features.iter().map(|f| f.at(px, py)).collect()
    }

    fn near(got: &[f32], want: &[f32]) {
        assert_eq!(got.len(), want.len());
        for (g, w) in got.iter().zip(want) {
            assert!((g - w).abs() < 1e-6, "{got:?} is not {want:?}");
        }
    }

    #[test]
    fn features_by_hand() {
        let s = structure(4, 2, 2, 1, Filter::Nearest);
        // Texel (1, 0): u = 3/8, v = 1/4; cell 2x2, fx = 3/4, fy = 1/4.
        near(&values("uv", &s, 1, 0), &[-0.25, -0.5]);
        let w = std::f32::consts::PI;
        near(
            &values("fourier:2", &s, 1, 0),
            &[(0.75 * w).sin(), (0.75 * w).cos(), 1.0, 0.0, (1.5 * w).sin(), (1.5 * w).cos(), 0.0, -1.0],
        );
        near(&values("dct:2", &s, 1, 0), &[(0.375 * w).cos(), (0.25 * w).cos(), (0.75 * w).cos(), 0.0]);
        near(&values("local", &s, 1, 0), &[0.5, -0.5]);
        near(&values("lquad", &s, 1, 0), &[-0.25, 0.25, 0.25]);
        near(&values("ldct2:1", &s, 2, 0), &[(w * (1.0 + 0.25) / 2.0).cos(), (w * 0.25 / 2.0).cos()]);
        near(
            &values("bdct:4", &s, 1, 0),
            &[(0.75 * w).cos(), (0.25 * w).cos(), (0.5 * w).cos(), (0.75 * w).cos() * (0.25 * w).cos()],
        );
        near(&values("bdcte:2", &s, 1, 0), &[(0.25 * w).cos()]);
        near(&values("onehot", &s, 3, 1), &[0.0, 0.0, 0.0, 1.0]);
        let blocks = structure(8, 8, 2, 2, Filter::Nearest);
        // Pattern 0 is CCCC: columns 2 and 3; pattern 13 is FF00: the lower half.
        near(&values("bc7part:1", &blocks, 5, 2), &[-1.0]);
        near(&values("bc7part:1", &blocks, 6, 2), &[1.0]);
        assert_eq!(values("bc7part:14", &blocks, 4, 1)[13], -1.0);
        assert_eq!(values("bc7part:14", &blocks, 4, 6)[13], 1.0);
    }

    #[test]
    fn period_uses_the_true_modulo_left_of_the_first_centre() {
        // Bilinear 4 texels on 2: the first texel has i = -1, f = 0.75; (-1 mod 2 + 0.75) / 2 = 0.875.
        let s = structure(4, 4, 2, 2, Filter::Bilinear);
        near(&values("ldct2:1", &s, 0, 0), &[(std::f32::consts::PI * 0.875).cos(); 2]);
    }

    #[test]
    fn canonical_form_parses_back_and_bad_specs_say_why() {
        for text in ["uv", "uv,fourier:4", "none", "lv1local", "bc7part:64,onehot,ldct4:2"] {
            assert_eq!(text.parse::<PositionSpec>().unwrap().to_string(), text);
        }
        for (text, word) in [
            ("", "not a position kind"),
            ("uvw", "not a position kind"),
            ("dct", "needs a number"),
            ("uv:1", "takes no number"),
            ("bdct:16", "1 to 15"),
            ("uv,none", "not a position kind"),
            ("dct:x", "must be"),
        ] {
            let message = text.parse::<PositionSpec>().unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }
}
