//! What can be done with a fitted model: measure it, write its pictures.

use super::coded::{Coded, is_coded};
use super::folder::{CONFIG, Folder, RECORD, distinct_names};
use super::inputs::{self, Material, Reduction};
use super::material;
use super::model_file::{Model, load_model_up_to};
use super::print;
use super::region::Region;
use super::summary::{Facts, Summary};
use crate::backend::cpu::{Cpu, CpuOptions};
use crate::backend::simd::SimdLevel;
use crate::backend::{Backend, State};
use crate::config::{Config, Image, Simd};
use crate::error::{Error, Result};
use crate::eval;
use crate::model::decode::Geometry;
use crate::model::structure::{Channels, Coding, Parameters, Rng, Structure, TextureInfo};
use crate::noise::Noise;
use crate::texture::write::{Format, Picture, Rows};
use crate::texture::{Target, Texture};
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
    let images = material::of_folder(images)?;
    if images.len() != structure.textures.len() {
        let (given, wanted) = (images.len(), structure.textures.len());
        return Err(Error::config(format!("IMAGE: {given} images; the model is of {wanted}, give them in its order")));
    }
    let textures = images.iter().zip(&structure.textures).map(|(image, info)| load_as(&Image::of(image), info));
    let textures: Vec<Texture> = textures.collect::<Result<_>>()?;
    let as_model = Reduction::As(&structure.textures);
    // The crop that the fit made: its size is the model's, wherever a side was cut.
    let Material { textures, sources } =
        Material::prepare(textures, structure.source_width.max(structure.source_height), config.resize_to, &as_model)?;
    let size = (structure.source_width, structure.source_height);
    if let Some(other) = textures.iter().find(|t| (t.width, t.height) != size) {
        let (name, width, height) = (&other.file_name, other.width, other.height);
        return Err(Error::config(format!("{name}: {width}x{height} texels; the model is of {}x{}", size.0, size.1)));
    }
    let target = Target::new(textures, structure.width, structure.height)?;
    let mut backend = backend(&structure, &target.planes, parameters.clone(), &config)?;
    let report = measure(&config, &structure, &mut backend, &Progress::default(), None)?;
    let mut found = coded.measure(&target.planes, &target.rebuilt, &mut backend)?;
    if float {
        found.quality = eval::measure(&structure, &target.planes, &target.rebuilt, &backend.decode(None)?);
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
fn load_as(image: &Image, info: &TextureInfo) -> Result<Texture> {
    let mode = match info.channels {
        3 if info.sources.is_empty() => Channels::Rgb,
        1 | 3 => Channels::Auto,
        _ => Channels::Alpha,
    };
    let texture = inputs::read(&Image { channels: Some(mode), ..*image }, mode)?;
    if let (Some(role), Some(of)) = (image.role, info.role)
        && role != of
    {
        return Err(Error::config(format!("{role}={}: the model has {} there as {of}", image.path, info.name)));
    }
    Ok(texture)
}

fn backend(structure: &Structure, target: &[Vec<f32>], parameters: Parameters, config: &Config) -> Result<Cpu> {
    let options = CpuOptions::new(SimdLevel::new(Simd::Auto)?, config.threads);
    let geometry = Geometry::new(structure.clone())?;
    let noise = Noise::new(Rng::Hash, 0);
    Cpu::new(options, geometry, target.to_vec(), &config.weights, noise, State::new(parameters))
}

/// What a decode is to write.
#[derive(Clone, Copy, Debug)]
pub struct Decode<'a> {
    /// Folder for the files, one a texture.
    pub out: &'a Path,
    /// Float latents and weights in place of the stored ones.
    pub float: bool,
    /// Texels, padding included, that a model may have.
    pub most: usize,
    /// The part of the picture; `None` = all of it.
    pub region: Option<Region>,
    /// What is written.
    pub format: Format,
}

/// Writes the pictures that the model in `path` stands for, and prints their paths.
///
/// # Errors
/// As [`write_pictures`].
pub fn decode(path: &Path, what: &Decode) -> Result<()> {
    let files = write_pictures(path, what)?;
    print(&files.iter().map(|file| format!("{}\n", file.display())).collect::<String>())
}

/// Rows that are decoded before they are written: a few bands of each thread.
const ROWS_AT_ONCE: usize = 256;

/// Writes the pictures that the model in `path` stands for, some rows at a time; returns the files' paths.
///
/// # Errors
/// A model that cannot be read or is smaller than the region, a folder that cannot be written.
pub fn write_pictures(path: &Path, what: &Decode) -> Result<Vec<PathBuf>> {
    let (structure, parameters) = to_decode(path, what)?;
    let region = what.region.unwrap_or(Region::all(&structure));
    region.check(&structure).map_err(|message| Error::file(path, message))?;
    let folder = Folder::create(what.out, 1)?;
    let cpu = backend(&structure, &[], parameters, &Config::default())?;
    let names: Vec<_> = structure.textures.iter().map(|t| t.name.as_str()).collect();
    let extension = what.format.extension();
    let files = distinct_names(&names).into_iter().map(|name| folder.file(&name).with_extension(extension));
    let files: Vec<PathBuf> = files.collect();
    let begin = |(file, t): (&PathBuf, &TextureInfo)| {
        let Region { width, height, .. } = region;
        Rows::create(file, what.format, Picture { width, height, channels: t.channels, depth: t.depth })
    };
    let mut writers = files.iter().zip(&structure.textures).map(begin).collect::<Result<Vec<_>>>()?;
    let columns = (region.x, region.x + region.width);
    let end = region.y + region.height;
    for y in (region.y..end).step_by(ROWS_AT_ONCE) {
        let planes = cpu.decode_part(None, columns, (y, end.min(y + ROWS_AT_ONCE)));
        let cut = |plane: Vec<f32>| -> Vec<f32> {
            plane.chunks_exact(structure.width).flat_map(|row| &row[columns.0..columns.1]).copied().collect()
        };
        let planes: Vec<Vec<f32>> = planes.into_iter().map(cut).collect();
        let mut rest = planes.as_slice();
        for (writer, texture) in writers.iter_mut().zip(&structure.textures) {
            let (own, others) = rest.split_at(texture.outputs());
            let own: Vec<_> = own.iter().map(Vec::as_slice).collect();
            let texels = region.width * (end.min(y + ROWS_AT_ONCE) - y);
            let written = texture.written(&own, None, texels);
            writer.put(&written.iter().map(|plane| &plane[..]).collect::<Vec<_>>())?;
            rest = others;
        }
    }
    writers.into_iter().try_for_each(Rows::finish)?;
    Ok(files)
}

/// The model that a decode is of; only what the region needs of a coded file that allows it.
fn to_decode(path: &Path, what: &Decode) -> Result<(Structure, Parameters)> {
    let record = if path.is_dir() { path.join(RECORD) } else { path.to_owned() };
    if let Some(region) = what.region.filter(|_| !what.float && is_coded(&record)) {
        let part = Coded::read_region(&record, what.most, region)?;
        return Ok((part.structure.clone(), part.parameters()));
    }
    let model = load_model_up_to(path, what.most)?;
    let stored = if what.float { None } else { Some(model.coded(path, Coding::Fixed)?.record.parameters()) };
    Ok((model.structure, stored.unwrap_or(model.parameters)))
}
