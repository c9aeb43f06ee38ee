//! Every setting of a run, declared once: the name of a field in kebab-case is its flag, TOML key and CSV column.
//!
//! Reads no file and no environment. Three steps lead from settings to a model: [`Config::validate`] says what can be
//! said without images, [`Config::resolve`] fits the settings to an image size, [`Config::complete`] writes down what
//! was chosen.

mod check;
mod choices;
mod image;
mod resolve;
mod text;
mod validate;

#[cfg(test)]
pub(crate) mod arbitrary;
#[cfg(test)]
pub(crate) mod tests;

pub use check::check_structure;
pub use choices::{CudaDevice, EsDist, FilterPair, Goal, Init, LatGrad, Normal, Optimizer, Preset, ResizeTo, Simd};
pub use image::Image;
pub use resolve::MAX_TEXELS;

use crate::model::structure::{Activation, Channels, Coding, Rng};
use clap::builder::ArgAction;
use clap::{Args, FromArgMatches};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Every setting of a run, in the order of `--help`.
///
/// Lists with a fixed length (`latent`, `latent2`, the anneals, the lists of `gn_*`) have it once [`Config::validate`] has
/// passed.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Config {
    /// Maps of one material, 1 to 8 image files of one size, each a PATH, ROLE=PATH or ROLE:CHANNELS=PATH; or one folder,
    /// whose files' names say their roles [default: the bundled material]
    #[arg(value_name = "IMAGE", help_heading = "Input")]
    pub images: Vec<String>,
    /// Largest side in texels; a longer side is cut to it around the centre, 0 keeps everything
    #[arg(long, value_name = "N", default_value_t = 512, help_heading = "Input")]
    pub crop: usize,
    /// Resample maps of different sizes to the largest or the smallest of them (Catmull-Rom) [default: off, they are
    /// refused]
    #[arg(long, value_enum, help_heading = "Input")]
    pub resize_to: Option<ResizeTo>,
    /// Channels of a texture: auto keeps grey as one channel, rgb is always three, alpha keeps alpha as well
    #[arg(long, value_enum, default_value_t = Channels::Auto, help_heading = "Input")]
    pub channels: Channels,
    /// Maps of role normal: xyz has three decoder outputs for them, xy two and rebuilds the third as the rest of a unit
    /// vector
    #[arg(long, value_enum, default_value_t = Normal::Xyz, help_heading = "Input")]
    pub normal: Normal,
    /// Relative loss weight of each texture, one per image, 0 or more; 0 drops a texture [default: 1 for each]
    #[arg(long, value_name = "X,..", value_delimiter = ',', action = ArgAction::Set, help_heading = "Input")]
    pub weights: Vec<f32>,
    /// What a map's PSNR is to reach, by its role: up to 6 fits look for the loss weights with which every map gets
    /// there [default: off]
    #[arg(long, value_name = "ROLE=DB,..", value_delimiter = ',', action = ArgAction::Set, help_heading = "Input")]
    pub quality: Vec<Goal>,

    /// Latent level 0: texels across, down, and channels (1 to 128); 0 0 C is one latent texel per image texel;
    /// more is better and costs bits [default: 64 64 4; with --qat 0 0 and one channel per depth]
    #[arg(long, num_args = 3, value_names = ["W", "H", "C"], action = ArgAction::Set, help_heading = "Model")]
    pub latent: Option<Vec<usize>>,
    /// Latent level 1, as --latent; 0 0 C is one latent texel per --block cell [default: off; with --qat and no
    /// --latent 0 0 4]
    #[arg(long, num_args = 3, value_names = ["W", "H", "C"], action = ArgAction::Set, help_heading = "Model")]
    pub latent2: Option<Vec<usize>>,
    /// Side of a block in texels, 1 to 256: what a level given as 0 0 C pads the image to
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Model")]
    pub block: usize,
    /// How latents are read: bilinear or nearest, for both levels or for each (nearest,bilinear) [default: bilinear;
    /// with --qat and no --latent nearest, and nearest,bilinear with --optimizer gn]
    #[arg(long, value_name = "FILTER[,FILTER]", help_heading = "Model")]
    pub filter: Option<FilterPair>,
    /// Units of each hidden layer, 1 to 8 layers of 1 to 128; more is better and slower
    #[arg(long, value_name = "N,..", default_value = "24,24", value_delimiter = ',', action = ArgAction::Set,
          default_value_ifs([("preset", "default", "36,36"), ("preset", "best", "48,48")]), help_heading = "Model")]
    pub mlp: Vec<usize>,
    /// Units of both of two hidden layers, 1 to 128: short for --mlp N,N [default: off]
    #[arg(long, value_name = "N", conflicts_with = "mlp", help_heading = "Model")]
    pub hidden: Option<usize>,
    /// Activation of the hidden layers (tanh is the default of --optimizer gn)
    #[arg(long, value_enum, default_value_t = Activation::Leaky, default_value_ifs(
          [("optimizer", "gn", "tanh"), ("preset", "fast", "tanh"), ("preset", "default", "tanh"), ("preset", "best", "tanh")]),
          help_heading = "Model")]
    pub act: Activation,
    /// Slope of --act leaky below zero, -1 to 1
    #[arg(long, value_name = "X", default_value_t = 0.01, allow_negative_numbers = true, help_heading = "Model")]
    pub leak: f32,
    /// Output clamp(s + 1/2, 0, 1) in place of the sigmoid [default: off]
    #[arg(long, help_heading = "Model")]
    pub clamp: bool,
    /// Position features, a comma list of uv, fourier:N, dct:N, local, lfourier:N, ldct:N, lquad, ldct2:N, ldct4:N,
    /// lv1local, lv1ldct:N, bdct:N, bdcte:I, onehot, bc7part:N, or none [default: uv; with --qat and no --latent
    /// lv1local]
    #[arg(long, value_name = "KIND,..", help_heading = "Model")]
    pub pos: Option<String>,
    /// Frequencies beside uv, 0 to 20: short for --pos uv,fourier:N, 0 is uv alone [default: off]
    #[arg(long, value_name = "N", conflicts_with = "pos", help_heading = "Model")]
    pub nfreq: Option<usize>,
    /// Mix each texel at the edge of a level-0 cell with its neighbours after decoding [default: off]
    #[arg(long, help_heading = "Model")]
    pub deblock: bool,
    /// Reach of --deblock from a cell edge in texels, 0.01 to 1024; up to 1.5 is the ring of one texel
    #[arg(long, value_name = "X", default_value_t = 1.0, help_heading = "Model")]
    pub deblock_falloff: f32,
    /// How the written file holds its values: fixed at computable offsets, range smaller and read from the front
    #[arg(long, value_enum, default_value_t = Coding::Range, help_heading = "Model")]
    pub coding: Coding,
    /// Bits per latent value when quantized after training, 1 to 16; more is better and costs bits
    #[arg(long, value_name = "BITS", default_value_t = 8, help_heading = "Model")]
    pub qbits: u32,
    /// Bits of every latent level that holds no selectors on a fixed grid in [-1, 1], kept during the fit: one depth for
    /// all, or one per level, 1 to 12, 0 = free as with --qbits (and for a level of selectors) [default: off]
    #[arg(long, value_name = "BITS[,BITS]", value_delimiter = ',', action = ArgAction::Set, help_heading = "Model")]
    pub lat_bits: Vec<u32>,
    /// Fraction of the run from which latents are kept on the grid of --lat-bits; 0 or less is from the start
    #[arg(long, value_name = "START", default_value_t = 0.5, allow_negative_numbers = true, help_heading = "Model")]
    pub lat_bits_start: f32,
    /// Bits of a stored decoder weight: 16 (half floats), or 8 with a scale for each layer
    #[arg(long, value_name = "BITS", default_value_t = 16, help_heading = "Model")]
    pub mlp_bits: u32,
    /// Fraction of the run from which decoder weights are kept as they are stored; 1 or more is only after it
    #[arg(long, value_name = "START", default_value_t = 0.9, allow_negative_numbers = true, help_heading = "Model")]
    pub mlp_bits_start: f32,

    /// Antithetic pairs per decoder step, 1 to 65536; more is less noise and slower
    #[arg(long, value_name = "N", default_value_t = 32, help_heading = "Decoder step")]
    pub mlp_pairs: usize,
    /// Texels of a decoder step's minibatch, 1 to 16777216; more is less noise and slower
    #[arg(long, value_name = "N", default_value_t = 4096, help_heading = "Decoder step")]
    pub mlp_batch: usize,
    /// Standard deviation of the decoder's perturbations, 0.000001 to 100
    #[arg(long, value_name = "X", default_value_t = 0.02, help_heading = "Decoder step")]
    pub mlp_sigma: f32,
    /// Learning rate of the decoder, 0.000000001 to 100
    #[arg(long, value_name = "X", default_value_t = 0.005, help_heading = "Decoder step")]
    pub mlp_lr: f32,
    /// Iterations from one decoder step to the next, 1 or more
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Decoder step")]
    pub mlp_every: usize,
    /// Finite differences for the decoder from this fraction of the run on; 0 or less is from the first iteration,
    /// 1 or more is off
    #[arg(
        long,
        value_name = "START",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "Decoder step"
    )]
    pub mlp_fd: f32,
    /// Step of --mlp-fd in units of a weight, 0.000001 to 1
    #[arg(long, value_name = "X", default_value_t = 1e-3, help_heading = "Decoder step")]
    pub mlp_fd_h: f32,
    /// Decoder steps over every texel from this fraction of the run on; 0 or less is from the first iteration,
    /// 1 or more is off
    #[arg(
        long,
        value_name = "START",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "Decoder step"
    )]
    pub mlp_full: f32,
    /// Antithetic pairs of a decoder step over every texel, 1 to 65536 [default: --mlp-pairs]
    #[arg(long, value_name = "N", help_heading = "Decoder step")]
    pub mlp_full_pairs: Option<usize>,
    /// No more decoder steps from this fraction of the run on; 0 or less is from the first iteration, 1 or more is off
    #[arg(
        long,
        value_name = "START",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "Decoder step"
    )]
    pub mlp_freeze: f32,

    /// Antithetic pairs per latent step, 1 to 65536; more is less noise and slower
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Latent step")]
    pub lat_pairs: usize,
    /// Standard deviation of the latents' perturbations, 0.000001 to 100
    #[arg(long, value_name = "X", default_value_t = 0.05, help_heading = "Latent step")]
    pub lat_sigma: f32,
    /// The same for level 1, 0.000001 to 100 [default: --lat-sigma]
    #[arg(long, value_name = "X", help_heading = "Latent step")]
    pub lat2_sigma: Option<f32>,
    /// Learning rate of the latents, 0.000000001 to 100
    #[arg(long, value_name = "X", default_value_t = 0.02, help_heading = "Latent step")]
    pub lat_lr: f32,
    /// Standard deviation of the initial latents, 0 to 100
    #[arg(long, value_name = "X", default_value_t = 0.1, help_heading = "Latent step")]
    pub lat_init: f32,
    /// Perturb one level at a time, in turn [default: off]
    #[arg(long, help_heading = "Latent step")]
    pub lat_alt: bool,

    /// Perturb one in four latent texels at a time, pair by pair in 2x2 phases; wants --lat-pairs a multiple of 4
    /// [default: off]
    #[arg(long, help_heading = "Latent step")]
    pub lat_phases: bool,
    /// The latents' gradient: evolution strategies (es), or central differences of the sampled values (fd)
    #[arg(long, value_enum, default_value_t = LatGrad::Es, help_heading = "Latent step")]
    pub lat_grad: LatGrad,
    /// Perturbations of evolution strategies, the decoder's as well: normal numbers (gaussian) or signs (rademacher)
    #[arg(long, value_enum, default_value_t = EsDist::Gaussian, help_heading = "Latent step")]
    pub es_dist: EsDist,

    /// Selectors in level 0: bits of each channel, 1 to 8, or one depth for all; alone it chooses the block format
    /// [default: off]
    #[arg(long, value_name = "BITS,..", value_delimiter = ',', action = ArgAction::Set, help_heading = "Selectors")]
    pub qat: Vec<u32>,
    /// Iterations from one selector search to the next, 1 or more; the last one always searches
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Selectors")]
    pub qat_every: usize,
    /// Search all channels of a selector jointly in place of one after the other; their depths add up to 8 at most;
    /// better and slower [default: off]
    #[arg(long, help_heading = "Selectors")]
    pub qat_joint: bool,

    /// Bumps of --optimizer gn: of a sampled latent, and of a decoder unit's pre-activation, 0.000001 to 1
    #[arg(long, num_args = 2, value_names = ["LATENT", "UNIT"], default_values_t = [1e-3, 1e-3],
          action = ArgAction::Set, help_heading = "Gauss-Newton")]
    pub gn_h: Vec<f32>,
    /// Latent steps of a round, each behind a selector search, 1 to 1000; more is better and slower
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        default_value_if("preset", "fast", "1"),
        help_heading = "Gauss-Newton"
    )]
    pub gn_lat_steps: usize,
    /// Decoder steps of a round, in turn with the latent steps, 1 to 1000; more is better and slower
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        default_value_if("preset", "fast", "1"),
        help_heading = "Gauss-Newton"
    )]
    pub gn_mlp_steps: usize,
    /// Texels of a decoder step, 1 to 16777216; more is better and slower
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8192,
        default_value_if("preset", "best", "16384"),
        help_heading = "Gauss-Newton"
    )]
    pub gn_texels: usize,
    /// Texels of a decoder step's right-hand side and loss as a multiple of those of its matrix, 1 to 1024; more is
    /// better and slower
    #[arg(long, value_name = "X", default_value_t = 4.0, help_heading = "Gauss-Newton")]
    pub gn_right: f32,
    /// Weigh the coded file's bits in Gauss-Newton's searches of selectors and of latents on a grid, from
    /// `--lat-bits-start` on: LAMBDA squared 8-bit levels of a texel's error a bit, 0 to 10000; 0 is off, 2 to 20 useful
    #[arg(long, value_name = "LAMBDA", default_value_t = 0.0, help_heading = "Gauss-Newton")]
    pub rd_lambda: f32,
    /// From fraction START of the run (1 or more is off) a decoder step has FACTOR times as many texels, 1 to 1024
    #[arg(long, num_args = 2, value_names = ["START", "FACTOR"], default_values_t = [0.7, 2.0],
          action = ArgAction::Set, help_heading = "Gauss-Newton")]
    pub gn_grow: Vec<f32>,
    /// Damping of the decoder per texel: first value, limits, factors after a step that was kept and after one refused
    #[arg(long, num_args = 5, value_names = ["START", "LEAST", "MOST", "FALL", "RISE"],
          default_values_t = [1e-3, 2e-7, 1e3, 0.5, 5.0], action = ArgAction::Set, help_heading = "Gauss-Newton")]
    pub gn_mlp_mu: Vec<f32>,
    /// The same of a nearest level's latent texels
    #[arg(long, num_args = 5, value_names = ["START", "LEAST", "MOST", "FALL", "RISE"],
          default_values_t = [0.1, 1e-5, 1e3, 0.3, 4.0], action = ArgAction::Set, help_heading = "Gauss-Newton")]
    pub gn_near_mu: Vec<f32>,
    /// The same of a bilinear level's latent texels
    #[arg(long, num_args = 5, value_names = ["START", "LEAST", "MOST", "FALL", "RISE"],
          default_values_t = [0.05, 1e-5, 1e3, 0.4, 5.0], action = ArgAction::Set, help_heading = "Gauss-Newton")]
    pub gn_lin_mu: Vec<f32>,
    /// Dampings tried in a decoder step, and in a step of a bilinear level, before it is given up, 1 to 100
    #[arg(long, num_args = 2, value_names = ["DECODER", "LATENT"], default_values_t = [5, 3],
          action = ArgAction::Set, help_heading = "Gauss-Newton")]
    pub gn_tries: Vec<usize>,
    /// Conjugate-gradient iterations of a step of a bilinear level, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 12, help_heading = "Gauss-Newton")]
    pub gn_cg: usize,

    /// What fits the model: evolution strategies (es), or Gauss-Newton from finite differences (gn)
    #[arg(long, value_enum, default_value_t = Optimizer::Es,
          default_value_ifs([("preset", "fast", "gn"), ("preset", "default", "gn"), ("preset", "best", "gn")]),
          help_heading = "Schedule")]
    pub optimizer: Optimizer,
    /// Defaults for a balance of time and quality, all with --optimizer gn: fast 20 rounds of one step each, default
    /// 60 rounds and --mlp 36,36, best 150 rounds, --mlp 48,48 and --gn-texels 16384; other flags win [default: off]
    #[arg(long, value_enum, help_heading = "Schedule")]
    pub preset: Option<Preset>,
    /// First latents: normal noise (random), or the blocks' principal directions (pca, the default of --optimizer gn)
    #[arg(long, value_enum, default_value_t = Init::Random, default_value_ifs(
          [("optimizer", "gn", "pca"), ("preset", "fast", "pca"), ("preset", "default", "pca"), ("preset", "best", "pca")]),
          help_heading = "Schedule")]
    pub init: Init,
    /// Iterations, or rounds of --optimizer gn (default 60), 0 to 1000000000; more is better and slower, 0 only
    /// evaluates
    #[arg(long, value_name = "N", default_value_t = 3000, default_value_ifs(
          [("preset", "fast", "20"), ("preset", "default", "60"), ("preset", "best", "150"), ("optimizer", "gn", "60")]),
          help_heading = "Schedule")]
    pub iters: usize,
    /// Stop at the first print whose PSNR as stored is this many dB or more, 0 to 200 [default: off]
    #[arg(long, value_name = "DB", help_heading = "Schedule")]
    pub target_psnr: Option<f32>,
    /// Stop once training has taken this many seconds, 0 to 1000000000 [default: off]
    #[arg(long, value_name = "S", help_heading = "Schedule")]
    pub max_seconds: Option<f32>,
    /// Stop after this many prints in a row without a better PSNR as stored, 1 or more [default: off]
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub patience: Option<usize>,
    /// Both learning rates fall from fraction START of the run (0 or more; 1 or more is off) to FINAL times their value
    /// (0 to 1000)
    #[arg(long, num_args = 2, value_names = ["START", "FINAL"], default_values_t = [1.0, 1.0],
          action = ArgAction::Set, help_heading = "Schedule")]
    pub lr_anneal: Vec<f32>,
    /// All sigmas fall from fraction START of the run (0 or more; 1 or more is off) to FINAL times their value (0.0001
    /// to 1000)
    #[arg(long, num_args = 2, value_names = ["START", "FINAL"], default_values_t = [1.0, 1.0],
          action = ArgAction::Set, help_heading = "Schedule")]
    pub sigma_anneal: Vec<f32>,
    /// Seed of all noise, below 2^32 with --rng mt
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Schedule")]
    pub seed: u64,
    /// Noise source: hash is the same on every backend, mt draws in the order of the C++ reference
    #[arg(long, value_enum, default_value_t = Rng::Hash, help_heading = "Schedule")]
    pub rng: Rng,
    /// Start from this run folder's or model's parameters and structure [default: off]
    #[arg(long, value_name = "RUN_OR_MODEL", help_heading = "Schedule")]
    pub load: Option<PathBuf>,

    /// Folder for everything that is written
    #[arg(long, value_name = "DIR", default_value = "out", help_heading = "Output")]
    pub out: PathBuf,
    /// Iterations from one row of log.csv to the next, 1 or more; the last one always has a row
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Output")]
    pub print_every: usize,
    /// Iterations from one checkpoint, with pictures, to the next, 1 or more; the last one always saves
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Output")]
    pub save_every: usize,
    /// No progress on stderr [default: off]
    #[arg(long, help_heading = "Output")]
    pub quiet: bool,

    /// Threads, 0 is one per CPU; never changes the result
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Machine")]
    pub threads: usize,
    /// Instruction set; never changes the result
    #[arg(long, value_enum, default_value_t = Simd::Auto, help_heading = "Machine")]
    pub simd: Simd,
    /// Run the steps on a GPU; never changes the result [default: off]
    #[arg(long, help_heading = "Machine")]
    pub cuda: bool,
    /// Which GPU, counted from 0, or emu for its emulation on the CPU, in builds that have it; implies --cuda
    /// [default: 0]
    #[arg(long, value_name = "N|emu", help_heading = "Machine")]
    pub cuda_device: Option<CudaDevice>,
    /// Iterations from one comparison of the GPU's steps with the CPU's to the next; 0 is off
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Machine")]
    pub cuda_check_every: usize,
}

impl Config {
    /// Where `--cuda` and `--cuda-device` send the steps; `None` = the CPU.
    pub fn device(&self) -> Option<CudaDevice> {
        self.cuda_device.or(self.cuda.then_some(CudaDevice::Gpu(0)))
    }
}

impl Default for Config {
    /// What an empty command line means.
    fn default() -> Self {
        let matches = command().no_binary_name(true).get_matches_from::<_, &str>([]);
        Config::from_arg_matches(&matches).expect("every flag is optional or has a default")
    }
}

/// A command that has the settings as its flags and nothing else: what the declarations above say, to be read.
pub(crate) fn command() -> clap::Command {
    Config::augment_args(clap::Command::new("ntc-es"))
}
