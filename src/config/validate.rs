//! What can be said about settings without an image: ranges and contradictions.

use super::image::check_roles;
use super::resolve::MAX_TEXELS;
use super::{Config, EsDist, LatGrad, Optimizer};
use crate::error::{Error, Result};
use crate::model::position::PositionSpec;
use crate::model::quant::MOST_JOINT_BITS;
use crate::model::structure::{Filter, Rng};
use std::fmt::Display;
use std::path::Path;

/// Textures of a material at most.
pub(super) const MAX_IMAGES: usize = 8;
/// Units of a layer at most, the decoder's inputs included.
pub(super) const MAX_UNITS: usize = 128;
/// Iterations at most, for counts and for the distances between two of a kind.
const MAX_ITERS: usize = 1_000_000_000;
/// Antithetic pairs of a step at most.
const MAX_PAIRS: usize = 65536;

impl Config {
    /// Refuses settings that cannot work whatever the images are. The message names the flag and what would be right.
    pub fn validate(&self) -> Result<()> {
        // A message may quote what the user wrote, line breaks and all.
        self.check_all().map_err(|e| {
            let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
            Error::Config(e.to_string().chars().map(escape).collect())
        })
    }

    fn check_all(&self) -> Result<()> {
        self.check_counts()?;
        self.check_reals()?;
        // No image named is the bundled material: how many maps it has is known only when they are read.
        if !self.images.is_empty() {
            check_images(self.images.len(), &self.weights)?;
        }
        check_roles(&self.images)?;
        self.check_quality()?;
        self.check_weights()?;
        self.check_decoder()?;
        check_level("--latent", self.latent.as_deref())?;
        check_level("--latent2", self.latent2.as_deref())?;
        self.check_selectors()?;
        self.check_deblock()?;
        self.check_grids()?;
        self.check_gauss_newton()?;
        self.check_estimators()?;
        check_path("--out", &self.out)?;
        self.load.as_deref().map_or(Ok(()), |load| check_path("--load", load))?;
        if self.rng == Rng::Mt && self.device().is_some() {
            return refuse("--rng mt: its numbers come in one order; it runs on the CPU only, without --cuda".into());
        }
        if self.cuda_check_every > 0 && self.device().is_none() {
            return refuse("--cuda-check-every: there is nothing to check without --cuda".into());
        }
        if self.rng == Rng::Mt && self.seed >= 1 << 32 {
            return refuse(format!("--seed {}: --rng mt takes a seed below 4294967296", self.seed));
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<()> {
        range("--crop", self.crop, 0, MAX_TEXELS)?;
        range("--block", self.block, 1, 256)?;
        range("--qbits", self.qbits, 1, 16)?;
        range("--mlp-pairs", self.mlp_pairs, 1, MAX_PAIRS)?;
        range("--mlp-batch", self.mlp_batch, 1, 1 << 24)?;
        range("--mlp-every", self.mlp_every, 1, MAX_ITERS)?;
        range("--mlp-full-pairs", self.mlp_full_pairs.unwrap_or(1), 1, MAX_PAIRS)?;
        range("--lat-pairs", self.lat_pairs, 1, MAX_PAIRS)?;
        range("--qat-every", self.qat_every, 1, MAX_ITERS)?;
        range("--iters", self.iters, 0, MAX_ITERS)?;
        range("--patience", self.patience.unwrap_or(1), 1, MAX_ITERS)?;
        range("--gn-lat-steps", self.gn_lat_steps, 1, 1000)?;
        range("--gn-mlp-steps", self.gn_mlp_steps, 1, 1000)?;
        range("--gn-texels", self.gn_texels, 1, 1 << 24)?;
        range("--gn-cg", self.gn_cg, 1, 10_000)?;
        range("--print-every", self.print_every, 1, MAX_ITERS)?;
        range("--save-every", self.save_every, 1, MAX_ITERS)?;
        range("--cuda-check-every", self.cuda_check_every, 0, MAX_ITERS)?;
        range("--threads", self.threads, 0, 4096)
    }

    fn check_reals(&self) -> Result<()> {
        let (sigma, rate, start) = ((1e-6, 100.0), (1e-9, 100.0), (-1e6, 1e6));
        range("--leak", self.leak, -1.0, 1.0)?;
        range("--deblock-falloff", self.deblock_falloff, 0.01, 1024.0)?;
        range("--mlp-sigma", self.mlp_sigma, sigma.0, sigma.1)?;
        range("--mlp-lr", self.mlp_lr, rate.0, rate.1)?;
        range("--mlp-fd", self.mlp_fd, start.0, start.1)?;
        range("--mlp-fd-h", self.mlp_fd_h, 1e-6, 1.0)?;
        range("--mlp-full", self.mlp_full, start.0, start.1)?;
        range("--mlp-freeze", self.mlp_freeze, start.0, start.1)?;
        range("--lat-sigma", self.lat_sigma, sigma.0, sigma.1)?;
        range("--lat2-sigma", self.lat2_sigma.unwrap_or(1.0), sigma.0, sigma.1)?;
        range("--lat-lr", self.lat_lr, rate.0, rate.1)?;
        range("--lat-init", self.lat_init, 0.0, 100.0)?;
        range("--gn-right", self.gn_right, 1.0, 1024.0)?;
        range("--rd-lambda", self.rd_lambda, 0.0, 10_000.0)?;
        range("--lat-bits-start", self.lat_bits_start, start.0, start.1)?;
        range("--mlp-bits-start", self.mlp_bits_start, start.0, start.1)?;
        range("--target-psnr", self.target_psnr.unwrap_or(0.0), 0.0, 200.0)?;
        range("--max-seconds", self.max_seconds.unwrap_or(0.0), 0.0, 1e9)?;
        // A sigma of 0 would divide 0 by 0 in the last iteration; a rate of 0 only stands still.
        check_anneal("--lr-anneal", &self.lr_anneal, 0.0)?;
        check_anneal("--sigma-anneal", &self.sigma_anneal, 1e-4)
    }

    fn check_quality(&self) -> Result<()> {
        for (k, goal) in self.quality.iter().enumerate() {
            if !(goal.db > 0.0 && goal.db <= 120.0) {
                return refuse(format!("--quality {goal}: the target must be above 0 and at most 120 dB"));
            }
            if self.quality[..k].iter().any(|other| other.role.place() == goal.role.place()) {
                return refuse(format!("--quality {goal}: there is another target for {} already", goal.role.place()));
            }
        }
        Ok(())
    }

    fn check_weights(&self) -> Result<()> {
        for &weight in &self.weights {
            range("--weights", weight, 0.0, 1e6)?;
        }
        // All tiny is most likely a mistake, and their sum divides.
        if !self.weights.is_empty() && !self.weights.iter().any(|&w| w >= 1e-6) {
            return refuse("--weights: all are 0; give at least one texture a weight of 0.000001 or more".into());
        }
        Ok(())
    }

    fn check_decoder(&self) -> Result<()> {
        if self.mlp.is_empty() || self.mlp.len() > 8 {
            return refuse(format!("--mlp: {} hidden layers; give 1 to 8, such as 24,24", self.mlp.len()));
        }
        for &units in &self.mlp {
            range("--mlp", units, 1, MAX_UNITS)?;
        }
        if let Some(units) = self.hidden {
            range("--hidden", units, 1, MAX_UNITS)?;
            // The defaults, without a preset and with one.
            let by_default = [24, 36, 48].iter().any(|&n| self.mlp == [n, n]);
            if !by_default && self.mlp != [units, units] {
                return refuse(format!(
                    "--hidden {units}: it is short for --mlp {units},{units}; give only one of them"
                ));
            }
        }
        if let (Some(n), Some(pos)) = (self.nfreq, &self.pos) {
            return refuse(format!(
                "--nfreq {n}: it is short for a --pos, and --pos {pos} is given; give only one of them"
            ));
        }
        if let Some(n) = self.nfreq {
            range("--nfreq", n, 0, 20)?;
        }
        self.shape().position.parse::<PositionSpec>().map(|_| ())
    }

    fn check_selectors(&self) -> Result<()> {
        let depths = self.qat.len();
        if depths == 0 {
            let lonely = "--qat-joint: there are no selectors to search; add --qat BITS".to_owned();
            return if self.qat_joint { refuse(lonely) } else { Ok(()) };
        }
        for &bits in &self.qat {
            range("--qat", bits, 1, 8)?;
        }
        if self.deblock {
            return refuse("--deblock: it does not work with the selectors of --qat; leave one of them away".into());
        }
        let shape = self.shape();
        let channels = shape.latent[2];
        if depths > MAX_UNITS || (depths > 1 && depths != channels) {
            return refuse(format!(
                "--qat: {depths} depths for the {channels} channels of --latent; give one depth, or one per channel"
            ));
        }
        if shape.filter.0[0] == Filter::Bilinear {
            return refuse(
                "--qat: selectors need a nearest level 0, and it is bilinear; add --filter nearest or nearest,bilinear"
                    .into(),
            );
        }
        let total = if depths == 1 { self.qat[0] as usize * channels } else { self.qat.iter().sum::<u32>() as usize };
        if self.qat_joint && total > MOST_JOINT_BITS as usize {
            return refuse(format!(
                "--qat-joint: the depths of --qat add up to {total} bits; {MOST_JOINT_BITS} is the most, or leave it away"
            ));
        }
        Ok(())
    }

    fn check_grids(&self) -> Result<()> {
        if self.mlp_bits != 16 && self.mlp_bits != 8 {
            return refuse(format!("--mlp-bits {}: give 16 or 8", self.mlp_bits));
        }
        let levels = 1 + usize::from(self.shape().latent2.is_some());
        if self.lat_bits.len() > 1 && self.lat_bits.len() != levels {
            return refuse(format!(
                "--lat-bits: {} depths for {levels} levels; give one depth for all, or one per level",
                self.lat_bits.len()
            ));
        }
        for &bits in &self.lat_bits {
            range("--lat-bits", bits, 0, 12)?;
        }
        if self.lat_bits.len() == 2 && !self.qat.is_empty() && self.lat_bits[0] != 0 {
            return refuse(format!(
                "--lat-bits {},{}: level 0 holds the selectors of --qat, which says their depths; give 0,{}",
                self.lat_bits[0], self.lat_bits[1], self.lat_bits[1]
            ));
        }
        Ok(())
    }

    fn check_gauss_newton(&self) -> Result<()> {
        let list = |flag: &str, values: &[f32], names: &[&str], limits: &[(f32, f32)]| {
            if values.len() != names.len() {
                return refuse(format!("{flag}: {} values; give {}, {}", values.len(), names.len(), names.join(" ")));
            }
            let each = values.iter().zip(names).zip(limits);
            each.into_iter()
                .try_for_each(|((value, name), (low, high))| range(&format!("{flag} {name}"), *value, *low, *high))
        };
        list("--gn-h", &self.gn_h, &["LATENT", "UNIT"], &[(1e-6, 1.0); 2])?;
        list("--gn-grow", &self.gn_grow, &["START", "FACTOR"], &[(-1e6, 1e6), (1.0, 1024.0)])?;
        let names = ["START", "LEAST", "MOST", "FALL", "RISE"];
        let limits = [(0.0, 1e12), (0.0, 1e12), (0.0, 1e12), (1e-6, 1.0), (1.0, 1e6)];
        for (flag, values) in
            [("--gn-mlp-mu", &self.gn_mlp_mu), ("--gn-near-mu", &self.gn_near_mu), ("--gn-lin-mu", &self.gn_lin_mu)]
        {
            list(flag, values, &names, &limits)?;
            if values[1] > values[2] {
                return refuse(format!(
                    "{flag}: LEAST {} is above MOST {}; give the smaller first",
                    values[1], values[2]
                ));
            }
        }
        let &[decoder, latent] = <&[usize; 2]>::try_from(self.gn_tries.as_slice()).map_err(|_| {
            Error::config(format!("--gn-tries: {} values; give 2, DECODER LATENT", self.gn_tries.len()))
        })?;
        range("--gn-tries DECODER", decoder, 1, 100)?;
        range("--gn-tries LATENT", latent, 1, 100)?;
        if self.optimizer == Optimizer::Es && self.rd_lambda > 0.0 {
            return Err(Error::config(format!(
                "--rd-lambda {}: only Gauss-Newton's searches weigh bits; give --optimizer gn with it",
                self.rd_lambda
            )));
        }
        if self.optimizer == Optimizer::Gn && self.deblock {
            return refuse(
                "--deblock: --optimizer gn does not see through the filter; use --optimizer es, or a bilinear level in \
                 place of deblocking"
                    .into(),
            );
        }
        Ok(())
    }

    /// Ways of estimating that only some steps or machines have.
    fn check_estimators(&self) -> Result<()> {
        let given = [
            ("--lat-grad fd", self.lat_grad == LatGrad::Fd),
            ("--lat-phases", self.lat_phases),
            ("--es-dist rademacher", self.es_dist == EsDist::Rademacher),
        ];
        if let Some((flag, _)) = given.iter().find(|(_, given)| *given && self.device().is_some()) {
            return refuse(format!("{flag}: it runs on the CPU only, without --cuda"));
        }
        if self.lat_phases && !self.lat_pairs.is_multiple_of(4) {
            return refuse(format!("--lat-pairs {}: --lat-phases takes a multiple of 4", self.lat_pairs));
        }
        if self.lat_phases && self.lat_alt {
            return refuse(
                "--lat-phases: --lat-alt would leave each level half of the phases; leave one of them away".into(),
            );
        }
        if self.lat_grad == LatGrad::Fd && self.deblock {
            return refuse("--lat-grad fd: it does not see through --deblock; use --lat-grad es".into());
        }
        Ok(())
    }

    fn check_deblock(&self) -> Result<()> {
        if self.deblock && self.shape().latent[0] == 0 {
            return refuse(
                "--deblock: --latent 0 0 has cells of 1x1 texel, and it needs 2x2 or more; give level 0's size".into(),
            );
        }
        Ok(())
    }
}

/// A material of `images` textures, and the weights of one of that size.
pub(super) fn check_images(images: usize, weights: &[f32]) -> Result<()> {
    if images == 0 || images > MAX_IMAGES {
        return refuse(format!("IMAGE: {images} images; a material has 1 to {MAX_IMAGES}"));
    }
    if !weights.is_empty() && weights.len() != images {
        return refuse(format!(
            "--weights: {} weights for {images} images; give one per image (those of a folder's maps belong in \
             a --material file), or leave --weights away",
            weights.len()
        ));
    }
    Ok(())
}

/// A path that config.toml, which is UTF-8, can hold.
fn check_path(flag: &str, path: &Path) -> Result<()> {
    match path.to_str() {
        Some("") => refuse(format!("{flag}: it is empty; name a path")),
        Some(_) => Ok(()),
        None => refuse(format!("{flag} {}: config.toml is UTF-8; give a path that is", path.display())),
    }
}

fn check_level(flag: &str, size: Option<&[usize]>) -> Result<()> {
    let &[width, height, channels] = match size {
        None => return Ok(()),
        Some(size) => <&[usize; 3]>::try_from(size)
            .map_err(|_| Error::config(format!("{flag}: {} values; give three, W H C", size.len())))?,
    };
    let given = format!("{flag} {width} {height} {channels}");
    if channels == 0 {
        let off = if flag == "--latent2" { ", or leave it away where there is no level 1" } else { "" };
        return refuse(format!("{given}: a level has 1 to {MAX_UNITS} channels{off}"));
    }
    if channels > MAX_UNITS {
        return refuse(format!("{given}: a level has 1 to {MAX_UNITS} channels"));
    }
    if (width == 0) != (height == 0) {
        return refuse(format!("{given}: give both sides, or 0 0 {channels} for a size that follows the image"));
    }
    if width.checked_mul(height).is_none_or(|texels| texels > MAX_TEXELS) {
        return refuse(format!("{given}: a level has at most {MAX_TEXELS} latent texels"));
    }
    Ok(())
}

fn check_anneal(flag: &str, values: &[f32], least: f32) -> Result<()> {
    let &[start, last] = <&[f32; 2]>::try_from(values)
        .map_err(|_| Error::config(format!("{flag}: {} values; give two, START FINAL", values.len())))?;
    range(&format!("{flag} START"), start, 0.0, 1e6)?;
    range(&format!("{flag} FINAL"), last, least, 1000.0)
}

/// `low <= value <= high`; false for NaN.
fn range<T: PartialOrd + Display>(flag: &str, value: T, low: T, high: T) -> Result<()> {
    if low <= value && value <= high {
        return Ok(());
    }
    refuse(format!("{flag} {value}: give a value from {low} to {high}"))
}

fn refuse(message: String) -> Result<()> {
    Err(Error::Config(message))
}
