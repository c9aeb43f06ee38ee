//! Coded files of every version decode to the listed checksums for ever.
//!
//! `NTC_BLESS=1 cargo test --test golden` writes the files that are missing and the list. A listed file is never written
//! again: a change of the format gets new files beside the old ones.

mod common;

use common::*;
use ntc_es::texture::write::to_level;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Name, images and settings of each file; all are written in both codings.
const FILES: [(&str, &str); 9] = [
    ("grey", "b.png --latent 6 4 2"),
    ("rgba", "deep.png --channels alpha --latent 5 4 3 --qbits 10 --pos uv,fourier:1"),
    ("material", "a.png b.png --qat 2"),
    ("selectors", "a.png --qat 3,1 --latent2 0 0 5 --qbits 6 --pos lv1local --clamp"),
    ("wide", "b.png --qat 8,5,1,1,1,1,1,2,1,3 --latent2 0 0 1 --block 5 --pos none"),
    ("bilinear", "a.png --qat 2 --latent2 6 4 3 --filter nearest,bilinear --act tanh"),
    ("two", "a.png --latent 12 8 1 --latent2 5 3 1 --qbits 16 --pos ldct4:1,lfourier:1"),
    ("grid", "a.png --latent 6 4 3 --latent2 3 2 2 --lat-bits 5 --mlp-bits 8 --pos uv"),
    ("deblock", "a.png --latent 6 4 9 --filter nearest --deblock --deblock-falloff 2 --act sine --pos local"),
];

const LIST: &str = "checksums.txt";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// CRC-32 of the samples that a file decodes to: the pictures of `decode`, read back, 16 bits a sample, plane by plane.
fn checksum(file: &Path, place: &tempfile::TempDir) -> String {
    let out = at(place, "decoded");
    let written = ntc(place.path(), &format!("decode {} --out {}", file.display(), out.display())).works().out;
    let mut crc = crc32fast::Hasher::new();
    for line in written.lines() {
        let read = ntc_es::texture::load(Path::new(line), ntc_es::model::structure::Channels::Alpha).unwrap();
        let most = (1u32 << read.info.depth) - 1;
        crc.update(format!("{}x{}x{}", read.width, read.height, read.planes.len()).as_bytes());
        for x in read.planes.iter().flatten() {
            crc.update(&(to_level(*x, most) as u16).to_le_bytes());
        }
    }
    format!("{:08x}", crc.finalize())
}

/// Writes what is missing; what is listed stays as it is.
fn bless(place: &tempfile::TempDir) {
    image(&at(place, "deep.png"), (11, 9), 4, 16, 3);
    for (name, flags) in FILES {
        for coding in ["fixed", "range"] {
            let path = golden().join(format!("{name}_{coding}.ntes"));
            if !path.exists() {
                let flags = format!("{flags} --coding {coding} --mlp 4 --mlp-batch 64 --iters 4 --out x --quiet");
                ntc(place.path(), &flags).works();
                fs::copy(at(place, "x/record.ntes"), path).unwrap();
            }
        }
    }
    let old = fs::read_to_string(golden().join(LIST)).unwrap_or_default();
    let listed = |name: &str| old.lines().find(|line| line.ends_with(&format!(" {name}"))).map(str::to_owned);
    let files = names(&golden()).into_iter().filter(|name| name.ends_with(".ntes"));
    let line = |name: String| {
        listed(&name).unwrap_or_else(|| format!("{} {name}", checksum(&golden().join(&name), place))) + "\n"
    };
    let list: String = files.map(line).collect();
    fs::write(golden().join(LIST), list).unwrap();
}

#[test]
fn golden_files_decode_to_their_checksums() {
    let place = place();
    if std::env::var_os("NTC_BLESS").is_some() {
        fs::create_dir_all(golden()).unwrap();
        bless(&place);
    }
    let list = fs::read_to_string(golden().join(LIST)).unwrap();
    let listed: BTreeMap<&str, &str> = list.lines().filter_map(|l| l.split_once(' ')).map(|(c, n)| (n, c)).collect();
    let files = names(&golden()).into_iter().filter(|name| name.ends_with(".ntes"));
    let found: Vec<(String, String)> =
        files.map(|name| (name.clone(), checksum(&golden().join(&name), &place))).collect();
    assert!(found.len() >= 2 * FILES.len() && found.len() == listed.len(), "{} files, {}", found.len(), listed.len());
    for (name, checksum) in found {
        assert_eq!(listed.get(name.as_str()), Some(&checksum.as_str()), "{name} decodes to something else");
    }
    // Both codings of a model are the same pictures.
    for (name, _) in FILES {
        assert_eq!(listed[format!("{name}_fixed.ntes").as_str()], listed[format!("{name}_range.ntes").as_str()]);
    }
}
