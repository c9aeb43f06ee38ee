//! Quality of a decode against its target, as a reader of the written pictures sees it. Takes no model.

use crate::metrics::{mse_to_psnr, ssim};
use crate::model::structure::Structure;
use crate::texture::target::unpad;
use crate::texture::write::to_level;

/// Quality of one texture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Mean squared error over the texture's channels, values in 0..1.
    pub mse: f64,
    /// PSNR in dB; `None` without error.
    pub psnr_db: Option<f64>,
    /// Mean SSIM of the channels; `None` where a side is below 11 texels.
    pub ssim: Option<f64>,
}

/// Measures `decoded` against `target`: planes of the padded extent, one an output. The source extent counts, and what
/// is decoded is first rounded to the textures' depths, as a file holds it.
pub fn measure(structure: &Structure, target: &[Vec<f32>], decoded: &[Vec<f32>]) -> Vec<Quality> {
    let mut next = 0;
    let mut channels = |n: usize| {
        next += n;
        next - n..next
    };
    let quality = |t: &crate::model::structure::TextureInfo| {
        let range = channels(t.channels);
        let pairs = target[range.clone()].iter().zip(&decoded[range]);
        let each: Vec<_> = pairs.map(|(a, b)| channel(structure, a, b, t.depth)).collect();
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / t.channels as f64;
        let mse = mean(&mut each.iter().map(|c| c.0));
        let similar: Option<Vec<f64>> = each.iter().map(|c| c.1).collect();
        Quality { mse, psnr_db: mse_to_psnr(mse), ssim: similar.map(|s| mean(&mut s.into_iter())) }
    };
    structure.textures.iter().map(quality).collect()
}

/// Mean squared error and SSIM of one channel.
fn channel(structure: &Structure, target: &[f32], decoded: &[f32], depth: u32) -> (f64, Option<f64>) {
    let Structure { width, source_width, source_height, .. } = *structure;
    let target = unpad(target, width, source_width, source_height);
    let most = (1u32 << depth) - 1;
    let mut decoded = unpad(decoded, width, source_width, source_height).into_owned();
    decoded.iter_mut().for_each(|x| *x = to_level(*x, most) as f32 / most as f32);
    let square = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).powi(2);
    let mse = target.iter().zip(&decoded).map(square).sum::<f64>() / target.len() as f64;
    (mse, ssim(&target, &decoded, source_width, source_height))
}
