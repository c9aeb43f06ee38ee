//! What host and kernels lay out alike: structures passed by value, packed parameters, sizes for specialisation.

use crate::model::mlp::{Layer, Network};
use crate::noise::hash::Stream as NoiseStream;

/// Packed parameters that are copied to shared memory at most (kernels/mlp.cuh).
const STAGED: usize = 8192;

/// Twin of `Level` in kernels/scene.cuh. Addresses are on the device.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Level {
    pub values: u64,
    pub x0: u64,
    pub x1: u64,
    pub fx: u64,
    pub y0: u64,
    pub y1: u64,
    pub fy: u64,
    pub width: i32,
    pub nearest: i32,
}

/// Twin of `Scene` in kernels/scene.cuh.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Scene {
    pub level: [Level; 2],
    pub feature_x: u64,
    pub feature_y: u64,
    pub feature_first: u64,
    pub feature_rows: u64,
    pub deblock_x: u64,
    pub deblock_y: u64,
    pub target: u64,
    pub loss_weights: u64,
    pub width: i32,
    pub height: i32,
    pub source_width: i32,
    pub source_height: i32,
    pub activation: i32,
    pub leak: f32,
    pub clamp: i32,
    pub reserved: i32,
}

/// Twin of `Batch` in kernels/minibatch.cuh.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Batch {
    pub inputs: u64,
    pub target: u64,
    pub wh: u64,
    pub wv: u64,
    pub count: u32,
    pub stride: u32,
}

/// Twin of `Noise` in kernels/latent_es.cu.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Noise {
    pub e: [u64; 2],
    pub values: [u64; 2],
    pub sigma: [f32; 2],
    pub noisy: u32,
    pub alternate: u32,
    pub first_pair: u32,
    pub step: u32,
}

/// Twin of `Support` in kernels/latent_es.cu.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Support {
    pub own_x: u64,
    pub own_y: u64,
    pub ring_x: u64,
    pub ring_y: u64,
    pub width: i32,
    pub height: i32,
    pub channels: i32,
    pub level: i32,
}

// The kernels assert the same sizes.
const _: () = assert!(size_of::<Level>() == 64 && size_of::<Scene>() == 224 && size_of::<Batch>() == 40);
const _: () = assert!(size_of::<Noise>() == 56 && size_of::<Support>() == 48);

/// Numbers of a noise stream: key, stream, step.
#[derive(Clone, Copy)]
pub struct Draw {
    pub key: [u32; 2],
    pub stream: NoiseStream,
    pub step: u32,
}

/// Where a decoder's parameters lie when packed: padded rows in summation order (kernels/mlp.cuh).
pub fn places(network: &Network) -> Vec<u32> {
    let mut places = vec![0; network.parameters()];
    let mut at = 0;
    for (k, layer) in network.layers.iter().enumerate() {
        let stride = layer.inputs.next_multiple_of(4);
        for unit in 0..layer.outputs {
            for column in 0..layer.inputs {
                let parameter = if k == 0 { network.parameter_column(column) } else { column };
                places[layer.weights + unit * layer.inputs + parameter] = (at + unit * stride + column) as u32;
            }
            places[layer.biases + unit] = (at + layer.outputs * stride + unit) as u32;
        }
        at += layer.outputs * stride + layer.outputs.next_multiple_of(4);
    }
    places
}

/// Sizes that the kernels are specialised to.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Packed parameters.
    pub packed: usize,
    /// Rows of a point's trace under finite differences.
    pub trace_rows: usize,
    /// Decoder inputs.
    pub inputs: usize,
    /// Decoder outputs.
    pub outputs: usize,
    /// Widths from inputs to outputs.
    pub widths: Vec<usize>,
    /// What the kernels are specialised by.
    pub defines: Vec<String>,
}

impl Shape {
    /// The shape of a decoder.
    pub fn new(network: &Network) -> Self {
        let mut widths = vec![network.inputs()];
        widths.extend(network.layers.iter().map(|layer| layer.outputs));
        let packed =
            |layer: &Layer| layer.outputs * layer.inputs.next_multiple_of(4) + layer.outputs.next_multiple_of(4);
        let packed = network.layers.iter().map(packed).sum();
        let hidden: usize = widths[1..widths.len() - 1].iter().sum();
        let trace_rows = 3 * (hidden + network.outputs());
        let list: Vec<_> = widths.iter().map(usize::to_string).collect();
        let defines = vec![
            format!("-DNTC_WIDTHS={}", list.join(",")),
            format!("-DNTC_LAYERS={}", network.layers.len()),
            format!("-DNTC_POSITION={}", network.position),
            format!("-DNTC_CHANNELS0={}", network.channels[0]),
            format!("-DNTC_CHANNELS1={}", network.channels[1]),
            format!("-DNTC_PACKED={packed}"),
            format!("-DNTC_TRACE_ROWS={trace_rows}"),
        ];
        Shape { packed, trace_rows, inputs: network.inputs(), outputs: network.outputs(), widths, defines }
    }

    /// Bytes of shared memory for a copy of the parameters.
    pub fn stage(&self) -> usize {
        if self.packed <= STAGED { self.packed * 4 } else { 0 }
    }
}
