//! First values of a model (SPEC section 2, "Init").

use crate::model::lanes::Scalar;
use crate::model::mlp::Network;
use crate::model::quant::{grid_index, grid_value};
use crate::model::structure::{Activation, Parameters, Structure};
use crate::noise::Noise;
use crate::noise::hash::{Stream, fill_normals};
use crate::noise::mersenne::PolarNormal;

/// Normal latents of standard deviation `lat_init` (selectors snapped to their grid) and scaled normal decoder weights.
pub fn parameters(structure: &Structure, network: &Network, lat_init: f32, noise: &mut Noise) -> Parameters {
    let mut levels: Vec<Vec<f32>> = structure.levels.iter().map(|level| vec![0.0; level.values()]).collect();
    let mut weights = vec![0.0; network.layers.iter().map(|layer| layer.inputs * layer.outputs).sum()];
    match noise {
        Noise::Hash(hash) => {
            for (values, stream) in levels.iter_mut().zip([Stream::InitLatent0, Stream::InitLatent1]) {
                fill_normals(Scalar, hash.key, stream, 0, 0, 0, values);
            }
            fill_normals(Scalar, hash.key, Stream::InitDecoder, 0, 0, 0, &mut weights);
        }
        Noise::Mersenne(mersenne) => {
            let mut normal = PolarNormal::default();
            levels.iter_mut().flatten().for_each(|z| *z = normal.sample(mersenne));
            mersenne.fill_normals(&mut weights);
        }
    }
    for (level, values) in structure.levels.iter().zip(&mut levels) {
        values.iter_mut().for_each(|z| *z *= lat_init);
        if level.is_selector() {
            for (i, z) in values.iter_mut().enumerate() {
                let bits = level.selector_bits[i % level.channels];
                *z = grid_value(grid_index(*z, bits), bits);
            }
        }
    }
    Parameters { levels, decoder: scale_weights(network, &weights) }
}

/// Puts unit normals, layer by layer, into the parameters with each layer's scale; biases are 0.
fn scale_weights(network: &Network, normals: &[f32]) -> Vec<f32> {
    let mut parameters = vec![0.0; network.parameters()];
    let last = network.layers.len() - 1;
    let mut normals = normals.iter();
    for (k, layer) in network.layers.iter().enumerate() {
        let fan_in = layer.inputs as f32;
        let scale = match network.activation {
            _ if k == last => (1.0 / fan_in).sqrt(),
            Activation::Sine if k == 0 => 30.0 / fan_in,
            Activation::Sine => (6.0 / fan_in).sqrt(),
            _ => (2.0 / fan_in).sqrt(),
        };
        let weights = &mut parameters[layer.weights..layer.biases];
        weights.iter_mut().zip(&mut normals).for_each(|(w, n)| *w = scale * n);
    }
    parameters
}
