//! The only reader of images: bytes of a file to planes of f32.

use std::io::Cursor;
use std::path::Path;

use image::codecs::{png::PngDecoder, webp::WebPDecoder};
use image::metadata::Orientation;
use image::{ColorType, ExtendedColorType, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::{MAX_SIDE, MAX_TEXELS, Texture, jpeg};
use crate::error::{Error, Result};
use crate::files;
use crate::model::structure::{Channels, TextureInfo};

/// Bytes that one decoder may allocate: four 16-bit channels at [`MAX_TEXELS`] and as much again for its own buffers.
const MAX_ALLOC: u64 = 16 * MAX_TEXELS as u64;

/// Characters of a decoder's message that are passed on.
const MAX_MESSAGE: usize = 160;

/// What is read, for messages.
const READ_FORMATS: &str = "PNG, JPEG, TGA, BMP, TIFF or WebP";

/// Reads one image file.
///
/// The content decides the format; the extension only where the content has no mark of its own (TGA). A sample becomes
/// value / 255, or value / 65535 for 16-bit files. An error is one line that names the file.
pub fn load(path: &Path, channels: Channels) -> Result<Texture> {
    let bytes = files::read_all(path)?;
    let samples = decode_samples(&bytes, path)?;
    let crc32 = crc32fast::hash(&bytes);
    drop(bytes); // before the planes are made: they are the larger half
    Ok(into_texture(samples, path, crc32, channels))
}

/// As [`load`], from the bytes of a file; `path` serves the extension, the names and the messages.
pub fn decode(bytes: &[u8], path: &Path, channels: Channels) -> Result<Texture> {
    let samples = decode_samples(bytes, path)?;
    Ok(into_texture(samples, path, crc32fast::hash(bytes), channels))
}

/// Decoded integers, as the file holds them.
struct Samples {
    width: usize,
    height: usize,
    /// 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA.
    channels: usize,
    /// 8 or 16.
    depth: u32,
    /// [texel][channel], one byte a sample, or two in native order.
    bytes: Vec<u8>,
    notes: Vec<String>,
}

fn decode_samples(bytes: &[u8], path: &Path) -> Result<Samples> {
    let fail = |message: String| Error::file(path, message);
    let format = format_of(bytes, path)?;
    let mut notes = Vec::new();
    if format == ImageFormat::Jpeg {
        check_jpeg(bytes, &mut notes).map_err(fail)?;
    }
    if has_more_pages(bytes) {
        notes.push("only the first page of the TIFF file is read".into());
    }
    let mut decoder = open(bytes, format).map_err(|e| fail(one_line(&e)))?;
    let (width, height) = decoder.dimensions();
    let (width, height) = (width as usize, height as usize);
    check_size(width, height).map_err(fail)?;
    let (channels, depth) = layout(decoder.color_type()).map_err(fail)?;
    if matches!(decoder.original_color_type(), ExtendedColorType::Cmyk8 | ExtendedColorType::Cmyk16) {
        notes.push(cmyk_note());
    }
    // A broken orientation tag is no reason to refuse the texels.
    if decoder.orientation().is_ok_and(|o| o != Orientation::NoTransforms) {
        notes.push("the orientation tag is not applied; texels are read in file order".into());
    }
    let length = width * height * channels * (depth / 8) as usize;
    if decoder.total_bytes() != length as u64 {
        return Err(fail(format!("holds {} bytes of samples; {length} were expected", decoder.total_bytes())));
    }
    let mut samples = vec![0; length];
    decoder.read_image_boxed(&mut samples).map_err(|e| fail(one_line(&e)))?;
    Ok(Samples { width, height, channels, depth, bytes: samples, notes })
}

/// The format by content, else by extension.
fn format_of(bytes: &[u8], path: &Path) -> Result<ImageFormat> {
    use ImageFormat::{Bmp, Jpeg, Png, Tga, Tiff, WebP};
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let by_extension = || (extension == "tga").then_some(Tga);
    let big_tiff = (bytes.starts_with(b"II+\0") || bytes.starts_with(b"MM\0+")).then_some(Tiff);
    match image::guess_format(bytes).ok().or(big_tiff).or_else(by_extension) {
        Some(format @ (Png | Jpeg | Tga | Bmp | Tiff | WebP)) => Ok(format),
        Some(other) => Err(Error::file(path, format!("{} is not read; convert it to PNG", name_of(other)))),
        None => Err(Error::file(path, format!("is not a {READ_FORMATS} file: its first bytes belong to none of them"))),
    }
}

fn name_of(format: ImageFormat) -> String {
    match format {
        ImageFormat::OpenExr => "EXR (OpenEXR)".into(),
        ImageFormat::Hdr => "HDR (Radiance)".into(),
        other => format!("{other:?}").to_uppercase(),
    }
}

/// Refuses what the JPEG decoder would read wrongly without a word, and notes colour spaces that are converted.
fn check_jpeg(bytes: &[u8], notes: &mut Vec<String>) -> std::result::Result<(), String> {
    let outline = jpeg::outline(bytes);
    if !outline.complete {
        return Err("the JPEG data is cut short: it has no end marker".into());
    }
    if outline.precision != 8 {
        return Err(format!("JPEG with {} bits a sample is not read; convert it to PNG", outline.precision));
    }
    if outline.components == 4 {
        notes.push(cmyk_note());
    }
    Ok(())
}

fn cmyk_note() -> String {
    "CMYK is converted to RGB without a colour profile".into()
}

/// A decoder that has read the header, within limits.
fn open<'a>(bytes: &'a [u8], format: ImageFormat) -> image::ImageResult<Box<dyn ImageDecoder + 'a>> {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_ALLOC);
    let cursor = Cursor::new(bytes);
    let animated = |name: &str| {
        let text = format!("animated {name} is not read; save one frame as a still picture");
        Err(image::ImageError::IoError(std::io::Error::other(text)))
    };
    match format {
        ImageFormat::Png => match PngDecoder::with_limits(cursor, limits)? {
            decoder if decoder.is_apng()? => animated("PNG"),
            decoder => Ok(Box::new(decoder)),
        },
        ImageFormat::WebP => match WebPDecoder::new(cursor)? {
            decoder if decoder.has_animation() => animated("WebP"),
            decoder => Ok(Box::new(decoder)),
        },
        _ => {
            let mut reader = ImageReader::with_format(cursor, format);
            reader.limits(limits);
            Ok(Box::new(reader.into_decoder()?))
        }
    }
}

/// Refuses a size before anything is allocated for it.
fn check_size(width: usize, height: usize) -> std::result::Result<(), String> {
    if width == 0 || height == 0 {
        return Err(format!("is {width}x{height} texels; each side must be at least 1"));
    }
    if width > MAX_SIDE || height > MAX_SIDE {
        return Err(format!("is {width}x{height} texels; a side may have at most {MAX_SIDE}"));
    }
    if width * height > MAX_TEXELS {
        return Err(format!("is {width}x{height} texels; at most {MAX_TEXELS} in all are read"));
    }
    Ok(())
}

/// Channels and bits per sample of a decoder's output.
fn layout(color: ColorType) -> std::result::Result<(usize, u32), String> {
    match color {
        ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8 => Ok((color.channel_count().into(), 8)),
        ColorType::L16 | ColorType::La16 | ColorType::Rgb16 | ColorType::Rgba16 => {
            Ok((color.channel_count().into(), 16))
        }
        _ => Err("floating-point samples are not read; convert it to a 16-bit PNG or TIFF".into()),
    }
}

/// A decoder's message on one line, with the way out where the file is only of a rare kind.
fn one_line(error: &image::ImageError) -> String {
    let mut line = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > MAX_MESSAGE {
        line = line.chars().take(MAX_MESSAGE).chain("...".chars()).collect(); // some list a damaged file's numbers
    }
    match error {
        image::ImageError::Unsupported(_) => format!("{line}; convert it to an 8- or 16-bit PNG"),
        _ => line,
    }
}

/// Whether a classic TIFF file's first directory points to a second one.
fn has_more_pages(bytes: &[u8]) -> bool {
    let big_endian = match bytes {
        [b'I', b'I', 42, 0, ..] => false,
        [b'M', b'M', 0, 42, ..] => true,
        _ => return false,
    };
    let read = |at: usize, length: usize| -> Option<usize> {
        let field = bytes.get(at..at.checked_add(length)?)?;
        let append = |value: usize, &byte: &u8| value << 8 | usize::from(byte);
        Some(if big_endian { field.iter().fold(0, append) } else { field.iter().rev().fold(0, append) })
    };
    // Header: mark (4), offset of the first directory (4). Directory: count (2), count entries of 12, next offset (4).
    let next = read(4, 4).and_then(|at| read(at.saturating_add(2 + 12 * read(at, 2)?), 4));
    next.is_some_and(|offset| offset != 0)
}

/// Chooses the channels and spreads the samples over planes.
fn into_texture(samples: Samples, path: &Path, crc32: u32, channels: Channels) -> Texture {
    let Samples { width, height, channels: stored, depth, bytes, mut notes } = samples;
    let sources = if depth == 8 {
        sources(&bytes, stored, channels)
    } else {
        sources(bytes.as_chunks::<2>().0, stored, channels)
    };
    if matches!(stored, 2 | 4) && channels != Channels::Alpha {
        notes.push("alpha dropped; --channels alpha keeps it".into());
    }
    let plane = |&c: &usize| -> Vec<f32> {
        if depth == 8 {
            bytes.iter().skip(c).step_by(stored).map(|&v| f32::from(v) / 255.0).collect()
        } else {
            let samples = bytes.as_chunks::<2>().0.iter().skip(c).step_by(stored);
            samples.map(|&v| f32::from(u16::from_ne_bytes(v)) / 65535.0).collect()
        }
    };
    let planes: Vec<_> = sources.iter().map(plane).collect();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let info = TextureInfo { name, channels: planes.len(), depth, role: None, sources: vec![] };
    let colours = if stored < 3 { 1 } else { 3 };
    let alpha = usize::from(channels == Channels::Alpha && matches!(stored, 2 | 4));
    let written = (channels != Channels::Rgb).then_some(colours + alpha);
    Texture { info, file_name: files::base_name(path), crc32, width, height, planes, written, rebuilt: None, notes }
}

/// The stored channel that each plane takes. `S` is one sample, of any width.
fn sources<S: PartialEq>(samples: &[S], stored: usize, channels: Channels) -> Vec<usize> {
    let grey = stored < 3 || samples.chunks_exact(stored).all(|t| t[0] == t[1] && t[1] == t[2]);
    let has_alpha = stored == 2 || stored == 4;
    let mut sources = match (channels, stored < 3, grey) {
        (Channels::Rgb, true, _) => vec![0; 3],
        (Channels::Rgb, false, _) | (_, _, false) => vec![0, 1, 2],
        (_, _, true) => vec![0],
    };
    if channels == Channels::Alpha && has_alpha {
        sources.push(stored - 1);
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_follow_the_mode() {
        use Channels::{Alpha, Auto, Rgb};
        let sources = |samples: &[u8], stored| [Auto, Rgb, Alpha].map(|c| sources(samples, stored, c));
        assert_eq!(sources(&[5, 6], 1), [vec![0], vec![0, 0, 0], vec![0]]);
        assert_eq!(sources(&[5, 6], 2), [vec![0], vec![0, 0, 0], vec![0, 1]]);
        assert_eq!(sources(&[5, 5, 5, 6, 6, 6], 3), [vec![0], vec![0, 1, 2], vec![0]]);
        assert_eq!(sources(&[5, 5, 5, 6, 6, 7], 3), [vec![0, 1, 2], vec![0, 1, 2], vec![0, 1, 2]]);
        assert_eq!(sources(&[5, 5, 5, 9, 6, 6, 6, 8], 4), [vec![0], vec![0, 1, 2], vec![0, 3]]);
    }

    #[test]
    fn sizes_are_refused_with_the_limit() {
        assert!(check_size(0, 5).unwrap_err().contains("at least 1"));
        assert!(check_size(32769, 1).unwrap_err().contains("32768"));
        assert!(check_size(32768, 2049).unwrap_err().contains("67108864"));
        assert!(check_size(32768, 2048).is_ok());
    }
}
