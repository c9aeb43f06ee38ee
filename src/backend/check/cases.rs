//! The cases of `--cuda-check`: odd sizes, and every filter, position kind, activation, depth and output.

use super::Case;
use crate::backend::State;
use crate::config::Config;
use crate::error::Result;
use crate::model::decode::Geometry;
use crate::model::quant::{grid_index, grid_value};
use crate::model::structure::{Parameters, Structure, TextureInfo};
use crate::noise::hash::{HashNoise, Stream, normal_at};
use std::path::Path;

/// Name, texels across and down, channels of each texture, settings.
type Line = (&'static str, (usize, usize), &'static [usize], &'static str);

/// A case whose decoder is all zeros, so that every candidate of the search has the same error, and whose target is nearly
/// what that decodes to, so that losses are small.
const TIES: &str = "selectors, ties";

const CASES: &[Line] = &[
    ("bilinear", (13, 11), &[3], "latent = [5, 4, 4]\nmlp = [8, 8]"),
    ("one texel", (1, 1), &[1], "latent = [1, 1, 1]\nmlp = [1]\npos = 'none'"),
    ("one row", (129, 1), &[2], "latent = [7, 1, 2]\nmlp = [5]\nact = 'relu'\npos = 'dct:2'"),
    ("one column", (1, 130), &[1], "latent = [1, 9, 3]\nmlp = [6, 4]\nact = 'sine'\npos = 'uv,fourier:2'"),
    (
        "two levels",
        (20, 12),
        &[3, 1],
        "latent = [10, 6, 3]\nlatent2 = [4, 3, 5]\nfilter = 'nearest,bilinear'\nmlp = [12]\nact = 'tanh'\nclamp = true\n\
         pos = 'uv,local,lv1local,lv1ldct:2'\nweights = [1.0, 3.0]",
    ),
    (
        "period features",
        (19, 23),
        &[3],
        "latent = [6, 7, 2]\nmlp = [7, 7, 7]\nleak = -0.2\npos = 'lfourier:1,ldct:2,lquad,ldct2:1,ldct4:1,bdct:3,bdcte:7'",
    ),
    ("more latents than texels", (17, 13), &[3], "latent = [40, 33, 4]\nmlp = [8, 8]"),
    ("few latents", (40, 41), &[3], "latent = [2, 1, 4]\nlatent2 = [3, 3, 1]\nmlp = [8, 8]"),
    ("deblocked", (24, 16), &[3], "latent = [6, 4, 4]\nfilter = 'nearest'\nmlp = [8, 8]\ndeblock = true"),
    (
        "deblocked, wide reach",
        (21, 10),
        &[1, 3],
        "latent = [3, 2, 3]\nlatent2 = [7, 5, 2]\nfilter = 'nearest,bilinear'\nmlp = [9]\ndeblock = true\n\
         deblock-falloff = 3.0\npos = 'local'",
    ),
    (
        "one-hot and partitions",
        (16, 12),
        &[3],
        "latent = [4, 3, 2]\nfilter = 'nearest'\nmlp = [10]\npos = 'onehot,bc7part:5'",
    ),
    ("selectors, 2 bits", (18, 13), &[3], "qat = [2]\nmlp = [8, 8]"),
    (
        "selectors, 3 and 1 bits",
        (16, 12),
        &[3, 3],
        "latent = [8, 6, 2]\nlatent2 = [4, 3, 4]\nfilter = 'nearest'\nqat = [3, 1]\nmlp = [8, 8]\npos = 'lv1local'\n\
         weights = [1.0, 0.0]",
    ),
    (
        "selectors, large cell",
        (20, 15),
        &[1],
        "latent = [1, 1, 2]\nfilter = 'nearest'\nqat = [5, 2]\nmlp = [6]\nact = 'sine'\npos = 'uv'",
    ),
    (
        "selectors alone, 8 bits",
        (9, 7),
        &[1],
        "latent = [3, 7, 1]\nfilter = 'nearest'\nqat = [8]\nmlp = [3]\npos = 'none'",
    ),
    (TIES, (10, 8), &[3], "latent = [5, 4, 2]\nfilter = 'nearest'\nqat = [2, 3]\nmlp = [6]\npos = 'uv'"),
    ("wide layers", (11, 6), &[3], "latent = [4, 3, 4]\nmlp = [64, 128]\nact = 'tanh'"),
    ("deep", (9, 8), &[4], "latent = [4, 3, 2]\nmlp = [6, 5, 6, 7, 6, 5, 6, 4]\nleak = 0.1"),
    (
        "eight maps",
        (12, 9),
        &[4, 4, 4, 4, 4, 4, 4, 4],
        "latent = [4, 3, 5]\nfilter = 'nearest'\nmlp = [12]\ndeblock = true",
    ),
    ("padded", (13, 10), &[3], "latent = [0, 0, 2]\nlatent2 = [0, 0, 3]\nfilter = 'bilinear,nearest'\nmlp = [8]"),
];

/// All cases in their initial states.
///
/// # Errors
/// None on a healthy program: the settings are fixed.
pub fn cases() -> Result<Vec<Case>> {
    CASES.iter().enumerate().map(|(number, line)| case(number as u64, line)).collect()
}

fn case(number: u64, &(name, (width, height), channels, settings): &Line) -> Result<Case> {
    let textures: Vec<TextureInfo> = channels
        .iter()
        .enumerate()
        .map(|(t, &channels)| TextureInfo {
            name: format!("t{t}"),
            channels,
            depth: if t % 2 == 0 { 8 } else { 16 },
            role: None,
            sources: vec![],
        })
        .collect();
    let config = Config::from_toml(settings, Path::new(name))?;
    let structure = config.resolve(width, height, textures)?;
    let mut target = picture(&structure, number);
    let geometry = Geometry::new(structure)?;
    let seed = number + 1;
    let mut state = State::new(start(&geometry, seed));
    if name == TIES {
        state.parameters.decoder.fill(0.0);
        target.iter_mut().flatten().for_each(|x| *x = 0.5 + 0.004 * (*x - 0.5));
    }
    Ok(Case { name: name.into(), geometry, target, weights: config.weights, seed, state })
}

/// Parameters at which nothing is zero and few units are saturated.
fn start(geometry: &Geometry, seed: u64) -> Parameters {
    let key = HashNoise::new(seed).key;
    let normals = |stream, count: usize, scale: f32| -> Vec<f32> {
        (0..count).map(|n| scale * normal_at(key, stream, 0, 0, n)).collect()
    };
    let structure = &geometry.structure;
    let mut levels = vec![];
    for (level, stream) in structure.levels.iter().zip([Stream::InitLatent0, Stream::InitLatent1]) {
        let mut values = normals(stream, level.values(), 0.5);
        if level.is_selector() {
            for (k, z) in values.iter_mut().enumerate() {
                let bits = level.selector_bits[k % level.channels];
                *z = grid_value(grid_index(*z, bits), bits);
            }
        }
        levels.push(values);
    }
    let mut decoder = normals(Stream::InitDecoder, geometry.network.parameters(), 1.0);
    for layer in &geometry.network.layers {
        let scale = (2.0 / layer.inputs as f32).sqrt();
        decoder[layer.weights..layer.biases + layer.outputs].iter_mut().for_each(|w| *w *= scale);
    }
    Parameters { levels, decoder }
}

/// Planes of a smooth pattern with a little noise in it.
fn picture(structure: &Structure, number: u64) -> Vec<Vec<f32>> {
    let mut state = number * 2 + 1;
    let mut plane = |c: usize| {
        let value = |k: usize| {
            let (x, y) = (k % structure.width, k / structure.width);
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let noise = (state >> 40) as f32 / 16_777_216.0;
            let wave = ((x * (c + 2) + y * 3) % 11) as f32 / 11.0;
            0.75 * wave + 0.25 * noise
        };
        (0..structure.texels()).map(value).collect()
    };
    (0..structure.outputs()).map(&mut plane).collect()
}
