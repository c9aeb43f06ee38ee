//! What a decode reads, uploaded once as `Geometry` made it: tap tables, features, deblocking weights, supports, targets.

use super::layout::{Level, Scene, Support};
use super::memory::Buffer;
use crate::error::Result;
use crate::model::decode::Geometry;
use crate::model::latent::{AxisTaps, Footprint};
use crate::model::position::Feature;
use crate::model::structure::{Activation, Filter};
use cudarc::driver::CudaStream;
use std::sync::Arc;

/// Taps along one axis.
struct Axis {
    first: Buffer<u32>,
    second: Buffer<u32>,
    fraction: Buffer<f32>,
}

/// Ranges [first, last) of one level's support along both axes.
struct Ranges {
    own: [Buffer<u32>; 2],
    ring: Option<[Buffer<u32>; 2]>,
}

/// x tables one after the other, y tables, first row and number of rows of each feature's x tables.
type Features = (Buffer<f32>, Buffer<f32>, Buffer<u32>, Buffer<u32>);

/// The tables of a geometry on the device.
pub struct Tables {
    scene: Scene,
    supports: Vec<Support>,
    // What the addresses in both point to.
    _axes: Vec<[Axis; 2]>,
    _features: Features,
    _deblock: Option<[Buffer<f32>; 2]>,
    _target: Buffer<f32>,
    _weights: Buffer<f32>,
    _ranges: Vec<Ranges>,
}

impl Tables {
    /// Uploads `geometry` with `target` planes and the loss weight of each output.
    pub fn new(stream: &Arc<CudaStream>, geometry: &Geometry, target: &[Vec<f32>], weights: &[f32]) -> Result<Self> {
        let structure = &geometry.structure;
        let (width, height) = (structure.width, structure.height);
        let axis = |taps: &AxisTaps, extent: usize| -> Result<Axis> {
            Ok(Axis {
                first: Buffer::of(stream, "taps", &taps.first[..extent])?,
                second: Buffer::of(stream, "taps", &taps.second[..extent])?,
                fraction: Buffer::of(stream, "taps", &taps.fraction[..extent])?,
            })
        };
        let axes: Vec<_> =
            geometry.taps.iter().map(|t| Ok([axis(&t.x, width)?, axis(&t.y, height)?])).collect::<Result<_>>()?;
        let features = features(stream, &geometry.features, width)?;
        let deblock = match &geometry.deblock {
            Some((x, y)) => {
                Some([Buffer::of(stream, "weights", &x[..width])?, Buffer::of(stream, "weights", &y[..height])?])
            }
            None => None,
        };
        let ranges: Vec<_> = geometry.supports.iter().map(|s| ranges(stream, s)).collect::<Result<_>>()?;
        let target = Buffer::of(stream, "the target", &target.concat())?;
        let weights = Buffer::of(stream, "loss weights", weights)?;

        let mut scene = Scene {
            feature_x: features.0.address(),
            feature_y: features.1.address(),
            feature_first: features.2.address(),
            feature_rows: features.3.address(),
            target: target.address(),
            loss_weights: weights.address(),
            width: width as i32,
            height: height as i32,
            source_width: structure.source_width as i32,
            source_height: structure.source_height as i32,
            clamp: i32::from(structure.clamp),
            ..Scene::default()
        };
        (scene.activation, scene.leak) = match structure.activation {
            Activation::Leaky => (0, structure.leak),
            Activation::Relu => (0, 0.0),
            Activation::Tanh => (1, 0.0),
            Activation::Sine => (2, 0.0),
        };
        if let Some([x, y]) = &deblock {
            (scene.deblock_x, scene.deblock_y) = (x.address(), y.address());
        }
        let shapes = structure.levels.iter().zip(&axes);
        for (into, (shape, [x, y])) in scene.level.iter_mut().zip(shapes) {
            *into = Level {
                values: 0,
                x0: x.first.address(),
                x1: x.second.address(),
                fx: x.fraction.address(),
                y0: y.first.address(),
                y1: y.second.address(),
                fy: y.fraction.address(),
                width: shape.width as i32,
                nearest: i32::from(shape.filter == Filter::Nearest),
            };
        }
        let supports = structure.levels.iter().zip(&ranges).enumerate().map(|(k, (shape, ranges))| {
            let ring = ranges.ring.as_ref().unwrap_or(&ranges.own);
            Support {
                own_x: ranges.own[0].address(),
                own_y: ranges.own[1].address(),
                ring_x: ring[0].address(),
                ring_y: ring[1].address(),
                width: shape.width as i32,
                height: shape.height as i32,
                channels: shape.channels as i32,
                level: k as i32,
            }
        });
        Ok(Tables {
            supports: supports.collect(),
            scene,
            _axes: axes,
            _features: features,
            _deblock: deblock,
            _target: target,
            _weights: weights,
            _ranges: ranges,
        })
    }

    /// The scene with `levels` as latents.
    pub fn scene(&self, levels: &[Buffer<f32>]) -> Scene {
        let mut scene = self.scene;
        for (level, values) in scene.level.iter_mut().zip(levels) {
            level.values = values.address();
        }
        scene
    }

    /// What credits each level's latent texels.
    pub fn supports(&self) -> &[Support] {
        &self.supports
    }
}

fn features(stream: &Arc<CudaStream>, features: &[Feature], width: usize) -> Result<Features> {
    let (mut x, mut y, mut first, mut rows) = (vec![], vec![], vec![], vec![]);
    for feature in features {
        first.push((x.len() / width) as u32);
        rows.push(feature.x.len() as u32);
        feature.x.iter().for_each(|table| x.extend_from_slice(&table[..width]));
        y.extend_from_slice(&feature.y);
    }
    let what = "position features";
    Ok((
        Buffer::of(stream, what, &x)?,
        Buffer::of(stream, what, &y)?,
        Buffer::of(stream, what, &first)?,
        Buffer::of(stream, what, &rows)?,
    ))
}

fn ranges(stream: &Arc<CudaStream>, support: &crate::model::latent::Support) -> Result<Ranges> {
    let upload = |footprint: &Footprint| -> Result<Buffer<u32>> {
        let flat: Vec<u32> = footprint.0.iter().flat_map(|&(a, b)| [a, b]).collect();
        Buffer::of(stream, "footprints", &flat)
    };
    let both = |pair: &(Footprint, Footprint)| -> Result<[Buffer<u32>; 2]> { Ok([upload(&pair.0)?, upload(&pair.1)?]) };
    let ring = support.ring.as_ref().map(both).transpose()?;
    Ok(Ranges { own: both(&support.own)?, ring })
}
