//! Settings and an image size make a model's structure, and back.

use super::validate::{MAX_UNITS, check_images};
use super::{Config, FilterPair, LatGrad, Optimizer};
use crate::error::{Error, Result};
use crate::model::latent::cell_of;
use crate::model::mlp::Network;
use crate::model::position::PositionSpec;
use crate::model::structure::{Filter, Level, Structure, TextureInfo};

/// Texels of an image at most: sums of losses stay exact up to here (DESIGN section 5, rule 4).
pub const MAX_TEXELS: usize = 1 << 26;
/// Latent values of a level at most: 4 GiB of f32.
const MAX_VALUES: usize = 1 << 30;
/// Channels of a level at most under --optimizer gn and --lat-grad fd: a latent texel's stencil is 9 blocks of their square.
const MAX_GN_CHANNELS: usize = 32;
/// Decoder weights at most under --optimizer gn: the normal matrix is their square in f64.
const MAX_GN_WEIGHTS: usize = 12_000;
/// Settings that say what a model looks like: a loaded model has its own, so they may only agree with it.
const STRUCTURAL: [&str; 14] = [
    "block",
    "latent",
    "latent2",
    "filter",
    "mlp",
    "hidden",
    "act",
    "leak",
    "clamp",
    "pos",
    "nfreq",
    "qat",
    "deblock",
    "deblock-falloff",
];

/// What the settings of the model's shape come to, aliases and defaults included; sizes 0 0 still follow the image.
pub(super) struct Shape {
    /// Level 0: across, down, channels.
    pub latent: [usize; 3],
    /// Level 1, where there is one.
    pub latent2: Option<[usize; 3]>,
    /// Filters of both levels.
    pub filter: FilterPair,
    /// Position specification, not yet parsed.
    pub position: String,
    /// Units of each hidden layer.
    pub hidden: Vec<usize>,
}

impl Config {
    /// Applies short forms and the defaults that depend on other flags (SPEC sections 4 and 6).
    pub(super) fn shape(&self) -> Shape {
        let block_format = !self.qat.is_empty() && self.latent.is_none();
        let triple = |size: &Vec<usize>| [0, 1, 2].map(|i| size.get(i).copied().unwrap_or(0));
        let plain = [64, 64, 4];
        let filter = match (block_format, self.optimizer) {
            (false, _) => FilterPair::both(Filter::Bilinear),
            (true, Optimizer::Es) => FilterPair::both(Filter::Nearest),
            // Which won: experiments/004-optimisers.
            (true, Optimizer::Gn) => FilterPair([Filter::Nearest, Filter::Bilinear]),
        };
        Shape {
            latent: match &self.latent {
                Some(size) => triple(size),
                None if block_format => [0, 0, self.qat.len()],
                None => plain,
            },
            latent2: self.latent2.as_ref().map(triple).or(block_format.then_some([0, 0, 4])),
            filter: self.filter.unwrap_or(filter),
            position: match (self.nfreq, &self.pos) {
                (Some(0), _) => "uv".into(),
                (Some(n), _) => format!("uv,fourier:{n}"),
                (None, Some(pos)) => pos.clone(),
                (None, None) => if block_format { "lv1local" } else { "uv" }.into(),
            },
            hidden: self.hidden.map_or_else(|| self.mlp.clone(), |n| vec![n, n]),
        }
    }

    /// The structure of a model of `textures`, each `source_width` x `source_height` texels after the crop.
    ///
    /// Refuses with [`Error::Config`] what does not fit this size or this number of textures. Calls
    /// [`Config::validate`] first.
    pub fn resolve(&self, source_width: usize, source_height: usize, textures: Vec<TextureInfo>) -> Result<Structure> {
        self.validate()?;
        check_images(textures.len(), &self.weights)?;
        let shape = self.shape();
        let follows = |size: &[usize; 3]| size[0] == 0;
        let pad = follows(&shape.latent) || shape.latent2.as_ref().is_some_and(follows);
        let unit = if pad { self.block } else { 1 };
        let (width, height) = padded(source_width, source_height, unit)?;
        let [filter0, filter1] = shape.filter.0;
        let mut levels = vec![level(shape.latent, (width, height), filter0)];
        if let Some(size) = shape.latent2 {
            levels.push(level(size, (width / unit, height / unit), filter1));
        }
        levels[0].selector_bits = self.selector_bits(shape.latent[2]);
        for (level, bits) in levels.iter_mut().zip(self.grid_bits()) {
            level.grid_bits = bits.filter(|_| !level.is_selector());
        }
        let position: PositionSpec = shape.position.parse()?;
        let structure = Structure {
            width,
            height,
            source_width,
            source_height,
            textures,
            levels,
            position: position.to_string(),
            hidden: shape.hidden,
            activation: self.act,
            leak: self.leak,
            clamp: self.clamp,
            deblock: self.deblock.then_some(self.deblock_falloff),
            qbits: self.qbits,
            mlp_bits: self.mlp_bits,
        };
        check_levels(&structure)?;
        self.check_gauss_newton_size(&structure)?;
        position.check(&structure)?;
        check_inputs(&structure, &position)?;
        Ok(structure)
    }

    /// The grid depth of each of two levels; `None` = free.
    fn grid_bits(&self) -> [Option<u32>; 2] {
        let bits = |level: usize| self.lat_bits.get(if self.lat_bits.len() > 1 { level } else { 0 }).copied();
        [0, 1].map(|level| bits(level).filter(|&bits| bits > 0))
    }

    /// --lat-bits with one depth per level, 0 for selectors; empty where no level has a grid.
    fn explicit_grid_bits(&self, two: bool) -> Vec<u32> {
        let mut bits: Vec<u32> = self.grid_bits().iter().map(|bits| bits.unwrap_or(0)).collect();
        bits.truncate(if two { 2 } else { 1 });
        if !self.qat.is_empty() {
            bits[0] = 0;
        }
        if bits.iter().all(|&bits| bits == 0) { vec![] } else { bits }
    }

    /// Gauss-Newton's matrices are kept within memory.
    fn check_gauss_newton_size(&self, structure: &Structure) -> Result<()> {
        let optimizer = match (self.optimizer, self.lat_grad) {
            (Optimizer::Es, LatGrad::Es) => return Ok(()),
            (Optimizer::Es, LatGrad::Fd) => "--lat-grad fd",
            (Optimizer::Gn, _) => "--optimizer gn",
        };
        for (index, level) in structure.levels.iter().enumerate().filter(|(_, level)| !level.is_selector()) {
            if level.channels > MAX_GN_CHANNELS {
                return Err(Error::config(format!(
                    "--latent{} {} {} {}: {optimizer} takes at most {MAX_GN_CHANNELS} channels in a level; use fewer, \
                     or evolution strategies",
                    if index == 0 { "" } else { "2" },
                    level.width,
                    level.height,
                    level.channels
                )));
            }
        }
        let position: PositionSpec = structure.position.parse()?;
        let weights = Network::new(structure, position.count(cell_of(structure, 0))).parameters();
        if weights > MAX_GN_WEIGHTS && self.optimizer == Optimizer::Gn {
            return Err(Error::config(format!(
                "--mlp: a decoder of {weights} weights; --optimizer gn takes at most {MAX_GN_WEIGHTS}; use fewer \
                 units, or --optimizer es"
            )));
        }
        Ok(())
    }

    /// One depth per channel of level 0, or nothing without selectors.
    fn selector_bits(&self, channels: usize) -> Vec<u32> {
        match self.qat[..] {
            [bits] => vec![bits; channels],
            _ => self.qat.clone(),
        }
    }

    /// These settings with every choice written down, so that the same images give `structure` again.
    ///
    /// `structure` is what [`Config::resolve`] made of these settings. Sizes that follow the image stay `0 0 C`: that
    /// is what pads it.
    pub fn complete(&self, structure: &Structure) -> Config {
        Config { pos: Some(structure.position.clone()), ..self.explicit() }
    }

    /// These settings without short forms and without defaults that depend on other flags.
    pub(super) fn explicit(&self) -> Config {
        let shape = self.shape();
        let canonical = shape.position.parse::<PositionSpec>().map_or(shape.position, |spec| spec.to_string());
        Config {
            latent: Some(shape.latent.to_vec()),
            latent2: shape.latent2.map(|size| size.to_vec()),
            filter: Some(shape.filter),
            mlp: shape.hidden,
            hidden: None,
            pos: Some(canonical),
            nfreq: None,
            qat: self.selector_bits(shape.latent[2]),
            lat_bits: self.explicit_grid_bits(shape.latent2.is_some()),
            mlp_full_pairs: Some(self.mlp_full_pairs.unwrap_or(self.mlp_pairs)),
            lat2_sigma: Some(self.lat2_sigma.unwrap_or(self.lat_sigma)),
            ..self.clone()
        }
    }

    /// These settings with the shape of a loaded model in place of their own, for `--load`.
    ///
    /// `given` are the kebab-case names of the flags that the user wrote. One that disagrees with `structure` is
    /// refused by name, except `qbits`, `lat-bits` and `mlp-bits`, which say how to quantize and not what the model is.
    pub fn adopt(&self, structure: &Structure, given: &[String]) -> Result<Config> {
        let mut adopted = self.with_shape_of(structure);
        let gives = |flag: &str| given.iter().any(|name| name == flag);
        let mut expected = structure.clone();
        if gives("qbits") {
            (adopted.qbits, expected.qbits) = (self.qbits, self.qbits);
        }
        if gives("mlp-bits") {
            (adopted.mlp_bits, expected.mlp_bits) = (self.mlp_bits, self.mlp_bits);
        }
        if gives("lat-bits") {
            adopted.lat_bits = self.lat_bits.clone();
            for (level, bits) in expected.levels.iter_mut().zip(self.grid_bits()) {
                level.grid_bits = bits.filter(|_| !level.is_selector());
            }
        }
        let of = |config: &Config| {
            config.resolve(structure.source_width, structure.source_height, structure.textures.clone())
        };
        if of(&adopted).ok().as_ref() != Some(&expected) {
            return Err(Error::config(
                "--load: no settings describe this model's structure; give one that ntc-es wrote",
            ));
        }
        let own = self.table();
        for name in given.iter().filter(|name| STRUCTURAL.contains(&name.as_str())) {
            let mut table = adopted.table();
            table.extend(own.get(name).map(|value| (name.clone(), value.clone())));
            let tried: Option<Config> = serde_json::from_value(table.into()).ok();
            if tried.and_then(|config| of(&config).ok()).as_ref() != Some(&expected) {
                return Err(Error::config(format!(
                    "--{name}: contradicts the model of --load; leave it away to take the model's own"
                )));
            }
        }
        Ok(adopted)
    }

    /// Every structural setting replaced by what gives `structure`.
    fn with_shape_of(&self, structure: &Structure) -> Config {
        let padding = structure.width != structure.source_width || structure.height != structure.source_height;
        let extent = (structure.width, structure.height);
        let unit = if padding { block_of(structure).unwrap_or(self.block) } else { self.block };
        let written = |level: &Level, whole: (usize, usize)| {
            let follows = padding && (level.width, level.height) == whole;
            let size = if follows { (0, 0) } else { (level.width, level.height) };
            vec![size.0, size.1, level.channels]
        };
        let levels = &structure.levels;
        let filter0 = levels[0].filter;
        Config {
            block: unit,
            latent: Some(written(&levels[0], extent)),
            latent2: levels.get(1).map(|level| written(level, (extent.0 / unit, extent.1 / unit))),
            filter: Some(FilterPair([filter0, levels.get(1).map_or(filter0, |level| level.filter)])),
            mlp: structure.hidden.clone(),
            hidden: None,
            act: structure.activation,
            leak: structure.leak,
            clamp: structure.clamp,
            pos: Some(structure.position.clone()),
            nfreq: None,
            qat: levels[0].selector_bits.clone(),
            deblock: structure.deblock.is_some(),
            deblock_falloff: structure.deblock.unwrap_or(self.deblock_falloff),
            qbits: structure.qbits,
            lat_bits: written_bits(levels),
            mlp_bits: structure.mlp_bits,
            ..self.clone()
        }
    }
}

/// `lat_bits` that give the levels' grids.
fn written_bits(levels: &[Level]) -> Vec<u32> {
    let bits: Vec<u32> = levels.iter().map(|level| level.grid_bits.unwrap_or(0)).collect();
    if bits.iter().all(|&bits| bits == 0) { vec![] } else { bits }
}

/// The extent rounded up to whole blocks of `unit` texels, within the limit on texels.
fn padded(source_width: usize, source_height: usize, unit: usize) -> Result<(usize, usize)> {
    if source_width == 0 || source_height == 0 {
        return Err(Error::config(format!("IMAGE: {source_width}x{source_height} texels; give at least 1x1")));
    }
    let side = |side: usize| side.checked_next_multiple_of(unit);
    match (side(source_width), side(source_height)) {
        (Some(w), Some(h)) if w.checked_mul(h).is_some_and(|texels| texels <= MAX_TEXELS) => Ok((w, h)),
        _ => Err(Error::config(format!(
            "IMAGE: {source_width}x{source_height} texels are more than {MAX_TEXELS}, blocks included; use \
             a --crop of 8192 or less"
        ))),
    }
}

/// A level of the given size, or of size `whole` where it follows the image.
fn level([width, height, channels]: [usize; 3], whole: (usize, usize), filter: Filter) -> Level {
    let (width, height) = if width == 0 { whole } else { (width, height) };
    Level { width, height, channels, filter, selector_bits: vec![], grid_bits: None }
}

/// The block side that pads the source to the structure's extent, by preference the one that level 1 has as cells.
fn block_of(structure: &Structure) -> Option<usize> {
    let pads = |unit: &usize| {
        structure.source_width.checked_next_multiple_of(*unit) == Some(structure.width)
            && structure.source_height.checked_next_multiple_of(*unit) == Some(structure.height)
    };
    let cells = |unit: &usize| {
        let level1 = structure.levels.get(1);
        level1.is_some_and(|l| (l.width, l.height) == (structure.width / unit, structure.height / unit))
    };
    let fitting = || (1..=256).filter(pads);
    fitting().find(cells).or_else(|| fitting().next())
}

/// Grids that need whole cells have them, and no level is beyond memory.
fn check_levels(structure: &Structure) -> Result<()> {
    for (index, level) in structure.levels.iter().enumerate() {
        let flag = if index == 0 { "--latent" } else { "--latent2" };
        let given = format!("{flag} {} {} {}", level.width, level.height, level.channels);
        if level.values() > MAX_VALUES {
            return Err(Error::config(format!("{given}: {} values; a level has at most {MAX_VALUES}", level.values())));
        }
        let deblocked = index == 0 && structure.deblock.is_some();
        if level.filter == Filter::Bilinear && !deblocked {
            continue;
        }
        let axes = [("across", structure.width, level.width), ("down", structure.height, level.height)];
        let misfits: Vec<_> = axes.iter().filter(|&&(_, extent, size)| !extent.is_multiple_of(size)).collect();
        if misfits.is_empty() {
            continue;
        }
        let fixes: Vec<_> = misfits.iter().map(|&&(axis, extent, size)| nearest_divisors(axis, extent, size)).collect();
        let kind = if deblocked { "deblocked" } else { "nearest" };
        return Err(Error::config(format!(
            "{given}: a {kind} level must divide the image's {}x{} texels; the nearest sizes that do are {}",
            structure.width,
            structure.height,
            fixes.join(", ")
        )));
    }
    let (cell_width, cell_height) = cell_of(structure, 0);
    if structure.deblock.is_some() && (cell_width < 2 || cell_height < 2) {
        return Err(Error::config(format!(
            "--deblock: level 0's cells are {cell_width}x{cell_height} texels; use a --latent with cells of 2x2 or more"
        )));
    }
    Ok(())
}

/// The divisors of `extent` next to `size`, as words.
fn nearest_divisors(axis: &str, extent: usize, size: usize) -> String {
    let divides = |n: &usize| extent.is_multiple_of(*n);
    let below = (1..size.min(extent + 1)).rev().find(divides);
    let above = (size..=extent).find(divides);
    let names: Vec<_> = below.iter().chain(&above).map(usize::to_string).collect();
    format!("{} {axis}", names.join(" or "))
}

/// The decoder's inputs fit a layer.
fn check_inputs(structure: &Structure, position: &PositionSpec) -> Result<()> {
    let latents = structure.latent_channels();
    let features = position.count(cell_of(structure, 0));
    if latents.saturating_add(features) > MAX_UNITS {
        return Err(Error::config(format!(
            "--latent, --latent2, --pos: {latents} latent channels and {features} position features; the \
             decoder takes at most {MAX_UNITS} inputs in all"
        )));
    }
    Ok(())
}
