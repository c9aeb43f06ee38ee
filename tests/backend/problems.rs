//! Small problems, each a function of its case and seed: what every backend test runs on.

use crate::reference::Reference;
use ntc_es::backend::{Backend, State};
use ntc_es::model::decode::Geometry;
use ntc_es::model::quant::{grid_index, grid_value};
use ntc_es::model::structure::{Filter, Level, Parameters, Rng, Structure, TextureInfo};
use ntc_es::noise::Noise;

pub use ntc_es::model::structure::Activation;
pub use ntc_es::model::structure::Activation::{Relu, Sine, Tanh};
pub use ntc_es::model::structure::Filter::{Bilinear, Nearest};

/// Everything that a backend is made from.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Names the case and its seed in messages.
    pub name: String,
    pub structure: Structure,
    /// One plane an output over the padded extent.
    pub target: Vec<Vec<f32>>,
    /// Relative weight of each texture; empty = all 1.
    pub weights: Vec<f32>,
    pub rng: Rng,
    pub seed: u64,
    pub state: State,
}

impl Problem {
    pub fn geometry(&self) -> Geometry {
        Geometry::new(self.structure.clone()).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    pub fn noise(&self) -> Noise {
        Noise::new(self.rng, self.seed)
    }

    /// Whether level 0 is searched.
    pub fn selects(&self) -> bool {
        self.structure.levels[0].is_selector()
    }
}

/// Uniform numbers for values of a problem (SplitMix64): the tests' own, not the code's.
pub struct Uniform(u64);

impl Uniform {
    pub fn new(seed: u64) -> Self {
        Uniform(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 16_777_216.0
    }

    /// In [-1, 1).
    pub fn signed(&mut self) -> f32 {
        2.0 * self.unit() - 1.0
    }
}

/// A problem in words; the defaults are a bilinear level of 3x2x2, `uv`, five leaky units and one RGB texture.
#[derive(Clone)]
pub struct Case {
    name: &'static str,
    structure: Structure,
    weights: Vec<f32>,
    rng: Rng,
    seed: u64,
    fitted: bool,
}

pub fn case(name: &'static str, (width, height): (usize, usize)) -> Case {
    let structure = Structure {
        width,
        height,
        source_width: width,
        source_height: height,
        textures: textures(&[3]),
        levels: vec![level((3, 2, 2), Bilinear)],
        position: "uv".into(),
        hidden: vec![5],
        activation: Activation::Leaky,
        leak: 0.01,
        clamp: false,
        deblock: None,
        qbits: 8,
        mlp_bits: 16,
    };
    Case { name, structure, weights: vec![], rng: Rng::Hash, seed: 1, fitted: false }
}

fn level((width, height, channels): (usize, usize, usize), filter: Filter) -> Level {
    Level { width, height, channels, filter, selector_bits: vec![], grid_bits: None }
}

/// One texture a channel count; every second one has 16 bits.
fn textures(channels: &[usize]) -> Vec<TextureInfo> {
    let depth = |t: usize| if t % 2 == 1 { 16 } else { 8 };
    let texture = |(t, &channels): (usize, &usize)| TextureInfo {
        name: format!("t{t}"),
        channels,
        depth: depth(t),
        role: None,
        sources: vec![],
    };
    channels.iter().enumerate().map(texture).collect()
}

impl Case {
    pub fn level0(mut self, size: (usize, usize, usize), filter: Filter) -> Self {
        self.structure.levels[0] = level(size, filter);
        self
    }
    pub fn level1(mut self, size: (usize, usize, usize), filter: Filter) -> Self {
        self.structure.levels.push(level(size, filter));
        self
    }
    /// A nearest level 0 of `width` x `height` selectors, one channel for each depth.
    pub fn selectors(mut self, (width, height): (usize, usize), bits: &[u32]) -> Self {
        self.structure.levels[0] =
            Level { selector_bits: bits.to_vec(), ..level((width, height, bits.len()), Nearest) };
        self
    }
    pub fn position(mut self, spec: &str) -> Self {
        self.structure.position = spec.into();
        self
    }
    pub fn hidden(mut self, hidden: &[usize], activation: Activation) -> Self {
        self.structure.hidden = hidden.to_vec();
        self.structure.activation = activation;
        self
    }
    pub fn clamp(mut self) -> Self {
        self.structure.clamp = true;
        self
    }
    pub fn deblock(mut self, falloff: f32) -> Self {
        self.structure.deblock = Some(falloff);
        self
    }
    pub fn textures(mut self, channels: &[usize], weights: &[f32]) -> Self {
        self.structure.textures = textures(channels);
        self.weights = weights.to_vec();
        self
    }
    /// The rest of the extent is padding.
    pub fn source(mut self, (width, height): (usize, usize)) -> Self {
        (self.structure.source_width, self.structure.source_height) = (width, height);
        self
    }
    pub fn mersenne(mut self) -> Self {
        self.rng = Rng::Mt;
        self
    }
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Targets within 0.002 of the decode: below a loss of 2^-13 the rounding to 2^-36 has halves to decide on.
    pub fn nearly_fitted(mut self) -> Self {
        self.fitted = true;
        self
    }

    /// The problem: smooth-ish random targets, latents of the size that training reaches, biases that are not 0.
    pub fn problem(self) -> Problem {
        let Case { name, structure, weights, rng, seed, fitted } = self;
        let mut uniform = Uniform::new(seed ^ 0x5eed);
        let outputs = structure.outputs();
        let (width, texels) = (structure.width, structure.texels());
        let target = (0..outputs).map(|_| {
            let (a, b, c) = (uniform.signed(), uniform.signed(), uniform.unit());
            let mut at = |texel: usize| {
                let (x, y) = (texel % width, texel / width);
                let wave = (a * x as f32 * 0.3 + b * y as f32 * 0.2 + c * 6.0).sin() * 0.35;
                0.5 + wave + 0.1 * uniform.signed()
            };
            (0..texels).map(&mut at).collect()
        });
        let target: Vec<Vec<f32>> = target.collect();
        let mut levels = vec![];
        for level in &structure.levels {
            let mut values: Vec<f32> = (0..level.values()).map(|_| uniform.signed()).collect();
            for (i, z) in values.iter_mut().enumerate() {
                if let Some(&bits) = level.selector_bits.get(i % level.channels) {
                    *z = grid_value(grid_index(*z, bits), bits);
                }
            }
            levels.push(values);
        }
        let state = State::new(Parameters { levels, decoder: vec![] });
        let mut problem =
            Problem { name: format!("{name} (seed {seed})"), structure, target, weights, rng, seed, state };
        let network = problem.geometry().network;
        let mut decoder = vec![];
        for layer in &network.layers {
            let scale = (3.0 / layer.inputs as f32).sqrt();
            decoder.extend((0..layer.inputs * layer.outputs).map(|_| scale * uniform.signed()));
            decoder.extend((0..layer.outputs).map(|_| 0.3 * uniform.signed()));
        }
        let levels = std::mem::take(&mut problem.state.parameters.levels);
        problem.state = State::new(Parameters { levels, decoder });
        if fitted {
            let decoded = Reference::new(&problem).decode(None).expect("a decode");
            let values = problem.target.iter_mut().flatten().zip(decoded.into_iter().flatten());
            values.for_each(|(target, decoded)| *target = decoded + 0.002 * uniform.signed());
        }
        problem
    }
}

/// The table of cases: sizes around the strip of 64 texels, filters, levels finer than the image, activations, every
/// position kind, textures and weights, depths of network, deblocking, selectors, both noise sources.
pub fn all() -> Vec<Problem> {
    let cases = vec![
        case("1x1", (1, 1)),
        case("1x5", (1, 5)).level0((1, 3, 1), Bilinear).position("none"),
        case("5x1 nearest", (5, 1)).level0((3, 1, 2), Nearest).position("local"),
        case("33x7", (33, 7)).level0((9, 3, 3), Bilinear).position("uv,fourier:2").hidden(&[7, 6], Tanh).mersenne(),
        case("64x64", (64, 64)).level0((16, 16, 2), Bilinear),
        case("63 wide", (63, 4)).level0((20, 2, 2), Nearest).position("ldct:2").hidden(&[6, 4], Sine),
        case("64 wide", (64, 3)).level0((16, 2, 2), Nearest).position("lfourier:1,lquad").hidden(&[5], Relu),
        case("65 wide", (65, 4)).level0((30, 3, 2), Bilinear).position("dct:3").clamp(),
        case("129 wide", (129, 3)).level0((40, 2, 1), Bilinear).level1((17, 3, 2), Bilinear),
        case("mixed", (40, 10)).level0((10, 5, 2), Nearest).level1((7, 4, 2), Bilinear).position("lv1local").mersenne(),
        case("mixed the other way", (24, 9))
            .level0((7, 5, 2), Bilinear)
            .level1((12, 9, 1), Nearest)
            .position("lv1ldct:2,uv"),
        case("finer than the image", (9, 6))
            .level0((14, 11, 1), Bilinear)
            .level1((20, 13, 2), Nearest)
            .position("ldct2:1,ldct4:2")
            .hidden(&[6], Tanh),
        case("blocks", (16, 8)).level0((4, 2, 2), Nearest).position("bdct:15,bdcte:7,onehot,bc7part:9"),
        case("eight layers", (20, 5)).hidden(&[4, 3, 5, 3, 2, 6, 3, 4], Tanh).textures(&[1, 2], &[1.0, 3.0]),
        case("three layers", (70, 3)).hidden(&[9, 13, 7], Relu).clamp().textures(&[4, 1], &[0.0, 2.5]).mersenne(),
        case("eight textures", (17, 6))
            .hidden(&[6, 5], Sine)
            .textures(&[1, 2, 3, 4, 1, 2, 3, 4], &[1.0, 0.5, 2.0, 0.0, 1.0, 3.0, 0.25, 1.0]),
        case("padded", (32, 8)).level0((8, 2, 2), Nearest).source((29, 7)).textures(&[2, 1], &[1.0, 2.0]),
        case("padded bilinear over a strip", (68, 8)).level0((17, 2, 2), Bilinear).source((66, 5)).clamp(),
        case("deblock 1", (24, 12)).level0((6, 3, 2), Nearest).deblock(1.0).position("local"),
        case("deblock 1.5, two levels", (66, 8))
            .level0((11, 4, 2), Nearest)
            .level1((9, 3, 2), Bilinear)
            .deblock(1.5)
            .mersenne(),
        case("deblock 3", (132, 10)).level0((22, 2, 1), Nearest).deblock(3.0).hidden(&[5, 4], Tanh),
        case("deblock bilinear, nearest fine level", (64, 6))
            .level0((8, 3, 1), Bilinear)
            .level1((64, 6, 1), Nearest)
            .deblock(2.0)
            .textures(&[2, 1], &[2.0, 1.0]),
        case("deblock 0.4 touches nothing", (12, 6)).level0((3, 2, 1), Nearest).deblock(0.4),
        case("deblock one row of cells, padded", (63, 2)).level0((21, 1, 1), Nearest).deblock(1.0).source((61, 1)),
        case("nearly fitted", (66, 5))
            .level0((9, 3, 2), Bilinear)
            .hidden(&[6], Tanh)
            .textures(&[2, 1], &[])
            .nearly_fitted(),
        case("nearly fitted selectors", (20, 8)).selectors((5, 2), &[2, 3]).hidden(&[6], Tanh).nearly_fitted(),
        case("nearly fitted, deblocked", (24, 6))
            .level0((6, 2, 2), Nearest)
            .level1((5, 2, 1), Bilinear)
            .deblock(1.0)
            .mersenne()
            .nearly_fitted(),
        case("selectors 1x1", (17, 5))
            .selectors((17, 5), &[2])
            .level1((5, 2, 2), Nearest)
            .position("lv1local")
            .textures(&[3, 1], &[1.0, 2.0]),
        case("selectors 2x2", (66, 6)).selectors((33, 3), &[1, 3]).level1((6, 3, 2), Bilinear).hidden(&[6, 5], Tanh),
        case("selectors 4x4", (132, 8))
            .selectors((33, 2), &[4, 1, 2])
            .level1((33, 2, 1), Nearest)
            .position("onehot")
            .mersenne(),
        case("selectors 70x3", (140, 6)).selectors((2, 2), &[5, 2]).clamp().hidden(&[4], Relu),
        case("selectors of 6, 7, 8 bits", (10, 4)).selectors((5, 2), &[6, 7, 8]).textures(&[2, 4], &[0.0, 1.0]),
        case("selectors padded", (24, 8)).selectors((6, 2), &[3, 3]).source((22, 5)).hidden(&[4], Sine).seed(9),
    ];
    cases.into_iter().map(Case::problem).collect()
}
