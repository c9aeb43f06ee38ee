//! The model file: everything that decoding needs and nothing else, so that equal runs give equal bytes.

use super::coded::{Coded, is_coded};
use super::folder;
use super::tensors::{Bytes, Tensor, Tensors, write};
use crate::config::{MAX_TEXELS, check_structure};
use crate::error::{Error, Result};
use crate::model::decode::Geometry;
use crate::model::mlp::Network;
use crate::model::quant::{grid_index, grid_value};
use crate::model::structure::{Coding, Level, Parameters, Structure};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::Path;

/// Version of the layout; a reader refuses others.
const FORMAT: u32 = 1;

/// A model as read from its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// What it looks like.
    pub structure: Structure,
    /// Its float values; what the coded file says where that is all there is.
    pub parameters: Parameters,
    /// Its coded file, where there is one.
    pub coded: Option<Coded>,
}

impl Model {
    /// What a reader of the coded file gets; a model without one is encoded in memory. `path` is what messages name.
    pub fn coded(&self, path: &Path, coding: Coding) -> Result<Cow<'_, Coded>> {
        match &self.coded {
            Some(coded) => Ok(Cow::Borrowed(coded)),
            None => Coded::of_model(path, &self.structure, &self.parameters, coding).map(Cow::Owned),
        }
    }
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

/// Reads a model from its file, coded or not, or from the run folder that holds it.
///
/// # Errors
/// A file that is not a model of ours, whatever its bytes are: one line, before anything large is allocated.
pub fn load_model(path: &Path) -> Result<Model> {
    load_model_up_to(path, MAX_TEXELS)
}

/// As [`load_model`], with a limit on the texels, padding included.
///
/// # Errors
/// As [`load_model`]; a model of more texels.
pub fn load_model_up_to(path: &Path, most: usize) -> Result<Model> {
    if !path.is_dir() {
        return if is_coded(path) { load_coded(path, most) } else { load_float(path, most) };
    }
    let [float, coded] = [folder::MODEL, folder::RECORD].map(|name| path.join(name));
    match (float.is_file(), coded.is_file()) {
        (true, false) => load_float(&float, most),
        (false, true) => load_coded(&coded, most),
        (true, true) => {
            let (float, record) = (load_float(&float, most)?, Coded::read(&coded, most)?);
            if float.structure != record.record.structure {
                return Err(Error::file(coded, format!("is of another model than {}", folder::MODEL)));
            }
            Ok(Model { coded: Some(record), ..float })
        }
        (false, false) => {
            let message = format!("has no {}; name a run folder or a model file", folder::MODEL);
            Err(Error::file(path, message))
        }
    }
}

/// Reads a coded file.
fn load_coded(path: &Path, most: usize) -> Result<Model> {
    let coded = Coded::read(path, most)?;
    // Whatever decoding derives from a structure can be derived from this one.
    Geometry::new(coded.record.structure.clone()).map_err(|e| Error::file(path, e.to_string()))?;
    let (structure, parameters) = (coded.record.structure.clone(), coded.record.parameters());
    Ok(Model { structure, parameters, coded: Some(coded) })
}

/// Reads the float values of a model.
fn load_float(path: &Path, most: usize) -> Result<Model> {
    let bytes = Bytes::read(path)?;
    let tensors = bytes.tensors()?;
    let About { format, structure } = tensors.about()?;
    if format != FORMAT {
        return Err(Error::file(path, format!("has format {format}; this program reads format {FORMAT}")));
    }
    check_structure(&structure).map_err(|message| Error::file(path, format!("its structure is refused: {message}")))?;
    if structure.texels() > most {
        let (width, height) = (structure.width, structure.height);
        return Err(Error::file(path, format!("has {width}x{height} texels; --max-pixels is {most}")));
    }
    let geometry = Geometry::new(structure).map_err(|e| Error::file(path, e.to_string()))?;
    let parameters = read_parameters(&tensors, path, &geometry)?;
    Ok(Model { structure: geometry.structure, parameters, coded: None })
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
