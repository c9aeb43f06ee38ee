//! Planes of f32 to PNG files.

use std::io::{self, Write};
use std::path::Path;

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder};

use crate::error::{Error, Result};
use crate::files::write_atomic;

/// The integer that a value in 0..1 is written as: clamped, times `max` (255 or 65535), rounded half away from zero.
/// NaN gives 0.
pub fn to_level(x: f32, max: u32) -> u32 {
    let clamped = if x >= 1.0 {
        1.0
    } else if x > 0.0 {
        x
    } else {
        0.0 // NaN too
    };
    let scaled = clamped * max as f32;
    let whole = scaled.trunc();
    whole as u32 + u32::from(scaled - whole >= 0.5)
}

/// Writes one picture: grey, grey and alpha, RGB or RGBA by the number of planes.
///
/// `planes` are `[channel][texel]` in 0..1, each `width * height` long; `depth` is 8 or 16 bits a sample. The file appears
/// whole or not at all. Compression is the fast kind: pictures are written during runs.
pub fn write_png(path: &Path, width: usize, height: usize, depth: u32, planes: &[&[f32]]) -> Result<()> {
    use ExtendedColorType::{L8, L16, La8, La16, Rgb8, Rgb16, Rgba8, Rgba16};
    let color = match (planes.len(), depth) {
        (1, 8) => L8,
        (2, 8) => La8,
        (3, 8) => Rgb8,
        (4, 8) => Rgba8,
        (1, 16) => L16,
        (2, 16) => La16,
        (3, 16) => Rgb16,
        (4, 16) => Rgba16,
        (n, d) => return Err(Error::file(path, format!("a picture of {n} planes with {d} bits cannot be written"))),
    };
    let fits = |side: usize| u32::try_from(side).ok().filter(|&s| s > 0 && s < 1 << 31);
    let (Some(across), Some(down)) = (fits(width), fits(height)) else {
        return Err(Error::file(path, format!("a picture of {width}x{height} texels cannot be written as PNG")));
    };
    if let Some(plane) = planes.iter().find(|p| p.len() != width * height) {
        let length = plane.len();
        return Err(Error::file(path, format!("a plane of {length} values is no picture of {width}x{height} texels")));
    }
    let samples = interleave(depth, planes);
    write_atomic(path, |w: &mut dyn Write| {
        let encoder = PngEncoder::new_with_quality(w, CompressionType::Fast, FilterType::Adaptive);
        encoder.write_image(&samples, across, down, color).map_err(io::Error::other)
    })
}

/// Samples [texel][channel]: bytes, or pairs of bytes in native order, which the encoder turns.
fn interleave(depth: u32, planes: &[&[f32]]) -> Vec<u8> {
    let texels = planes[0].len();
    let mut samples = Vec::with_capacity(texels * planes.len() * (depth / 8) as usize);
    for texel in 0..texels {
        for plane in planes {
            if depth == 8 {
                samples.push(to_level(plane[texel], 255) as u8);
            } else {
                samples.extend((to_level(plane[texel], 65535) as u16).to_ne_bytes());
            }
        }
    }
    samples
}

/// Joins planes of one size left to right, e.g. one channel of target and reconstruction: `pictures.len() * width` across.
pub fn side_by_side(width: usize, pictures: &[&[f32]]) -> Vec<f32> {
    let rows = pictures.iter().map(|p| p.len() / width.max(1)).min().unwrap_or(0);
    let row = |y: usize| pictures.iter().flat_map(move |p| &p[y * width..(y + 1) * width]);
    (0..rows).flat_map(row).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::structure::Channels;
    use crate::texture::load;

    #[test]
    fn levels_round_half_up_and_clamp() {
        // 0.5 * 255 = 127.5 and 0.5 * 65535 = 32767.5 exactly: away from zero.
        assert_eq!((to_level(0.5, 255), to_level(0.5, 65535)), (128, 32768));
        // 0.5 / 1 at max 1, and the value just below.
        assert_eq!((to_level(0.5, 1), to_level(0.5f32.next_down(), 1)), (1, 0));
        // 3/8 * 4 = 1.5, 5/8 * 4 = 2.5: halves away from zero, not to even.
        assert_eq!((to_level(0.375, 4), to_level(0.625, 4)), (2, 3));
        for (x, level) in [(f32::NAN, 0), (f32::NEG_INFINITY, 0), (-0.0, 0), (-3.0, 0), (1.5, 255)] {
            assert_eq!(to_level(x, 255), level, "{x}");
        }
        assert_eq!(to_level(f32::INFINITY, 65535), 65535);
    }

    #[test]
    fn every_level_survives_the_planes() {
        assert!((0..=255).all(|v| to_level(v as f32 / 255.0, 255) == v));
        assert!((0..=65535).all(|v| to_level(v as f32 / 65535.0, 65535) == v));
    }

    #[test]
    fn pictures_read_back_to_their_levels() {
        let folder = tempfile::tempdir().unwrap();
        for (depth, max) in [(8, 255u32), (16, 65535)] {
            for channels in 1..=4usize {
                let path = folder.path().join(format!("{depth}_{channels}.png"));
                let level = |c: usize, i: usize| (i as u32 * 7919 + c as u32 * 104_729) % (max + 1);
                let plane = |c| (0..35).map(|i| level(c, i) as f32 / max as f32).collect::<Vec<_>>();
                let planes: Vec<_> = (0..channels).map(plane).collect();
                let slices: Vec<_> = planes.iter().map(Vec::as_slice).collect();
                write_png(&path, 7, 5, depth, &slices).unwrap();
                let read = load(&path, Channels::Alpha).unwrap();
                assert_eq!((read.width, read.height, read.info.depth), (7, 5, depth));
                assert_eq!(read.planes, planes);
            }
        }
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.png");
        let line = |w, h, d, planes: &[&[f32]]| write_png(&path, w, h, d, planes).unwrap_err().to_string();
        assert!(line(1, 1, 8, &[]).contains("0 planes"));
        assert!(line(1, 1, 12, &[&[0.0]]).contains("12 bits"));
        assert!(line(2, 1, 8, &[&[0.0]]).contains("plane of 1 values"));
        assert!(line(0, 1, 8, &[&[]]).contains("0x1"));
        assert!(!path.exists());
    }

    #[test]
    fn pictures_stand_side_by_side() {
        assert_eq!(side_by_side(2, &[&[1., 2., 5., 6.], &[3., 4., 7., 8.]]), [1., 2., 3., 4., 5., 6., 7., 8.]);
        assert!(side_by_side(0, &[]).is_empty());
    }
}
