//! Image files to planes of f32 in 0..1 and back: reading, cropping, padding, writing, and the bundled material.

mod channels;
pub mod jpeg;
mod ktx2;
pub mod load;
pub mod roles;
pub mod synth;
pub mod target;
pub mod write;

pub use load::{decode, load};
pub use target::Target;

use crate::error::{Error, Result};
use crate::model::structure::{Channels, TextureInfo};
use image::imageops::{self, FilterType};
use image::{ImageBuffer, Luma};

/// Most texels across or down that a texture may have.
pub const MAX_SIDE: usize = 32768;
/// Most texels that a texture may have: sums of losses are exact in i64 up to here.
pub const MAX_TEXELS: usize = 1 << 26;

/// One map of a material, as read from its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Texture {
    /// Name, channels and depth, as a model stores them.
    pub info: TextureInfo,
    /// Base name of the source file, extension included.
    pub file_name: String,
    /// CRC-32 (IEEE) of the source file's bytes.
    pub crc32: u32,
    /// Texels across.
    pub width: usize,
    /// Texels down.
    pub height: usize,
    /// `[channel][texel]`, row by row, in 0..1: a sample divided by 255 or 65535, no gamma.
    pub planes: Vec<Vec<f32>>,
    /// Channels that the picture is written with where planes may be left out; `None` = as the planes are.
    pub written: Option<usize>,
    /// The channel that is rebuilt from others, for measuring.
    pub rebuilt: Option<Vec<f32>>,
    /// What a user should know about the reading, one sentence each, e.g. that alpha was dropped.
    pub notes: Vec<String>,
}

impl Texture {
    /// Keeps the middle: each side becomes min(side, `n`), from offset floor((side - new) / 2). 0 keeps everything.
    pub fn centre_crop(&mut self, n: usize) {
        if n == 0 || (self.width <= n && self.height <= n) {
            return;
        }
        let (width, height) = (self.width.min(n), self.height.min(n));
        let (left, top) = ((self.width - width) / 2, (self.height - height) / 2);
        for plane in &mut self.planes {
            let rows = (top..top + height).map(|y| y * self.width + left);
            *plane = rows.flat_map(|start| plane[start..start + width].iter().copied()).collect();
        }
        (self.width, self.height) = (width, height);
    }

    /// Resamples to `width` x `height` texels by the Catmull-Rom cubic, widened where it shrinks. Says so in the notes.
    ///
    /// # Errors
    /// Other proportions.
    pub fn resize(&mut self, width: usize, height: usize) -> Result<()> {
        let old = (self.width, self.height);
        if old == (width, height) {
            return Ok(());
        }
        if old.0 * height != old.1 * width {
            return Err(Error::config(format!(
                "--resize-to: {} is {}x{} texels; {width}x{height} has other proportions",
                self.file_name, old.0, old.1
            )));
        }
        for plane in &mut self.planes {
            // Sides are below 2^15 and each plane has the size that it says.
            let picture = ImageBuffer::<Luma<f32>, _>::from_raw(old.0 as u32, old.1 as u32, std::mem::take(plane));
            let Some(picture) = picture else { continue };
            *plane = imageops::resize(&picture, width as u32, height as u32, FilterType::CatmullRom).into_raw();
        }
        (self.width, self.height) = (width, height);
        self.notes.push(format!("{}x{} resampled to {width}x{height} (Catmull-Rom)", old.0, old.1));
        Ok(())
    }
}

/// The four files of data/, in the order normal, roughness, albedo, ambient occlusion.
const BUNDLED: [(&str, &[u8]); 4] = [
    ("m1.png", include_bytes!("../../data/m1.png")),
    ("m2.png", include_bytes!("../../data/m2.png")),
    ("m3.png", include_bytes!("../../data/m3.png")),
    ("m4.png", include_bytes!("../../data/m4.png")),
];

/// The bundled cobblestone (see data/README.md): what a run works on where no image is named. 512x512 texels, 8 bits.
pub fn bundled() -> Result<Vec<Texture>> {
    BUNDLED.iter().map(|(name, bytes)| decode(bytes, name.as_ref(), Channels::Auto)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A texture whose texel (x, y) of channel c is c * 1e6 + y * 1000 + x.
    pub(crate) fn numbered(width: usize, height: usize, channels: usize) -> Texture {
        let plane = |c: usize| {
            let texel = |i: usize| (c * 1_000_000 + i / width * 1000 + i % width) as f32;
            (0..width * height).map(texel).collect()
        };
        Texture {
            info: TextureInfo { name: "n".into(), channels, depth: 8, role: None, sources: vec![] },
            file_name: format!("n{width}x{height}.png"),
            crc32: 0,
            width,
            height,
            planes: (0..channels).map(plane).collect(),
            written: None,
            rebuilt: None,
            notes: vec![],
        }
    }

    /// Size after cropping and the number of the first texel.
    fn cropped(width: usize, height: usize, n: usize) -> (usize, usize, f32, f32) {
        let mut texture = numbered(width, height, 2);
        texture.centre_crop(n);
        let (first, last) = (texture.planes[0][0], texture.planes[1][texture.width * texture.height - 1]);
        assert!(texture.planes.iter().all(|p| p.len() == texture.width * texture.height));
        (texture.width, texture.height, first, last - 1_000_000.0)
    }

    #[test]
    fn crop_offsets_round_down() {
        assert_eq!(cropped(768, 512, 512), (512, 512, 128.0, 511_639.0)); // x = 128..640, y = 0..512
        assert_eq!(cropped(7, 5, 4), (4, 4, 1.0, 3004.0)); // x = floor(3/2) = 1..5, y = floor(1/2) = 0..4
        assert_eq!(cropped(5, 8, 3), (3, 3, 2001.0, 4003.0)); // x = 1..4, y = floor(5/2) = 2..5
        assert_eq!(cropped(9, 3, 4), (4, 3, 2.0, 2005.0)); // the short side stays
        assert_eq!(cropped(6, 4, 1), (1, 1, 1002.0, 1002.0)); // x = floor(5/2) = 2, y = floor(3/2) = 1
    }

    #[test]
    fn nothing_to_crop_changes_nothing() {
        for n in [0, 6, 100] {
            assert_eq!(cropped(6, 4, n), (6, 4, 0.0, 3005.0));
        }
    }

    #[test]
    fn resampling_keeps_means_and_refuses_other_proportions() {
        let mut texture = numbered(8, 4, 2);
        // A ramp in 0..1, and a constant.
        texture.planes = vec![(0..32).map(|i| (i % 8) as f32 / 7.0).collect(), vec![0.25; 32]];
        let mut larger = texture.clone();
        larger.resize(16, 8).unwrap();
        assert_eq!((larger.width, larger.height, larger.planes[0].len()), (16, 8, 128));
        // Inside, a cubic of this kind reproduces a ramp: texel 7 of 16 lies at (7.5 / 2 - 0.5) = 3.25 of 8.
        assert!((larger.planes[0][16 * 4 + 7] - 3.25 / 7.0).abs() < 1e-5, "{}", larger.planes[0][16 * 4 + 7]);
        assert!(larger.planes[1].iter().all(|x| (x - 0.25).abs() < 1e-6));
        assert!(larger.planes[0].iter().all(|x| (0.0..=1.0).contains(x)));
        assert_eq!(larger.notes, ["8x4 resampled to 16x8 (Catmull-Rom)"]);
        let mut smaller = texture.clone();
        smaller.resize(4, 2).unwrap();
        let mean: f32 = smaller.planes[0].iter().sum::<f32>() / 8.0;
        assert!((mean - 0.5).abs() < 1e-5, "{mean}");
        let mut same = texture.clone();
        same.resize(8, 4).unwrap();
        assert_eq!(same, texture);
        assert!(texture.resize(8, 8).unwrap_err().to_string().contains("8x4 texels; 8x8 has other proportions"));
    }

    #[test]
    fn the_bundled_material_has_four_maps_of_one_size() {
        let textures = bundled().unwrap();
        let shapes: Vec<_> = textures.iter().map(|t| (t.file_name.as_str(), t.info.channels, t.width)).collect();
        assert_eq!(shapes, [("m1.png", 3, 512), ("m2.png", 1, 512), ("m3.png", 3, 512), ("m4.png", 1, 512)]);
        assert!(textures.iter().all(|t| t.notes.is_empty() && t.info.depth == 8 && t.height == 512));
    }

    #[test]
    fn the_bundled_material_is_the_documented_one() {
        let readme = include_str!("../../data/README.md");
        for (texture, (name, bytes)) in bundled().unwrap().iter().zip(BUNDLED) {
            let end = format!("| {} | {:08x} |", bytes.len(), texture.crc32);
            let documented = readme.lines().any(|l| l.starts_with(&format!("| {name} ")) && l.ends_with(&end));
            assert!(documented, "data/README.md: {name} is {end}");
        }
    }
}
