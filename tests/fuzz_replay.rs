//! Mutated files of every kind, with their checksums made right, in this process: no panic, and what can be read comes
//! back. Every file of `tests/fuzz` (a found case: `KIND-anything`) is replayed as well.
//!
//! `NTC_FUZZ=N cargo test --release --test fuzz_replay -- --nocapture` runs N mutations a kind; `NTC_SEED=S` chooses them.

mod common;

use common::bytes;
use ntc_es::bitstream::harness::{probe, probe_part, probe_section};
use ntc_es::bitstream::{Record, container};
use ntc_es::run::load_model;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Mutations a kind where NTC_FUZZ says nothing.
const FEW: usize = 2000;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number")))
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The corpus: golden files whose name holds `part`.
fn corpus(part: &str) -> Vec<Vec<u8>> {
    let names = common::names(&folder("tests/golden"));
    let files: Vec<_> = names.iter().filter(|name| name.ends_with(".ntes") && name.contains(part)).collect();
    assert!(!files.is_empty(), "no golden file {part}");
    files.iter().map(|name| bytes(&folder("tests/golden").join(name))).collect()
}

/// One to eight changes: bytes, bits, runs, cuts, insertions, copies.
fn mutate(rng: &mut impl Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..=8) {
        let at = rng.random_range(0..bytes.len().max(1));
        let run = rng.random_range(1..=8).min(bytes.len().saturating_sub(at));
        match rng.random_range(0..8) {
            _ if bytes.is_empty() => bytes.push(rng.random()),
            0 | 1 => bytes[at] ^= 1 << rng.random_range(0..8),
            2 => bytes[at] = rng.random(),
            3 => bytes[at] = [0, 1, 2, 0x7f, 0x80, 0xff][rng.random_range(0..6)],
            4 => bytes[at..at + run].fill(rng.random()),
            5 => drop(bytes.drain(at..at + run)),
            6 => bytes.splice(at..at, (0..run).map(|_| 0)).for_each(drop),
            _ => {
                let to = rng.random_range(0..=bytes.len() - run);
                bytes.copy_within(at..at + run, to);
            }
        }
    }
}

/// How far a case came: the reader's first complaint without its numbers, or `read`.
fn stage(bytes: &[u8]) -> String {
    match Record::decode(bytes, 1 << 12) {
        Ok(_) => "read".into(),
        Err(message) => {
            let parser = |part: &&str| message.contains(part);
            let parts = ["header", "WGT8", "WRAW", "WRNG", "RNG", "PACK", "GRD", "--max-pixels"];
            parts.iter().find(|part| parser(part)).map_or("container".into(), |part| format!("refused at {part}"))
        }
    }
}

/// Runs one case; a panic becomes a message with the bytes to keep.
fn case(kind: &str, bytes: &[u8], probe: impl Fn(&[u8])) {
    if catch_unwind(AssertUnwindSafe(|| probe(bytes))).is_err() {
        let path = std::env::temp_dir().join(format!("{kind}-{:08x}", crc32fast::hash(bytes)));
        fs::write(&path, bytes).unwrap();
        panic!("a case of kind {kind} panics; move {} to tests/fuzz", path.display());
    }
}

/// `probe` for each mutation of a corpus; prints how many came how far.
fn fuzz(kind: &str, corpus: &[Vec<u8>], mutated: impl Fn(&mut Pcg64Mcg, &[u8]) -> Vec<u8>, probe: impl Fn(&[u8])) {
    let (count, seed) = (number("NTC_FUZZ", FEW as u64), number("NTC_SEED", 1));
    println!("{kind}: {count} mutations of {} files, NTC_SEED={seed}", corpus.len());
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut stages: BTreeMap<String, usize> = BTreeMap::new();
    for k in 0..count as usize {
        let bytes = mutated(&mut rng, &corpus[k % corpus.len()]);
        case(kind, &bytes, &probe);
        // Every 16th is enough for a picture of the coverage.
        if k % 16 == 0 && kind != "model" {
            let mut repaired = bytes;
            container::repair(&mut repaired);
            *stages.entry(stage(&repaired)).or_default() += 1;
        }
    }
    stages.iter().for_each(|(stage, count)| println!("{kind}: {count:>8} {stage}"));
    assert!(kind == "model" || stages.len() > 1, "{kind} never gets beyond {stages:?}");
}

fn any_byte(rng: &mut Pcg64Mcg, file: &[u8]) -> Vec<u8> {
    let mut bytes = file.to_vec();
    mutate(rng, &mut bytes);
    bytes
}

/// One section's payload changed, lengths and checksums right.
fn section(rng: &mut Pcg64Mcg, file: &[u8]) -> Vec<u8> {
    let mut sections: Vec<_> = container::read(file).unwrap().iter().map(|s| (s.kind, s.payload.to_vec())).collect();
    let k = rng.random_range(0..sections.len());
    mutate(rng, &mut sections[k].1);
    container::write(&sections).unwrap()
}

fn both(bytes: &[u8]) {
    probe(bytes);
    probe_part(bytes);
}

#[test]
fn the_container() {
    fuzz("container", &corpus(""), any_byte, both);
}

#[test]
fn sections_of_coding_range() {
    fuzz("range", &corpus("_range"), section, both);
}

#[test]
fn sections_of_coding_fixed() {
    fuzz("fixed", &corpus("_fixed"), section, both);
}

#[test]
fn model_files() {
    let place = common::place();
    let run = |flags: &str| {
        common::ntc(place.path(), &format!("b.png {flags} --mlp 2 --iters 1 --out x --quiet")).works();
        bytes(&common::at(&place, "x/model.safetensors"))
    };
    let models = [run("--latent 2 2 1"), run("--qat 3,2 --latent2 0 0 1")];
    let path = common::at(&place, "bad");
    fuzz("model", &models, any_byte, |bytes| {
        fs::write(&path, bytes).unwrap();
        if let Err(e) = load_model(&path) {
            assert!(!e.to_string().contains('\n'), "{e}");
        }
    });
}

#[test]
fn every_found_case_and_every_cut_of_the_corpus_is_harmless() {
    for file in corpus("") {
        case("whole", &file, |bytes| assert!(probe(bytes), "a golden file is read"));
        for k in 0..container::read(&file).unwrap().len() {
            probe_section(&file, k, &[]);
            probe_section(&file, k, &[0xff; 64]);
        }
    }
    for name in common::names(&folder("tests/fuzz")).iter().filter(|name| name.contains('-')) {
        let found = bytes(&folder("tests/fuzz").join(name));
        println!("replays {name}");
        match name.split('-').next() {
            Some("model") => drop(load_model(&folder("tests/fuzz").join(name))),
            _ => both(&found),
        }
    }
}
