//! The model file: everything that decoding needs and nothing else, so that equal runs give equal bytes.

use super::folder;
use super::tensors::{Bytes, Tensor, Tensors, write};
use crate::config::{Config, MAX_TEXELS};
use crate::error::{Error, Result};
use crate::model::decode::Geometry;
use crate::model::mlp::Network;
use crate::model::quant::{grid_index, grid_value};
use crate::model::structure::{Filter, Level, Parameters, Structure};
use crate::texture::MAX_SIDE;
use crate::texture::target::MAX_TEXTURES;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the layout; a reader refuses others.
const FORMAT: u32 = 1;
/// Latent values of a level at most.
const MAX_VALUES: usize = 1 << 30;
/// Widest padding of a side, exclusive: the largest --block.
const MAX_PADDING: usize = 256;

/// A model as read from its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// What it looks like.
    pub structure: Structure,
    /// Its float values.
    pub parameters: Parameters,
}

/// The JSON beside the tensors.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    format: u32,
    structure: Structure,
}

/// Writes `parameters` under `structure`: a tensor `latentK` of f32 \[h, w, c] a level (`selectorK` of u8 indices where
/// it holds selectors), and `layerK.weight` \[out, in] and `layerK.bias` \[out] of f32.
pub fn save(path: &Path, structure: &Structure, network: &Network, parameters: &Parameters) -> Result<()> {
    let mut tensors = vec![];
    for (k, (level, values)) in structure.levels.iter().zip(&parameters.levels).enumerate() {
        tensors.push(level_tensor(k, level, values));
    }
    for (k, layer) in network.layers.iter().enumerate() {
        let (from, to) = (layer.biases, layer.biases + layer.outputs);
        let weights = &parameters.decoder[layer.weights..layer.biases];
        tensors.push(Tensor::f32(format!("layer{k}.weight"), &[layer.outputs, layer.inputs], weights));
        tensors.push(Tensor::f32(format!("layer{k}.bias"), &[layer.outputs], &parameters.decoder[from..to]));
    }
    write(path, &About { format: FORMAT, structure: structure.clone() }, &tensors)
}

fn level_tensor(k: usize, level: &Level, values: &[f32]) -> Tensor {
    let shape = [level.height, level.width, level.channels];
    if !level.is_selector() {
        return Tensor::f32(format!("latent{k}"), &shape, values);
    }
    let index = |(i, &z): (usize, &f32)| grid_index(z, level.selector_bits[i % level.channels]) as u8;
    Tensor::u8(format!("selector{k}"), &shape, values.iter().enumerate().map(index).collect())
}

/// Reads a model from its file, or from the run folder that holds it.
///
/// # Errors
/// A file that is not a model of ours, whatever its bytes are: one line, before anything large is allocated.
pub fn load_model(path: &Path) -> Result<Model> {
    let inside = path.join(folder::MODEL);
    let path = match path.is_dir() {
        true if inside.is_file() => inside.as_path(),
        true => return Err(Error::file(path, format!("has no {}; name a run folder or a model file", folder::MODEL))),
        false => path,
    };
    let bytes = Bytes::read(path)?;
    let tensors = bytes.tensors()?;
    let About { format, structure } = tensors.about()?;
    if format != FORMAT {
        return Err(Error::file(path, format!("has format {format}; this program reads format {FORMAT}")));
    }
    check(&structure).map_err(|message| Error::file(path, format!("its structure is refused: {message}")))?;
    let geometry = Geometry::new(structure).map_err(|e| Error::file(path, e.to_string()))?;
    let parameters = read_parameters(&tensors, path, &geometry)?;
    Ok(Model { structure: geometry.structure, parameters })
}

fn read_parameters(tensors: &Tensors, path: &Path, geometry: &Geometry) -> Result<Parameters> {
    let levels = &geometry.structure.levels;
    tensors.expect_count(levels.len() + 2 * geometry.network.layers.len())?;
    let levels =
        levels.iter().enumerate().map(|(k, level)| read_level(tensors, path, k, level)).collect::<Result<_>>()?;
    let mut decoder = Vec::with_capacity(geometry.network.parameters());
    for (k, layer) in geometry.network.layers.iter().enumerate() {
        decoder.extend(tensors.f32(&format!("layer{k}.weight"), &[layer.outputs, layer.inputs])?);
        decoder.extend(tensors.f32(&format!("layer{k}.bias"), &[layer.outputs])?);
    }
    Ok(Parameters { levels, decoder })
}

fn read_level(tensors: &Tensors, path: &Path, k: usize, level: &Level) -> Result<Vec<f32>> {
    let shape = [level.height, level.width, level.channels];
    if !level.is_selector() {
        return tensors.f32(&format!("latent{k}"), &shape);
    }
    let name = format!("selector{k}");
    let bits = |i: usize| level.selector_bits[i % level.channels];
    let indices = tensors.u8(&name, &shape)?;
    if let Some(at) = (0..indices.len()).find(|&i| u32::from(indices[i]) >> bits(i) != 0) {
        let (index, bits) = (indices[at], bits(at));
        return Err(Error::file(path, format!("tensor `{name}`: value {at} is {index}, beyond {bits} bits")));
    }
    Ok(indices.iter().enumerate().map(|(i, &index)| grid_value(u32::from(index), bits(i))).collect())
}

/// Refuses a structure that no settings lead to. What is checked here keeps the sums below from overflowing; the
/// settings' own rules do the rest.
fn check(structure: &Structure) -> std::result::Result<(), String> {
    let Structure { width, height, source_width, source_height, .. } = *structure;
    let side = |name: &str, padded: usize, source: usize| {
        let sane = source >= 1 && source <= padded && padded - source < MAX_PADDING && source <= MAX_SIDE;
        if sane { Ok(()) } else { Err(format!("{name} {padded} for a source of {source}")) }
    };
    side("width", width, source_width)?;
    side("height", height, source_height)?;
    if width * height > MAX_TEXELS {
        return Err(format!("{width}x{height} texels, at most {MAX_TEXELS}"));
    }
    check_textures(structure)?;
    if !(1..=2).contains(&structure.levels.len()) {
        return Err(format!("{} latent levels, 1 or 2", structure.levels.len()));
    }
    for (k, level) in structure.levels.iter().enumerate() {
        check_level(k, level)?;
    }
    match Config::default().adopt(structure, &[]) {
        Ok(_) => Ok(()),
        Err(_) => Err("no settings of ntc-es give it".into()),
    }
}

fn check_textures(structure: &Structure) -> std::result::Result<(), String> {
    let count = structure.textures.len();
    if !(1..=MAX_TEXTURES).contains(&count) {
        return Err(format!("{count} textures, 1 to {MAX_TEXTURES}"));
    }
    for texture in &structure.textures {
        if !(1..=4).contains(&texture.channels) || ![8, 16].contains(&texture.depth) {
            return Err(format!("a texture of {} channels with {} bits", texture.channels, texture.depth));
        }
        if texture.name != folder::safe_name(&texture.name) {
            return Err(format!("{:?} is no name for a texture", texture.name.chars().take(80).collect::<String>()));
        }
    }
    Ok(())
}

fn check_level(k: usize, level: &Level) -> std::result::Result<(), String> {
    let Level { width, height, channels, filter, ref selector_bits } = *level;
    let values = width.checked_mul(height).and_then(|n| n.checked_mul(channels)).unwrap_or(usize::MAX);
    if !(1..=MAX_VALUES).contains(&values) {
        return Err(format!("level {k} of {width}x{height}x{channels} values"));
    }
    if selector_bits.is_empty() {
        return Ok(());
    }
    let fits = selector_bits.len() == channels && selector_bits.iter().all(|bits| (1..=8).contains(bits));
    let sane = k == 0 && filter == Filter::Nearest && fits;
    if sane { Ok(()) } else { Err(format!("level {k} with selectors of {selector_bits:?} bits")) }
}
