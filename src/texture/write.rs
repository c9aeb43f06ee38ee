//! Planes of f32 to files of samples.

use crate::error::{Error, Result};
use crate::files::{Pending, Sink, write_atomic};
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

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
    let samples = interleave(depth, cfg!(target_endian = "big"), planes);
    write_atomic(path, |w: &mut dyn Write| {
        let encoder = PngEncoder::new_with_quality(w, CompressionType::Fast, FilterType::Adaptive);
        encoder.write_image(&samples, across, down, color).map_err(io::Error::other)
    })
}

/// What a file of decoded texels is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// PNG.
    #[default]
    Png,
    /// Nothing but the samples, \[y]\[x]\[channel], 16 bits low byte first.
    Raw,
    /// KTX2 with one level of uncompressed texels.
    Ktx2,
}

impl Format {
    /// The extension of its files.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Png => "png",
            Format::Raw => "raw",
            Format::Ktx2 => "ktx2",
        }
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Format::Png, Format::Raw, Format::Ktx2];
        let found = all.into_iter().find(|format| format.extension() == text);
        found.ok_or_else(|| Error::config(format!("--format {text}: give png, raw or ktx2")))
    }
}

/// Size and samples of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Texels across.
    pub width: usize,
    /// Texels down.
    pub height: usize,
    /// 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA.
    pub channels: usize,
    /// Bits a sample: 8 or 16.
    pub depth: u32,
}

impl Picture {
    fn check(&self, path: &Path) -> Result<()> {
        let Picture { width, height, channels, depth } = *self;
        if !(1..=4).contains(&channels) || ![8, 16].contains(&depth) {
            let message = format!("a picture of {channels} planes with {depth} bits cannot be written");
            return Err(Error::file(path, message));
        }
        if [width, height].iter().any(|&side| !(1..1 << 31).contains(&side)) {
            return Err(Error::file(path, format!("a picture of {width}x{height} texels cannot be written")));
        }
        Ok(())
    }
}

/// A picture that is written a few rows at a time, so that it never is in memory as a whole.
pub struct Rows {
    file: Pending,
    to: To,
    path: PathBuf,
    picture: Picture,
}

enum To {
    Png(Box<png::StreamWriter<'static, Sink>>),
    Plain(Sink),
}

impl Rows {
    /// Begins the file at `path`, which appears with [`Rows::finish`] or not at all.
    ///
    /// # Errors
    /// A picture that cannot be, a folder that cannot be written.
    pub fn create(path: &Path, format: Format, picture: Picture) -> Result<Self> {
        picture.check(path)?;
        let file = Pending::create(path)?;
        let begin = || -> io::Result<To> {
            let mut sink = file.sink();
            match format {
                Format::Png => return Ok(To::Png(Box::new(png_writer(sink, picture)?))),
                Format::Raw => {}
                Format::Ktx2 => sink.write_all(&super::ktx2::header(&picture))?,
            }
            Ok(To::Plain(sink))
        };
        let to = begin().map_err(Error::io(path))?;
        Ok(Rows { file, to, path: path.to_owned(), picture })
    }

    /// Appends the rows in `planes`, `[channel][texel]` in 0..1.
    pub fn put(&mut self, planes: &[&[f32]]) -> Result<()> {
        let (to, big): (&mut dyn Write, bool) = match &mut self.to {
            To::Png(writer) => (writer, true),
            To::Plain(sink) => (sink, false),
        };
        to.write_all(&interleave(self.picture.depth, big, planes)).map_err(Error::io(&self.path))
    }

    /// Ends the file and gives it its name.
    ///
    /// # Errors
    /// Rows that are missing, a full disk.
    pub fn finish(self) -> Result<()> {
        if let To::Png(writer) = self.to {
            writer.finish().map_err(|e| Error::io(&self.path)(e.into()))?;
        }
        self.file.finish()
    }
}

fn png_writer(sink: Sink, picture: Picture) -> io::Result<png::StreamWriter<'static, Sink>> {
    use png::ColorType::{Grayscale, GrayscaleAlpha, Rgb, Rgba};
    let mut encoder = png::Encoder::new(sink, picture.width as u32, picture.height as u32);
    encoder.set_color([Grayscale, GrayscaleAlpha, Rgb, Rgba][picture.channels - 1]);
    encoder.set_depth(if picture.depth == 8 { png::BitDepth::Eight } else { png::BitDepth::Sixteen });
    encoder.set_compression(png::Compression::Fast);
    encoder.set_filter(png::Filter::Adaptive);
    Ok(encoder.write_header()?.into_stream_writer()?)
}

/// Samples \[texel]\[channel]: bytes, or pairs of bytes with the high one first where `big`.
fn interleave(depth: u32, big: bool, planes: &[&[f32]]) -> Vec<u8> {
    let texels = planes.first().map_or(0, |plane| plane.len());
    let mut samples = Vec::with_capacity(texels * planes.len() * (depth / 8) as usize);
    for texel in 0..texels {
        for plane in planes {
            if depth == 8 {
                samples.push(to_level(plane[texel], 255) as u8);
                continue;
            }
            let level = to_level(plane[texel], 65535) as u16;
            samples.extend(if big { level.to_be_bytes() } else { level.to_le_bytes() });
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
    fn rows_in_parts_are_the_same_file_and_missing_ones_leave_none() {
        let folder = tempfile::tempdir().unwrap();
        let plane: Vec<f32> = (0..42).map(|i| (i * 37 % 100) as f32 / 99.0).collect();
        let picture = Picture { width: 7, height: 6, channels: 2, depth: 16 };
        for format in [Format::Png, Format::Raw, Format::Ktx2] {
            let files = [1usize, 4, 6].map(|rows| {
                let path = folder.path().join(format!("{rows}.{}", format.extension()));
                let mut writer = Rows::create(&path, format, picture).unwrap();
                plane.chunks(7 * rows).for_each(|part| writer.put(&[part, part]).unwrap());
                writer.finish().unwrap();
                std::fs::read(path).unwrap()
            });
            if format == Format::Png {
                let read = load(&folder.path().join("4.png"), Channels::Alpha).unwrap();
                assert!((read.planes[1][13] - plane[13]).abs() < 1e-4);
            } else {
                assert!(files[0] == files[1] && files[1] == files[2]);
            }
        }
        let path = folder.path().join("short.png");
        let mut writer = Rows::create(&path, Format::Png, picture).unwrap();
        writer.put(&[&plane[..7], &plane[..7]]).unwrap();
        assert!(writer.finish().is_err() && !path.exists());
    }

    #[test]
    fn another_reader_finds_the_texels_of_ktx2() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.ktx2");
        let plane: Vec<f32> = (0..6).map(|i| i as f32 / 5.0).collect();
        for depth in [8, 16] {
            for channels in 1..=4 {
                let mut writer =
                    Rows::create(&path, Format::Ktx2, Picture { width: 3, height: 2, channels, depth }).unwrap();
                writer.put(&vec![plane.as_slice(); channels]).unwrap();
                writer.finish().unwrap();
                let bytes = std::fs::read(&path).unwrap();
                let reader = ktx2::Reader::new(bytes.as_slice()).unwrap();
                let header = reader.header();
                assert_eq!((header.pixel_width, header.pixel_height, header.type_size), (3, 2, depth / 8));
                let format = format!("{:?}", header.format.unwrap());
                let name = ["R", "R_G", "R_G_B", "R_G_B_A"][channels - 1];
                let name: String = name.split('_').map(|c| format!("{c}{depth}")).collect();
                assert!(format.replace('_', "").starts_with(&format!("{name}UNORM")), "{format} {name}");
                let texels = reader.levels().next().unwrap().data;
                assert!(texels == interleave(depth, false, &vec![plane.as_slice(); channels]));
                let ktx2::dfd::Block::Basic(block) = &reader.dfd_blocks()[0] else { panic!("no basic block") };
                assert_eq!(block.sample_information.len(), channels);
                assert!(block.sample_information.iter().all(|s| s.bit_length.get() == depth as u8), "{block:?}");
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
