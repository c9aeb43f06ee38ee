//! Quality of a decode against its target, as a reader of the written pictures sees it. Takes no model.

use crate::metrics::{mse_to_psnr, ssim};
use crate::model::structure::{Structure, TextureInfo};
use crate::texture::target::unpad;
use crate::texture::write::to_level;
use std::borrow::Cow;

/// Quality of one texture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Mean squared error over the texture's channels, values in 0..1.
    pub mse: f64,
    /// PSNR in dB; `None` without error.
    pub psnr_db: Option<f64>,
    /// Mean SSIM of the channels; `None` where a side is below 11 texels.
    pub ssim: Option<f64>,
    /// Mean and 99th percentile of the angle between normals, in degrees; `None` for other maps.
    pub angles: Option<(f64, f64)>,
}

/// Measures `decoded` against `target`: planes of the padded extent, one an output. `rebuilt` has the source's channels
/// that are rebuilt from outputs, one entry a texture. The written channels of the source extent count, and what is decoded
/// is first rounded to the textures' depths, as a file holds it.
pub fn measure(
    structure: &Structure,
    target: &[Vec<f32>],
    rebuilt: &[Option<Vec<f32>>],
    decoded: &[Vec<f32>],
) -> Vec<Quality> {
    let mut next = 0;
    let mut quality = |(k, t): (usize, &TextureInfo)| {
        let range = next..next + t.outputs();
        next = range.end;
        let third = rebuilt.get(k).and_then(Option::as_deref);
        let target = t.written(&slices(&target[range.clone()]), third, structure.texels());
        let decoded = t.written(&slices(&decoded[range]), None, structure.texels());
        let cut = |planes: &[Cow<'_, [f32]>]| -> Vec<Vec<f32>> {
            let Structure { width, source_width, source_height, .. } = *structure;
            planes.iter().map(|plane| unpad(plane, width, source_width, source_height).into_owned()).collect()
        };
        let (target, mut decoded) = (cut(&target), cut(&decoded));
        let most = (1u32 << t.depth) - 1;
        decoded.iter_mut().flatten().for_each(|x| *x = to_level(*x, most) as f32 / most as f32);
        let each: Vec<_> = target.iter().zip(&decoded).map(|(a, b)| channel(structure, a, b)).collect();
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / t.channels as f64;
        let mse = mean(&mut each.iter().map(|c| c.0));
        let similar: Option<Vec<f64>> = each.iter().map(|c| c.1).collect();
        Quality {
            mse,
            psnr_db: mse_to_psnr(mse),
            ssim: similar.map(|s| mean(&mut s.into_iter())),
            angles: t.is_normal().then(|| angles(&target, &decoded)),
        }
    };
    structure.textures.iter().enumerate().map(&mut quality).collect()
}

fn slices(planes: &[Vec<f32>]) -> Vec<&[f32]> {
    planes.iter().map(Vec::as_slice).collect()
}

/// Mean and 99th percentile (nearest rank) of the angles between normals, in degrees.
fn angles(target: &[Vec<f32>], decoded: &[Vec<f32>]) -> (f64, f64) {
    let normal = |planes: &[Vec<f32>], i: usize| [0, 1, 2].map(|c| 2.0 * f64::from(planes[c][i]) - 1.0);
    let texels = target[0].len();
    let mut each: Vec<f64> = (0..texels).map(|i| angle(normal(target, i), normal(decoded, i))).collect();
    each.sort_unstable_by(f64::total_cmp);
    let rank = (texels * 99).div_ceil(100).max(1) - 1;
    (each.iter().sum::<f64>() / texels as f64, each[rank])
}

/// The angle between two vectors in degrees; by sine and cosine, which is right for small ones too.
fn angle(a: [f64; 3], b: [f64; 3]) -> f64 {
    let cross = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
    let dot = a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    cross.iter().map(|x| x * x).sum::<f64>().sqrt().atan2(dot).to_degrees()
}

/// Mean squared error and SSIM of one channel of the source.
fn channel(structure: &Structure, target: &[f32], decoded: &[f32]) -> (f64, Option<f64>) {
    let square = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).powi(2);
    let mse = target.iter().zip(decoded).map(square).sum::<f64>() / target.len() as f64;
    (mse, ssim(target, decoded, structure.source_width, structure.source_height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_by_hand() {
        assert!((angle([0.0, 0.0, 1.0], [0.0, 1.0, 1.0]) - 45.0).abs() < 1e-12);
        assert!((angle([1.0, 0.0, 0.0], [-2.0, 0.0, 0.0]) - 180.0).abs() < 1e-12);
        assert_eq!(angle([0.0, 0.0, 0.5], [0.0, 0.0, 1.0]), 0.0);
        // 199 texels straight up, one off by 90 degrees: rank 198 of 200 is still 0.
        let flat = |v: f32| vec![v; 200];
        let target = [flat(0.5), flat(0.5), flat(1.0)];
        let mut decoded = target.clone();
        (decoded[0][7], decoded[2][7]) = (1.0, 0.5);
        assert_eq!(angles(&target, &decoded), (90.0 / 200.0, 0.0));
        (decoded[0][8], decoded[2][8]) = (1.0, 0.5);
        (decoded[0][9], decoded[2][9]) = (1.0, 0.5);
        assert_eq!(angles(&target, &decoded).1, 90.0);
    }
}
