//! Unusual image files: each loads exactly as other programs read it, or is refused with one line that names it.

use std::fs;
use std::path::{Path, PathBuf};

use image::{DynamicImage, ExtendedColorType, ImageEncoder, ImageFormat};
use ntc_es::model::structure::Channels;
use ntc_es::texture::write::to_level;
use ntc_es::texture::{Texture, load};

/// Largest difference in levels that two JPEG decoders may have at one texel.
const JPEG_TOLERANCE: f64 = 3.0;

/// Samples [texel][channel] as integers.
fn samples(texture: &Texture) -> Vec<u32> {
    let max = (1 << texture.info.depth) - 1;
    let texels = 0..texture.width * texture.height;
    texels.flat_map(|i| texture.planes.iter().map(move |p| to_level(p[i], max))).collect()
}

/// CRC-32 of the samples, one byte each or two big-endian ones.
fn checksum(texture: &Texture) -> String {
    let bytes: Vec<u8> = match texture.info.depth {
        8 => samples(texture).iter().map(|&v| v as u8).collect(),
        _ => samples(texture).iter().flat_map(|&v| (v as u16).to_be_bytes()).collect(),
    };
    format!("{:08x}", crc32fast::hash(&bytes))
}

/// The one line of a refused file, which names it.
fn refusal(path: &Path) -> String {
    let line = load(path, Channels::Auto).expect_err(&path.display().to_string()).to_string();
    assert!(line.contains(&*path.file_name().unwrap().to_string_lossy()), "{line}");
    assert!(!line.contains('\n') && line.len() > path.display().to_string().len() + 8, "{line:?}");
    line
}

/// Numbers of a field that are separated by spaces.
fn numbers(field: &str) -> Vec<f64> {
    field.split(' ').map(|v| v.parse().unwrap()).collect()
}

/// Compares a JPEG file with the means and texels of the table.
fn compare_coarsely(name: &str, texture: &Texture, mean: &str, texels: &str) {
    for (c, expected) in numbers(mean).iter().enumerate() {
        let sum: f64 = texture.planes[c].iter().map(|&v| f64::from(v) * 255.0).sum();
        let got = sum / texture.planes[c].len() as f64;
        assert!((got - expected).abs() < 0.5, "{name}: mean of channel {c} is {got}, not {expected}");
    }
    for place in texels.split(';').map(numbers) {
        let at = place[1] as usize * texture.width + place[0] as usize;
        for (plane, expected) in texture.planes.iter().zip(&place[2..]) {
            let got = f64::from(to_level(plane[at], 255));
            assert!((got - expected).abs() <= JPEG_TOLERANCE, "{name}: {place:?} but {got}");
        }
    }
}

#[test]
fn files_of_the_test_data_folder() {
    let Some(folder) = std::env::var_os("NTC_TEST_DATA") else {
        println!("skipped: 1 (NTC_TEST_DATA is not set)");
        return;
    };
    let folder = PathBuf::from(folder).join("odd");
    let mut table = csv::Reader::from_reader(include_bytes!("odd_files.csv").as_slice());
    let mut read = 0;
    for row in table.records() {
        let row = row.unwrap();
        let (name, path) = (&row[0], folder.join(&row[0]));
        assert!(path.is_file(), "{name} is listed in tests/odd_files.csv and missing");
        if &row[1] == "error" {
            println!("{}", refusal(&path).replace(&*folder.to_string_lossy(), ""));
            continue;
        }
        let texture = load(&path, Channels::Alpha).unwrap();
        let shape = [texture.width, texture.height, texture.info.channels, texture.info.depth as usize];
        assert_eq!(shape.map(|v| v.to_string()), [&row[2], &row[3], &row[4], &row[5]], "{name}");
        assert_eq!(texture.planes.len(), texture.info.channels);
        match &row[6] {
            "" => compare_coarsely(name, &texture, &row[7], &row[8]),
            crc => assert_eq!(checksum(&texture), crc, "{name}"),
        }
        compare_modes(&path, &texture);
        read += 1;
    }
    assert!(read > 150, "only {read} files were read");
}

/// `auto` and `rgb` against `alpha`, which keeps most.
fn compare_modes(path: &Path, alpha: &Texture) {
    let auto = load(path, Channels::Auto).unwrap();
    let rgb = load(path, Channels::Rgb).unwrap();
    let colours = if alpha.info.channels < 3 { 1 } else { 3 };
    assert_eq!(auto.planes, alpha.planes[..colours]);
    assert!(rgb.planes.len() == 3 && (0..3).all(|c| rgb.planes[c] == alpha.planes[c % colours]));
    let dropped = auto.notes.iter().filter(|n| n.contains("alpha dropped")).count();
    assert_eq!(dropped, alpha.info.channels - colours);
    assert_eq!((auto.crc32, auto.crc32), (alpha.crc32, rgb.crc32));
}

/// A folder and a writer into it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }
    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
    fn image(&self, name: &str, format: ImageFormat, image: impl Into<DynamicImage>) -> PathBuf {
        let path = self.0.path().join(name);
        image.into().save_with_format(&path, format).unwrap();
        path
    }
}

/// Levels that differ in every texel and channel.
fn ramp<T: TryFrom<u32>>(length: u32, modulus: u32) -> Vec<T>
where
    T::Error: std::fmt::Debug,
{
    (0..length).map(|i| T::try_from((i * 7919 + 13) % modulus).unwrap()).collect()
}

fn rgb(width: u32, height: u32) -> image::RgbImage {
    image::RgbImage::from_vec(width, height, ramp(width * height * 3, 251)).unwrap()
}

#[test]
fn lossless_formats_give_their_levels() {
    let folder = Folder::new();
    let formats = [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::Tga, ImageFormat::Tiff, ImageFormat::WebP];
    for format in formats {
        for (width, height) in [(1, 1), (1, 7), (6, 1), (5, 3)] {
            let extension = format.extensions_str()[0];
            let path = folder.image(&format!("{width}x{height}.{extension}"), format, rgb(width, height));
            let texture = load(&path, Channels::Auto).unwrap();
            assert_eq!((texture.width, texture.height), (width as usize, height as usize));
            assert_eq!(samples(&texture), ramp::<u32>(width * height * 3, 251), "{}", path.display());
            assert_eq!(texture.info.name, format!("{width}x{height}"));
            assert_eq!(texture.planes[0][0], 13.0 / 255.0);
        }
    }
}

#[test]
fn sixteen_bits_stay_sixteen() {
    let folder = Folder::new();
    type Rgb16 = image::ImageBuffer<image::Rgb<u16>, Vec<u16>>;
    for format in [ImageFormat::Png, ImageFormat::Tiff] {
        let image = Rgb16::from_vec(4, 3, ramp(36, 65521)).unwrap();
        let path = folder.image("deep", format, image);
        let texture = load(&path, Channels::Auto).unwrap();
        assert_eq!((texture.info.depth, samples(&texture)), (16, ramp::<u32>(36, 65521)));
    }
    // Equal in the high bytes, different in the low ones: not grey.
    let path = folder.image("near", ImageFormat::Png, Rgb16::from_vec(1, 1, vec![256, 256, 257]).unwrap());
    assert_eq!(load(&path, Channels::Auto).unwrap().planes.len(), 3);
}

#[test]
fn alpha_is_kept_only_where_asked_for() {
    let folder = Folder::new();
    let image = image::GrayAlphaImage::from_vec(2, 1, vec![10, 255, 20, 255]).unwrap();
    let path = folder.image("ga.png", ImageFormat::Png, image);
    let levels = |channels| samples(&load(&path, channels).unwrap());
    assert_eq!(levels(Channels::Auto), [10, 20]);
    assert_eq!(levels(Channels::Rgb), [10, 10, 10, 20, 20, 20]);
    assert_eq!(levels(Channels::Alpha), [10, 255, 20, 255]); // opaque, and kept all the same
    assert_eq!(load(&path, Channels::Auto).unwrap().notes, ["alpha dropped; --channels alpha keeps it"]);
    assert!(load(&path, Channels::Alpha).unwrap().notes.is_empty());
    let grey = image::RgbaImage::from_vec(1, 2, vec![9, 9, 9, 1, 8, 8, 8, 2]).unwrap();
    let path = folder.image("rgba.tga", ImageFormat::Tga, grey);
    assert_eq!(samples(&load(&path, Channels::Alpha).unwrap()), [9, 1, 8, 2]);
    assert_eq!(samples(&load(&path, Channels::Auto).unwrap()), [9, 8]);
}

#[test]
fn the_content_decides_the_format() {
    let folder = Folder::new();
    let path = folder.image("really.png.tga", ImageFormat::Png, rgb(3, 2));
    assert_eq!(samples(&load(&path, Channels::Auto).unwrap()), ramp::<u32>(18, 251));
    let bare = folder.image("noextension", ImageFormat::Tiff, rgb(3, 2));
    assert_eq!(samples(&load(&bare, Channels::Auto).unwrap()), ramp::<u32>(18, 251));
    let tga = fs::read(folder.image("a.TGA", ImageFormat::Tga, rgb(3, 2))).unwrap();
    assert!(load(&folder.put("b.TGA", &tga), Channels::Auto).is_ok());
    assert!(refusal(&folder.put("c.png", &tga)).contains("is not a PNG, JPEG"));
}

#[test]
fn what_is_no_image_is_refused() {
    let folder = Folder::new();
    assert!(refusal(&folder.put("empty.png", b"")).contains("empty.png: is empty"));
    assert!(refusal(&folder.put("text.png", b"just some words\n")).contains("is not a PNG"));
    assert!(refusal(&folder.0.path().join("missing.png")).contains("missing.png: No such file"));
    fs::create_dir(folder.0.path().join("folder.png")).unwrap();
    assert!(refusal(&folder.0.path().join("folder.png")).contains("is a folder"));
    assert!(refusal(&folder.put("a.png", b"DDS |\0\0\0")).contains("DDS is not read; convert it to PNG"));
    assert!(refusal(&folder.put("a", &[0x76, 0x2f, 0x31, 0x01, 2])).contains("EXR (OpenEXR) is not read"));
    assert!(refusal(&folder.put("a.gif", b"GIF89a")).contains("GIF is not read"));
    let zero = refusal(&folder.put("zero.tga", &[0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 24, 0]));
    assert!(zero.contains("zero.tga: ") && zero.contains("empty image"), "{zero}");
}

#[test]
fn floats_are_refused() {
    let folder = Folder::new();
    let image = image::Rgb32FImage::from_vec(1, 1, vec![0.5, 0.25, 2.0]).unwrap();
    let path = folder.image("float.tiff", ImageFormat::Tiff, image);
    assert!(refusal(&path).contains("floating-point samples are not read"));
}

#[test]
fn truncated_files_are_refused() {
    let folder = Folder::new();
    let mut jpeg = Vec::new();
    let encoder = image::codecs::jpeg::JpegEncoder::new(&mut jpeg);
    encoder.write_image(rgb(40, 30).as_raw(), 40, 30, ExtendedColorType::Rgb8).unwrap();
    assert!(load(&folder.put("whole.jpg", &jpeg), Channels::Auto).is_ok());
    let formats = [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::Tga, ImageFormat::Tiff, ImageFormat::WebP];
    let mut files = vec![("cut.jpg".to_string(), jpeg)];
    for format in formats {
        let name = format!("cut.{}", format.extensions_str()[0]);
        let bytes = fs::read(folder.image(&name, format, rgb(40, 30))).unwrap();
        files.push((name, bytes));
    }
    for (name, bytes) in &files {
        for eighths in 1..8 {
            let cut = folder.put(name, &bytes[..bytes.len() * eighths / 8]);
            refusal(&cut);
        }
    }
}

#[test]
fn an_interlaced_png_is_read() {
    // One texel lies in the first of Adam7's passes alone: the data stays the same, only the header's flag changes.
    let folder = Folder::new();
    let mut bytes = fs::read(folder.image("plain.png", ImageFormat::Png, rgb(1, 1))).unwrap();
    bytes[28] = 1;
    let crc = crc32fast::hash(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&crc.to_be_bytes());
    let texture = load(&folder.put("interlaced.png", &bytes), Channels::Auto).unwrap();
    assert_eq!(samples(&texture), ramp::<u32>(3, 251));
}

#[test]
fn only_one_still_picture_is_taken() {
    let folder = Folder::new();
    // An animation header (2 frames, played once) behind IHDR, which ends at byte 33.
    let mut png = fs::read(folder.image("still.png", ImageFormat::Png, rgb(2, 2))).unwrap();
    let chunk = [b"acTL".as_slice(), &[0, 0, 0, 2, 0, 0, 0, 1]].concat();
    let crc = crc32fast::hash(&chunk).to_be_bytes();
    png.splice(33..33, [&[0, 0, 0, 8], chunk.as_slice(), &crc].concat());
    assert!(refusal(&folder.put("animated.png", &png)).contains("animated PNG is not read"));
    // The last four bytes of a TIFF file's directory point to the next page.
    let mut tiff = fs::read(folder.image("one.tiff", ImageFormat::Tiff, rgb(2, 2))).unwrap();
    let directory = u32::from_le_bytes(tiff[4..8].try_into().unwrap()) as usize;
    let entries = usize::from(u16::from_le_bytes([tiff[directory], tiff[directory + 1]]));
    tiff[directory + 2 + 12 * entries] = 8;
    let texture = load(&folder.put("two.tiff", &tiff), Channels::Auto).unwrap();
    assert_eq!(texture.notes, ["only the first page of the TIFF file is read"]);
}

/// A PNG header that claims a size, followed by nothing.
fn png_header(width: u32, height: u32) -> Vec<u8> {
    let mut chunk = b"IHDR".to_vec();
    chunk.extend([width.to_be_bytes(), height.to_be_bytes()].concat());
    chunk.extend([8, 2, 0, 0, 0]);
    let crc = crc32fast::hash(&chunk).to_be_bytes();
    [b"\x89PNG\r\n\x1a\n\0\0\0\x0d".as_slice(), &chunk, &crc, b"\0\0\0\0IDAT", &[0x35, 0xaf, 0x06, 0x1e]].concat()
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_allocated() {
    let folder = Folder::new();
    assert!(refusal(&folder.put("wide.png", &png_header(40000, 1))).contains("at most 32768"));
    assert!(refusal(&folder.put("huge.png", &png_header(32768, 32768))).contains("at most 67108864 in all"));
    assert!(refusal(&folder.put("none.png", &png_header(0, 4))).contains("none.png: "));
}

#[test]
fn damaged_files_never_panic() {
    let folder = Folder::new();
    let formats = [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::Tga, ImageFormat::Tiff, ImageFormat::WebP];
    let mut files: Vec<_> = formats.iter().map(|f| (*f, fs::read(folder.image("d", *f, rgb(9, 7))).unwrap())).collect();
    files.push((ImageFormat::Jpeg, fs::read(folder.image("d", ImageFormat::Jpeg, rgb(9, 7))).unwrap()));
    for (format, bytes) in files {
        let name = format!("damaged.{}", format.extensions_str()[0]);
        for k in 0..600usize {
            let mut damaged = bytes.clone();
            for step in 0..1 + k % 3 {
                let at = (k * 31 + step * 977) % damaged.len().min(200 + k);
                damaged[at] = damaged[at].wrapping_add((1 + k * 37 + step) as u8);
            }
            if let Err(error) = ntc_es::texture::decode(&damaged, name.as_ref(), Channels::Auto) {
                let line = error.to_string();
                assert!(line.starts_with(&name) && !line.contains('\n') && line.len() < 300, "{line:?}");
            }
        }
    }
}
