//! What can be done with a fitted model: measure it, write its pictures.

use super::folder::{CONFIG, Folder, distinct_names};
use super::inputs::Material;
use super::model_file::{Model, load_model_up_to};
use super::pictures::Views;
use super::print;
use super::summary::{Facts, Summary};
use crate::backend::cpu::{Cpu, CpuOptions};
use crate::backend::simd::SimdLevel;
use crate::backend::{Backend, State};
use crate::config::{Config, Simd};
use crate::error::{Error, Result};
use crate::eval;
use crate::model::decode::Geometry;
use crate::model::structure::{Channels, Coding, Parameters, Rng, Structure, TextureInfo};
use crate::noise::Noise;
use crate::texture::{Target, Texture, load};
use crate::train::{Progress, measure};
use std::path::{Path, PathBuf};

/// Measures the model in `path` against `images`, prints the summary, and writes it to `out` where that is named.
/// `float` skips quantization; models of more than `most` texels are refused.
///
/// # Errors
/// A model or images that cannot be read, or images that the model is not of.
pub fn eval(path: &Path, images: &[String], float: bool, out: Option<&Path>, most: usize) -> Result<()> {
    let model = load_model_up_to(path, most)?;
    let config = run_config(path)?;
    let coded = model.coded(path, config.coding)?.into_owned();
    let Model { structure, parameters, .. } = model;
    if images.len() != structure.textures.len() {
        let (given, wanted) = (images.len(), structure.textures.len());
        return Err(Error::config(format!("IMAGE: {given} images; the model is of {wanted}, give them in its order")));
    }
    let textures = images.iter().zip(&structure.textures).map(|(image, info)| load_as(Path::new(image), info));
    let textures: Vec<Texture> = textures.collect::<Result<_>>()?;
    // The crop that the fit made: its size is the model's, wherever a side was cut.
    let Material { textures, sources } =
        Material::prepare(textures, structure.source_width.max(structure.source_height));
    let size = (structure.source_width, structure.source_height);
    if let Some(other) = textures.iter().find(|t| (t.width, t.height) != size) {
        let (name, width, height) = (&other.file_name, other.width, other.height);
        return Err(Error::config(format!("{name}: {width}x{height} texels; the model is of {}x{}", size.0, size.1)));
    }
    let target = Target::new(textures, structure.width, structure.height)?;
    let mut backend = backend(&structure, &target.planes, parameters.clone(), &config)?;
    let report = measure(&config, &structure, &mut backend, &Progress::default(), None)?;
    let mut found = coded.measure(&target.planes, &mut backend)?;
    if float {
        found.quality = eval::measure(&structure, &target.planes, &backend.decode(None)?);
    }
    let summary = Summary::new(&Facts {
        config: &config,
        structure: &structure,
        weights: parameters.decoder.len(),
        sources: &sources,
        report: &report,
        found: &found,
        backend: (backend.name(), backend.device()),
    });
    let summary = if float { summary.float_only() } else { summary };
    if let Some(out) = out {
        summary.write(out)?;
    }
    print(&summary.table())
}

/// Settings of the run folder that a model lies in, for its weights and threads; defaults for a bare model.
pub(super) fn run_config(path: &Path) -> Result<Config> {
    let file = path.join(CONFIG);
    if !file.is_file() {
        return Ok(Config::default());
    }
    let text = std::fs::read_to_string(&file).map_err(Error::io(&file))?;
    Config::from_toml(&text, &file)
}

/// Reads an image with the channels that the model has of it.
fn load_as(path: &Path, info: &TextureInfo) -> Result<Texture> {
    let mode = match info.channels {
        1 => Channels::Auto,
        3 => Channels::Rgb,
        _ => Channels::Alpha,
    };
    let texture = load(path, mode)?;
    match texture.info.channels {
        n if n == info.channels => Ok(texture),
        n => Err(Error::file(path, format!("has {n} channels; the model has {} of it", info.channels))),
    }
}

fn backend(structure: &Structure, target: &[Vec<f32>], parameters: Parameters, config: &Config) -> Result<Cpu> {
    let options = CpuOptions::new(SimdLevel::new(Simd::Auto)?, config.threads);
    let geometry = Geometry::new(structure.clone())?;
    let noise = Noise::new(Rng::Hash, 0);
    Cpu::new(options, geometry, target.to_vec(), &config.weights, noise, State::new(parameters))
}

/// Writes the pictures that the model in `path` stands for into folder `out`, and prints their paths.
///
/// # Errors
/// As [`write_pictures`].
pub fn decode(path: &Path, out: &Path, float: bool, most: usize) -> Result<()> {
    let files = write_pictures(path, out, float, most)?;
    print(&files.iter().map(|file| format!("{}\n", file.display())).collect::<String>())
}

/// Writes the pictures that the model in `path` stands for into folder `out`, one PNG a texture; returns their paths.
///
/// # Errors
/// A model that cannot be read, a folder that cannot be written.
pub fn write_pictures(path: &Path, out: &Path, float: bool, most: usize) -> Result<Vec<PathBuf>> {
    let model = load_model_up_to(path, most)?;
    let stored = if float { None } else { Some(model.coded(path, Coding::Fixed)?.record.parameters()) };
    let Model { structure, parameters, .. } = model;
    let parameters = stored.unwrap_or(parameters);
    let folder = Folder::create(out, 1)?;
    let decoded = backend(&structure, &[], parameters, &Config::default())?.decode(None)?;
    let views = Views::new(&structure, &decoded);
    let names: Vec<_> = structure.textures.iter().map(|t| t.name.as_str()).collect();
    let files: Vec<_> = distinct_names(&names).iter().map(|name| folder.file(name)).collect();
    files.iter().enumerate().try_for_each(|(k, file)| views.write_texture(file, k))?;
    Ok(files)
}
