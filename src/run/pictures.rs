//! The pictures of a run (SPEC section 6), over the source extent.

use super::folder::{Folder, picture_name};
use crate::error::Result;
use crate::model::structure::{Level, Parameters, Structure, TextureInfo};
use crate::texture::Target;
use crate::texture::target::unpad;
use crate::texture::write::{side_by_side, write_png};
use std::borrow::Cow;
use std::path::Path;

/// Planes of the padded extent, one a decoder output, as the pictures of the textures show them.
pub struct Views<'a> {
    structure: &'a Structure,
    /// \[output]\[texel of the source].
    planes: Vec<Cow<'a, [f32]>>,
    /// The third channel of each texture's normals, where the source is shown.
    rebuilt: Vec<Option<Cow<'a, [f32]>>>,
}

impl<'a> Views<'a> {
    /// The source extent of `planes`.
    pub fn new(structure: &'a Structure, planes: &'a [Vec<f32>]) -> Self {
        let Structure { width, source_width, source_height, .. } = *structure;
        let planes = planes.iter().map(|p| unpad(p, width, source_width, source_height)).collect();
        Views { structure, planes, rebuilt: vec![] }
    }

    /// The source as it is.
    pub fn of_target(structure: &'a Structure, target: &'a Target) -> Self {
        let Structure { width, source_width, source_height, .. } = *structure;
        let cut = |p: &'a Option<Vec<f32>>| p.as_ref().map(|p| unpad(p, width, source_width, source_height));
        Views { rebuilt: target.rebuilt.iter().map(cut).collect(), ..Views::new(structure, &target.planes) }
    }

    /// The written channels of texture `k`.
    pub fn texture(&self, k: usize) -> Vec<Cow<'_, [f32]>> {
        let Structure { ref textures, source_width, source_height, .. } = *self.structure;
        let first: usize = textures[..k].iter().map(TextureInfo::outputs).sum();
        let outputs: Vec<_> = self.planes[first..first + textures[k].outputs()].iter().map(|p| &p[..]).collect();
        let third = self.rebuilt.get(k).and_then(Option::as_deref);
        textures[k].written(&outputs, third, source_width * source_height)
    }

    /// Writes texture `k` at its own depth.
    pub fn write_texture(&self, path: &Path, k: usize) -> Result<()> {
        let Structure { source_width, source_height, .. } = *self.structure;
        write_png(path, source_width, source_height, self.structure.textures[k].depth, &slices(&self.texture(k)))
    }

    /// Writes one picture a texture, named by `kind`.
    pub fn write_all(&self, folder: &Folder, kind: &str) -> Result<()> {
        let count = self.structure.textures.len();
        (0..count).try_for_each(|k| self.write_texture(&folder.file(&picture_name(kind, k, count)), k))
    }
}

fn slices<'a>(planes: &'a [Cow<'_, [f32]>]) -> Vec<&'a [f32]> {
    planes.iter().map(|plane| &plane[..]).collect()
}

/// Writes target and reconstruction next to each other, one picture a texture.
pub fn write_side_by_side(folder: &Folder, target: &Views, decoded: &Views) -> Result<()> {
    let Structure { source_width, source_height, ref textures, .. } = *target.structure;
    for (k, texture) in textures.iter().enumerate() {
        let (left, right) = (target.texture(k), decoded.texture(k));
        let joined: Vec<_> = left.iter().zip(&right).map(|(l, r)| side_by_side(source_width, &[l, r])).collect();
        let planes: Vec<&[f32]> = joined.iter().map(Vec::as_slice).collect();
        let path = folder.file(&picture_name("side_by_side", k, textures.len()));
        write_png(&path, 2 * source_width, source_height, texture.depth, &planes)?;
    }
    Ok(())
}

/// Writes each level as 8-bit grey, its channels side by side.
pub fn write_latents(folder: &Folder, structure: &Structure, parameters: &Parameters, iteration: usize) -> Result<()> {
    for ((level, values), kind) in structure.levels.iter().zip(&parameters.levels).zip(["latent", "latent2"]) {
        let path = folder.file(&format!("{kind}_{iteration:06}.png"));
        write_png(&path, level.width * level.channels, level.height, 8, &[&latent_picture(level, values)])?;
    }
    Ok(())
}

/// z/3 + 1/2, channel by channel from left to right; writing clamps it.
fn latent_picture(level: &Level, values: &[f32]) -> Vec<f32> {
    let mut picture = Vec::with_capacity(values.len());
    for row in values.chunks_exact(level.width * level.channels) {
        for channel in 0..level.channels {
            picture.extend(row.iter().skip(channel).step_by(level.channels).map(|z| z / 3.0 + 0.5));
        }
    }
    picture
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::structure::Filter;

    #[test]
    fn latent_channels_stand_side_by_side() {
        let level =
            Level { width: 2, height: 2, channels: 2, filter: Filter::Nearest, selector_bits: vec![], grid_bits: None };
        let picture = latent_picture(&level, &[0.0, 1.5, 3.0, 4.5, 6.0, 7.5, 9.0, 10.5]);
        assert_eq!(picture, [0.5, 1.5, 1.0, 2.0, 2.5, 3.5, 3.0, 4.0]);
    }
}
