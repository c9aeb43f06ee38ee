//! What a model looks like: everything that decoding needs except the parameter values.

use super::channels::Source;
use super::role::Role;
use serde::{Deserialize, Serialize};

/// How a level is read between its latent texels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// The four surrounding latent texels, weighted.
    Bilinear,
    /// The one latent texel whose cell the texel lies in.
    Nearest,
}

/// What follows a hidden layer's sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// x, or `leak` x where x is negative.
    Leaky,
    /// x, or 0 where x is negative.
    Relu,
    /// Hyperbolic tangent.
    Tanh,
    /// Sine.
    Sine,
}

/// Which channels of an image file are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Channels {
    /// One channel for a grey image or one whose three channels are equal, else RGB; alpha is dropped.
    Auto,
    /// Always RGB; alpha is dropped.
    Rgb,
    /// As `auto`, and alpha is kept as the last channel where the file has one.
    Alpha,
}

/// Where the noise comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Rng {
    /// Counter-based (Philox4x32-10): the same on every backend.
    Hash,
    /// mt19937 in the reference's drawing order: CPU only.
    Mt,
}

/// How a file holds its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    /// Every value at a computable bit offset, as a GPU would read it.
    Fixed,
    /// Behind an adaptive range coder: smaller, and read from the front.
    Range,
}

/// One latent grid. Values are stored (y, x, channel), channel fastest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Latent texels across.
    pub width: usize,
    /// Latent texels down.
    pub height: usize,
    /// Values per latent texel.
    pub channels: usize,
    /// How it is read.
    pub filter: Filter,
    /// Bits of each channel where the level holds selectors on a fixed grid in [-1, 1]; empty where values are free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selector_bits: Vec<u32>,
    /// Bits of every channel of a free level that is stored on a fixed grid in [-1, 1]; absent = between each channel's
    /// smallest and largest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid_bits: Option<u32>,
}

/// One map of the material, as decoding writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextureInfo {
    /// Base name of the source file without extension.
    pub name: String,
    /// Channels that are written: 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA.
    pub channels: usize,
    /// Bits per sample of the source: 8 or 16.
    pub depth: u32,
    /// What it is for, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Where each written channel comes from; empty = each is a decoder output of its own, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
}

/// Everything that decoding needs except the parameter values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Structure {
    /// Texels across, padding included: what u = (px + 1/2) / width refers to.
    pub width: usize,
    /// Texels down, padding included.
    pub height: usize,
    /// Texels across of the source (after the crop); the rest is padding.
    pub source_width: usize,
    /// Texels down of the source.
    pub source_height: usize,
    /// The material's maps in output order; the outputs of a map are consecutive.
    pub textures: Vec<TextureInfo>,
    /// One or two latent levels; level 0 may hold selectors.
    pub levels: Vec<Level>,
    /// Canonical position specification, e.g. `uv,fourier:2`.
    pub position: String,
    /// Units of each hidden layer.
    pub hidden: Vec<usize>,
    /// Hidden activation.
    pub activation: Activation,
    /// Slope of `leaky` below zero.
    pub leak: f32,
    /// Output clamp(s + 1/2, 0, 1) in place of the sigmoid.
    pub clamp: bool,
    /// Falloff in texels of the deblocking filter at level 0's cell edges; absent = off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deblock: Option<f32>,
    /// Bits per latent value of free levels without a grid when quantized after training.
    pub qbits: u32,
    /// Bits of a stored decoder weight: 16 (half floats), or 8 with a scale for each layer.
    #[serde(default = "half_floats", skip_serializing_if = "is_half_floats")]
    pub mlp_bits: u32,
}

fn half_floats() -> u32 {
    16
}

fn is_half_floats(bits: &u32) -> bool {
    *bits == half_floats()
}

impl Structure {
    /// Texels of the padded extent.
    pub fn texels(&self) -> usize {
        self.width * self.height
    }
    /// Decoder outputs of all textures.
    pub fn outputs(&self) -> usize {
        self.textures.iter().map(TextureInfo::outputs).sum()
    }
    /// Latent channels of all levels.
    pub fn latent_channels(&self) -> usize {
        self.levels.iter().map(|l| l.channels).sum()
    }
}

impl Level {
    /// Number of latent texels.
    pub fn texels(&self) -> usize {
        self.width * self.height
    }
    /// Number of latent values.
    pub fn values(&self) -> usize {
        self.texels() * self.channels
    }
    /// Whether the level holds selectors.
    pub fn is_selector(&self) -> bool {
        !self.selector_bits.is_empty()
    }
}

/// Values of a model: what decoding needs besides the structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Latent values of each level, (y, x, channel), channel fastest.
    pub levels: Vec<Vec<f32>>,
    /// Decoder parameters, layer by layer: weights \[out]\[in] row-major, then biases.
    pub decoder: Vec<f32>,
}
