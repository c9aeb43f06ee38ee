//! What a model is fitted to: the channels of all maps over the padded extent.

use std::borrow::Cow;

use super::{MAX_TEXELS, Texture};
use crate::error::{Error, Result};
use crate::model::structure::TextureInfo;

/// Most maps in one material.
pub const MAX_TEXTURES: usize = 8;

/// The maps of one material, padded.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Texels across, padding included.
    pub width: usize,
    /// Texels down, padding included.
    pub height: usize,
    /// Texels across without padding: what figures are about.
    pub source_width: usize,
    /// Texels down without padding.
    pub source_height: usize,
    /// The maps in order.
    pub textures: Vec<TextureInfo>,
    /// `[decoder output of all maps in order][texel of the padded extent]`, in 0..1.
    pub planes: Vec<Vec<f32>>,
    /// Of each map the channel that is rebuilt from others, over the padded extent.
    pub rebuilt: Vec<Option<Vec<f32>>>,
}

impl Target {
    /// Joins 1 to 8 maps of one size, repeating the last column and row up to the padded extent.
    pub fn new(textures: Vec<Texture>, padded_width: usize, padded_height: usize) -> Result<Target> {
        let (source_width, source_height) = common_size(&textures)?;
        if padded_width < source_width || padded_height < source_height {
            return Err(Error::config(format!(
                "padding {source_width}x{source_height} texels to {padded_width}x{padded_height} would cut them"
            )));
        }
        if padded_width.saturating_mul(padded_height) > MAX_TEXELS {
            return Err(Error::config(format!(
                "{padded_width}x{padded_height} texels after padding; at most {MAX_TEXELS} in all can be fitted"
            )));
        }
        let (source, padded) = ((source_width, source_height), (padded_width, padded_height));
        let mut infos = Vec::with_capacity(textures.len());
        let (mut planes, mut rebuilt) = (vec![], vec![]);
        for texture in textures {
            infos.push(texture.info);
            rebuilt.push(texture.rebuilt.map(|plane| pad(plane, source, padded)));
            planes.extend(texture.planes.into_iter().map(|plane| pad(plane, source, padded)));
        }
        let (width, height) = padded;
        Ok(Target { width, height, source_width, source_height, textures: infos, planes, rebuilt })
    }

    /// One channel over the source extent; borrowed where there is no padding.
    pub fn source_plane(&self, channel: usize) -> Cow<'_, [f32]> {
        unpad(&self.planes[channel], self.width, self.source_width, self.source_height)
    }
}

/// The part of a padded plane (`width` texels across) that lies within the source extent, row by row.
pub fn unpad(plane: &[f32], width: usize, source_width: usize, source_height: usize) -> Cow<'_, [f32]> {
    if width == source_width {
        return Cow::Borrowed(&plane[..source_width * source_height]);
    }
    plane.chunks_exact(width).take(source_height).flat_map(|row| row[..source_width].iter().copied()).collect()
}

/// The size that all maps share.
fn common_size(textures: &[Texture]) -> Result<(usize, usize)> {
    let Some(first) = textures.first() else {
        return Err(Error::config("no image is named; 1 to 8 maps make a material"));
    };
    if textures.len() > MAX_TEXTURES {
        return Err(Error::config(format!("{} images are named; at most {MAX_TEXTURES} make one", textures.len())));
    }
    match textures.iter().find(|t| (t.width, t.height) != (first.width, first.height)) {
        None => Ok((first.width, first.height)),
        Some(other) => Err(Error::config(format!(
            "{} is {}x{} texels but {} is {}x{}; all maps of a material must have one size",
            first.file_name, first.width, first.height, other.file_name, other.width, other.height
        ))),
    }
}

/// Repeats the last column and row; a plane that needs none is handed through.
fn pad(plane: Vec<f32>, (width, height): (usize, usize), (padded_width, padded_height): (usize, usize)) -> Vec<f32> {
    if (width, height) == (padded_width, padded_height) {
        return plane;
    }
    let mut padded = Vec::with_capacity(padded_width * padded_height);
    for y in 0..padded_height {
        let start = y.min(height - 1) * width;
        padded.extend_from_slice(&plane[start..start + width]);
        padded.resize((y + 1) * padded_width, plane[start + width - 1]);
    }
    padded
}

#[cfg(test)]
mod tests {
    use super::super::tests::numbered;
    use super::*;

    #[test]
    fn padding_repeats_the_last_column_and_row() {
        let target = Target::new(vec![numbered(3, 2, 1)], 4, 4).unwrap();
        let expected = [[0., 1., 2., 2.], [1000., 1001., 1002., 1002.]];
        assert_eq!(target.planes, [[expected[0], expected[1], expected[1], expected[1]].concat()]);
        assert_eq!((target.width, target.height, target.source_width, target.source_height), (4, 4, 3, 2));
        assert_eq!(target.source_plane(0), [0., 1., 2., 1000., 1001., 1002.].as_slice());
        let taller = Target::new(vec![numbered(1, 1, 1)], 1, 3).unwrap();
        assert_eq!(taller.planes, [[0.0; 3]]);
        assert_eq!(taller.source_plane(0), [0.0].as_slice());
    }

    #[test]
    fn planes_without_padding_are_moved() {
        let textures = vec![numbered(4, 4, 3), numbered(4, 4, 1)];
        let before: Vec<_> = textures.iter().flat_map(|t| t.planes.iter().map(|p| p.as_ptr())).collect();
        let target = Target::new(textures, 4, 4).unwrap();
        assert_eq!(target.planes.iter().map(|p| p.as_ptr()).collect::<Vec<_>>(), before);
        assert_eq!(target.textures.iter().map(|t| t.channels).collect::<Vec<_>>(), [3, 1]);
        assert!(matches!(target.source_plane(3), Cow::Borrowed(_)));
    }

    #[test]
    fn maps_that_do_not_fit_are_refused() {
        let line = |textures, w, h| Target::new(textures, w, h).unwrap_err().to_string();
        let sizes = line(vec![numbered(4, 4, 1), numbered(4, 5, 1)], 4, 8);
        assert_eq!(sizes, "n4x4.png is 4x4 texels but n4x5.png is 4x5; all maps of a material must have one size");
        assert!(line(vec![], 4, 4).contains("1 to 8"));
        assert!(line((0..9).map(|_| numbered(1, 1, 1)).collect(), 1, 1).contains("at most 8"));
        assert!(line(vec![numbered(4, 4, 1)], 3, 4).contains("cut"));
        assert!(line(vec![numbered(4, 4, 1)], 1 << 14, 1 << 13).contains("67108864"));
    }
}
