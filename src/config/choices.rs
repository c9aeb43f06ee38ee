//! Settings that choose among a few: their words and what they mean.

use crate::error::{Error, Result};
use crate::model::role::Role;
use crate::model::structure::Filter;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The filters of level 0 and level 1, written `nearest,bilinear`, or as one word where both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct FilterPair(pub [Filter; 2]);

impl FilterPair {
    /// The same filter for both levels.
    pub const fn both(filter: Filter) -> Self {
        FilterPair([filter, filter])
    }
}

impl FromStr for FilterPair {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let one = |word: &str| match word.trim() {
            "bilinear" => Ok(Filter::Bilinear),
            "nearest" => Ok(Filter::Nearest),
            _ => Err(Error::config(format!(
                "--filter {text}: give bilinear, nearest, or one of them for each level, such as nearest,bilinear"
            ))),
        };
        match text.split_once(',') {
            Some((level0, level1)) => Ok(FilterPair([one(level0)?, one(level1)?])),
            None => one(text).map(FilterPair::both),
        }
    }
}

impl fmt::Display for FilterPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |filter| match filter {
            Filter::Bilinear => "bilinear",
            Filter::Nearest => "nearest",
        };
        let [level0, level1] = self.0;
        f.write_str(word(level0))?;
        if level1 != level0 { write!(f, ",{}", word(level1)) } else { Ok(()) }
    }
}

impl From<FilterPair> for String {
    fn from(pair: FilterPair) -> String {
        pair.to_string()
    }
}

impl TryFrom<String> for FilterPair {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

/// What one map's PSNR as decoded is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Goal {
    /// The map, by what it is for.
    pub role: Role,
    /// PSNR in dB, above 0 and at most 120.
    pub db: f32,
}

impl FromStr for Goal {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::config(format!("--quality {text}: {why}; give ROLE=DB such as normal=32"));
        let (role, db) = text.split_once('=').ok_or_else(|| wrong("there is no ="))?;
        let role = role.trim().parse().map_err(|message: String| wrong(&message))?;
        let db = db.trim().parse().map_err(|_| wrong("the target is no number"))?;
        Ok(Goal { role, db })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.role, self.db)
    }
}

impl From<Goal> for String {
    fn from(goal: Goal) -> String {
        goal.to_string()
    }
}

impl TryFrom<String> for Goal {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

/// The instruction set asked for. All of them give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Simd {
    /// The widest that this CPU has.
    Auto,
    /// 16 lanes.
    Avx512,
    /// 8 lanes.
    Avx2,
    /// One lane.
    Scalar,
}

/// The size that maps of different sizes are brought to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ResizeTo {
    /// That of the map with the most texels.
    Largest,
    /// That of the map with the fewest.
    Smallest,
}

/// How the third channel of a normal map is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Normal {
    /// Rebuilt from the first two as the rest of a unit vector that points out of the surface.
    Xy,
    /// A decoder output as any other.
    Xyz,
}

/// What fits the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// Evolution strategies with Adam.
    Es,
    /// Gauss-Newton from finite differences of decoder outputs.
    Gn,
}

/// Distribution of the perturbations of evolution strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum EsDist {
    /// Normal numbers.
    Gaussian,
    /// Signs; with one pair that is simultaneous perturbation (SPSA).
    Rademacher,
}

/// Where the latents' gradient comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LatGrad {
    /// Evolution strategies.
    Es,
    /// Central differences of every sampled value with step --gn-h, spread by the transposed taps.
    Fd,
}

/// Where the first latents come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Init {
    /// Normal noise of standard deviation --lat-init.
    Random,
    /// Principal directions of the image's blocks, scaled into [-1, 1].
    Pca,
}

/// Sets of defaults for a wanted balance of time and quality; a flag that is written wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// 20 rounds of Gauss-Newton, one latent step in each.
    Fast,
    /// 60 rounds of Gauss-Newton, a decoder of 36,36.
    Default,
    /// 150 rounds of Gauss-Newton on more texels, a decoder of 48,48.
    Best,
}

/// The device that `--cuda-device` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum CudaDevice {
    /// A GPU by its number.
    Gpu(usize),
    /// The emulation on the CPU.
    Emu,
}

impl FromStr for CudaDevice {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match (text, text.parse()) {
            ("emu", _) => Ok(CudaDevice::Emu),
            (_, Ok(number)) => Ok(CudaDevice::Gpu(number)),
            _ => Err(Error::config(format!("--cuda-device {text}: give a GPU's number from 0 on, or emu"))),
        }
    }
}

impl fmt::Display for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CudaDevice::Gpu(number) => write!(f, "{number}"),
            CudaDevice::Emu => f.write_str("emu"),
        }
    }
}

impl From<CudaDevice> for String {
    fn from(device: CudaDevice) -> String {
        device.to_string()
    }
}

impl TryFrom<String> for CudaDevice {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}
