//! Files of every version of the format, which decode to the same samples for ever.
//!
//! `NTC_BLESS=1 cargo test --test golden` adds the files of layouts that have none yet, and never touches those that are there.

mod common;

use common::*;
use ntc_es::model::structure::Channels;
use ntc_es::texture::load;
use std::fs;
use std::path::{Path, PathBuf};

/// Layouts that between them use every field of the header and every section.
const LAYOUTS: [(&str, &str); 10] = [
    ("plain", "a.png --latent 7 5 2 --pos uv,fourier:2,dct:1"),
    ("blocks", "a.png b.png --qat 2"),
    ("deep", "deep.png --channels alpha --qat 3,1 --latent2 0 0 5 --qbits 6 --pos lv1local,lv1ldct:2,ldct2:1 --clamp"),
    ("mixed", "a.png --qat 2 --latent2 6 4 3 --filter nearest,bilinear --qbits 12 --act tanh"),
    ("deblock", "a.png --latent 6 4 9 --filter nearest --deblock --deblock-falloff 2 --act sine --pos local,onehot"),
    ("parts", "a.png --latent 6 4 2 --filter nearest --pos bc7part:3,bdct:4,bdcte:6,lquad --act relu"),
    ("two", "a.png --latent 24 16 1 --latent2 5 3 1 --qbits 16 --pos ldct4:1,lfourier:1 --leak -0.5"),
    ("grids", "a.png --latent 7 5 2 --latent2 3 3 3 --lat-bits 5,1 --mlp-bits 8 --optimizer gn --gn-texels 100"),
    (
        "gauss_newton",
        "a.png b.png --preset fast --qat 2,1 --latent2 6 4 3 --lat-bits 0,12 --mlp-bits 8 --gn-texels 100",
    ),
    ("many", "b.png --qat 8,5,1,1,1,1,1,2,1,3 --latent2 0 0 1 --block 5 --pos none"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// One line a texture: file, texture, size, channels, bits, CRC-32 of its samples as little-endian u16, interleaved.
fn lines(name: &str) -> Vec<String> {
    let out = tempfile::tempdir().unwrap();
    let record = folder().join(format!("{name}.ntes"));
    let line = format!("decode {} --out {}", record.display(), out.path().display());
    let written = ntc(out.path(), &line).works().out;
    let texture = |(k, path): (usize, &str)| {
        let texture = load(Path::new(path), Channels::Alpha).unwrap();
        let most = f64::from((1u32 << texture.info.depth) - 1);
        let mut crc = crc32fast::Hasher::new();
        for i in 0..texture.width * texture.height {
            for plane in &texture.planes {
                crc.update(&((f64::from(plane[i]) * most).round() as u16).to_le_bytes());
            }
        }
        let (width, height, channels, depth) =
            (texture.width, texture.height, texture.planes.len(), texture.info.depth);
        format!("{name},{k},{width}x{height},{channels},{depth},{:08x}", crc.finalize())
    };
    written.lines().enumerate().map(texture).collect()
}

fn bless() {
    let place = place();
    image(&at(&place, "deep.png"), (11, 9), 4, 16, 3);
    let list = folder().join("checksums.csv");
    fs::create_dir_all(folder()).unwrap();
    let mut text = fs::read_to_string(&list).unwrap_or("file,texture,size,channels,bits,crc32\n".into());
    for (layout, flags) in LAYOUTS {
        for coding in ["fixed", "range"] {
            let name = format!("v1_{layout}_{coding}");
            let file = folder().join(format!("{name}.ntes"));
            if !file.exists() {
                let flags = format!("{flags} --coding {coding} --mlp 6,5 --mlp-batch 64 --iters 8 --out r --quiet");
                ntc(place.path(), &flags).works();
                fs::copy(at(&place, "r/record.ntes"), &file).unwrap();
                text += &(lines(&name).join("\n") + "\n");
            }
        }
    }
    fs::write(list, text).unwrap();
}

#[test]
fn golden_files_decode_to_their_checksums() {
    if std::env::var("NTC_BLESS").is_ok() {
        bless();
    }
    let text = fs::read_to_string(folder().join("checksums.csv")).unwrap();
    let listed: Vec<&str> = text.lines().skip(1).collect();
    let mut files: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "ntes"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert!(files.len() >= 2 * LAYOUTS.len(), "{} files", files.len());
    let mut seen = 0;
    for name in &files {
        let wanted: Vec<&str> =
            listed.iter().copied().filter(|line| line.split(',').next() == Some(name.as_str())).collect();
        assert_eq!(lines(name), wanted, "{name}");
        seen += wanted.len();
    }
    assert_eq!(seen, listed.len(), "a listed file is missing");
}
