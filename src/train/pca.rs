//! First latents from the image: principal directions of its blocks (`--init pca`).
//!
//! A free level's channels are the blocks' means, projected on the directions in which they differ most; where it has
//! more channels than there are outputs, the rest are directions of the blocks' content without its mean. Selectors are
//! each block's residual along its own principal directions.

use crate::model::quant::{grid_index, grid_value};
use crate::model::structure::{Level, Parameters, Structure};
use faer::{Mat, Side};

/// Parts of a block along each axis whose means describe its content.
const PARTS: usize = 4;

/// Texels of a cell along each axis below which a level takes its block from the other one.
const LEAST_CELL: usize = 2;

/// Replaces the latents of `parameters` by principal components of `target` (one plane an output).
pub fn start(structure: &Structure, target: &[Vec<f32>], parameters: &mut Parameters) {
    for (level, values) in structure.levels.iter().zip(&mut parameters.levels) {
        if !level.is_selector() {
            free_level(structure, level, target, values);
        }
    }
    if structure.levels[0].is_selector() {
        selectors(structure, target, &mut parameters.levels[0]);
    }
}

/// The texels that stand for latent index `i` of `size` along an axis: its cell, at least one texel.
fn cell(extent: usize, size: usize, i: usize) -> (usize, usize) {
    let start = (i * extent / size).min(extent - 1);
    (start, ((i + 1) * extent / size).clamp(start + 1, extent))
}

/// Means of one plane over the rectangle x by y.
fn mean(plane: &[f32], width: usize, x: (usize, usize), y: (usize, usize)) -> f64 {
    let rows = (y.0..y.1).map(|y| plane[y * width..][x.0..x.1].iter().map(|&v| f64::from(v)).sum::<f64>());
    rows.sum::<f64>() / ((x.1 - x.0) * (y.1 - y.0)) as f64
}

fn free_level(structure: &Structure, level: &Level, target: &[Vec<f32>], values: &mut [f32]) {
    let outputs = target.len();
    let (mut means, mut contents) = (vec![], vec![]);
    for j in 0..level.height {
        for i in 0..level.width {
            let x = cell(structure.width, level.width, i);
            let y = cell(structure.height, level.height, j);
            let of_block: Vec<f64> = target.iter().map(|plane| mean(plane, structure.width, x, y)).collect();
            if level.channels > outputs {
                for (plane, whole) in target.iter().zip(&of_block) {
                    for part in 0..PARTS * PARTS {
                        let sub = |(start, end): (usize, usize), k: usize| {
                            let (a, b) = cell(end - start, PARTS, k);
                            (start + a, start + b)
                        };
                        let at = (sub(x, part % PARTS), sub(y, part / PARTS));
                        contents.push(mean(plane, structure.width, at.0, at.1) - whole);
                    }
                }
            }
            means.extend(of_block);
        }
    }
    let from_means = level.channels.min(outputs);
    project(&means, outputs, from_means, 0, level.channels, values);
    if level.channels > from_means {
        let size = outputs * PARTS * PARTS;
        project(&contents, size, level.channels - from_means, from_means, level.channels, values);
    }
}

/// Writes the first `count` principal components of rows of `size` numbers into channels from `first` on, each scaled so
/// that three standard deviations, or the largest value if that is less, is 1.
fn project(rows: &[f64], size: usize, count: usize, first: usize, channels: usize, values: &mut [f32]) {
    let n = rows.len() / size;
    let centre: Vec<f64> = (0..size).map(|i| rows.iter().skip(i).step_by(size).sum::<f64>() / n as f64).collect();
    let centred = || rows.chunks_exact(size).map(|row| row.iter().zip(&centre).map(|(a, b)| a - b).collect::<Vec<_>>());
    let mut covariance = vec![0.0; size * size];
    for row in centred() {
        for i in 0..size {
            for j in 0..=i {
                covariance[j * size + i] += row[i] * row[j];
            }
        }
    }
    let directions = principal(&covariance, size, count);
    for (k, direction) in directions.iter().enumerate() {
        let z: Vec<f64> = centred().map(|row| row.iter().zip(direction).map(|(a, b)| a * b).sum()).collect();
        let deviation = (z.iter().map(|z| z * z).sum::<f64>() / n as f64).sqrt();
        let most = z.iter().fold(0.0f64, |most, z| most.max(z.abs()));
        let scale = most.min(3.0 * deviation).max(1e-9);
        for (z, out) in z.iter().zip(values.iter_mut().skip(first + k).step_by(channels)) {
            *out = (z / scale).clamp(-1.0, 1.0) as f32;
        }
    }
}

/// The `count` directions of largest variance of a covariance (lower triangle, column-major), each with a sum of 0 or
/// more; fewer where there are fewer dimensions or the covariance is not finite.
fn principal(covariance: &[f64], size: usize, count: usize) -> Vec<Vec<f64>> {
    let matrix = Mat::from_fn(size, size, |i, j| covariance[j.min(i) * size + j.max(i)]);
    let Ok(eigen) = matrix.self_adjoint_eigen(Side::Lower) else { return vec![] };
    let vectors = eigen.U();
    let direction = |k: usize| -> Vec<f64> {
        let v: Vec<f64> = (0..size).map(|i| vectors[(i, size - 1 - k)]).collect();
        let sign = if v.iter().sum::<f64>() < 0.0 { -1.0 } else { 1.0 };
        v.iter().map(|x| x * sign).collect()
    };
    (0..count.min(size)).map(direction).collect()
}

/// Each selector channel is the residual of its block along that block's own principal direction, snapped to the grid.
fn selectors(structure: &Structure, target: &[Vec<f32>], values: &mut [f32]) {
    let level = &structure.levels[0];
    let outputs = target.len();
    // The block is a cell of level 1, or a fixed number of selectors where there is none or it is as fine.
    let across = structure.levels.get(1).map_or(0, |l| level.width / l.width.max(1));
    let side = if across >= LEAST_CELL { across } else { PARTS };
    let texels = (structure.width / level.width, structure.height / level.height);
    let colour = |i: usize, j: usize| -> Vec<f64> {
        let (x, y) = ((i * texels.0, (i + 1) * texels.0), (j * texels.1, (j + 1) * texels.1));
        target.iter().map(|plane| mean(plane, structure.width, x, y)).collect()
    };
    for j0 in (0..level.height).step_by(side) {
        for i0 in (0..level.width).step_by(side) {
            let places: Vec<(usize, usize)> = (j0..(j0 + side).min(level.height))
                .flat_map(|j| (i0..(i0 + side).min(level.width)).map(move |i| (i, j)))
                .collect();
            let colours: Vec<Vec<f64>> = places.iter().map(|&(i, j)| colour(i, j)).collect();
            let centre: Vec<f64> =
                (0..outputs).map(|o| colours.iter().map(|c| c[o]).sum::<f64>() / colours.len() as f64).collect();
            let mut covariance = vec![0.0; outputs * outputs];
            for c in &colours {
                for a in 0..outputs {
                    for b in 0..=a {
                        covariance[b * outputs + a] += (c[a] - centre[a]) * (c[b] - centre[b]);
                    }
                }
            }
            for (k, direction) in principal(&covariance, outputs, level.channels).iter().enumerate() {
                let along = |c: &Vec<f64>| -> f64 { (0..outputs).map(|o| (c[o] - centre[o]) * direction[o]).sum() };
                let z: Vec<f64> = colours.iter().map(along).collect();
                let most = z.iter().fold(1e-9f64, |most, z| most.max(z.abs()));
                let bits = level.selector_bits[k];
                for (&(i, j), z) in places.iter().zip(z) {
                    let value = grid_value(grid_index((z / most) as f32, bits), bits);
                    values[(j * level.width + i) * level.channels + k] = value;
                }
            }
        }
    }
}
