//! The coded file by the program itself, and by a reader written from the specification alone.

mod common;

use common::*;
use ntc_es::bitstream::container::repair;
use ntc_es::model::structure::Channels;
use ntc_es::run::load_model;
use ntc_es::texture::load;
use ntc_es::texture::write::write_png;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Layouts that between them use every part of the format.
const LAYOUTS: [(&str, &str); 11] = [
    ("plain", "a.png --latent 7 5 2 --pos uv,fourier:2,dct:1"),
    ("blocks", "a.png b.png --qat 2"),
    ("deep", "deep.png --channels alpha --qat 3,1 --latent2 0 0 5 --qbits 6 --pos lv1local,lv1ldct:2,ldct2:1 --clamp"),
    ("mixed", "a.png --qat 2 --latent2 6 4 3 --filter nearest,bilinear --qbits 12 --act tanh"),
    (
        "deblock",
        "a.png --latent 6 4 9 --filter nearest --deblock --deblock-falloff 2 --act sine --pos local,lquad,onehot",
    ),
    ("parts", "a.png --latent 6 4 2 --filter nearest --pos bc7part:3,bdct:4,bdcte:6 --act relu"),
    ("two", "a.png --latent 24 16 1 --latent2 5 3 1 --qbits 16 --pos ldct4:1,lfourier:1"),
    ("grids", "a.png --latent 7 5 2 --latent2 3 3 3 --lat-bits 5,1 --mlp-bits 8 --optimizer gn --gn-texels 100"),
    ("grid", "a.png b.png --qat 2,1 --latent2 6 4 3 --lat-bits 0,12 --mlp-bits 8 --filter nearest --pos none"),
    ("sources", "normal=normal.png orm=orm.png grey.png --channels alpha --normal xy --latent 6 4 2"),
    ("many", "b.png --qat 8,5,1,1,1,1,1,2,1,3 --latent2 0 0 1 --block 5 --pos none"),
];

/// A folder with the images that the layouts are about.
fn images() -> tempfile::TempDir {
    let place = place();
    image(&at(&place, "deep.png"), (11, 9), 4, 16, 3);
    image(&at(&place, "normal.png"), (24, 16), 3, 8, 4);
    // A packed map without metal, and a grey picture of four channels.
    let plane = |k: usize| -> Vec<f32> { (0..24 * 16).map(|i| (i * k % 101) as f32 / 128.0).collect() };
    let (a, flat) = (plane(5), vec![0.2; 24 * 16]);
    write_png(&at(&place, "orm.png"), 24, 16, 8, &[&a, &plane(6), &flat]).unwrap();
    write_png(&at(&place, "grey.png"), 24, 16, 8, &[&a, &a, &a, &plane(7)]).unwrap();
    place
}

fn run(place: &Path, flags: &str, coding: &str, out: &str) {
    ntc(place, &format!("{flags} --coding {coding} --mlp 6,5 --mlp-batch 64 --iters 4 --out {out} --quiet")).works();
}

#[test]
fn the_coded_file_is_what_the_run_reports() {
    let place = images();
    for (name, flags) in LAYOUTS {
        let mut sizes = vec![];
        for coding in ["fixed", "range"] {
            let out = format!("{name}_{coding}");
            run(place.path(), flags, coding, &out);
            let summary = json(&at(&place, &format!("{out}/summary.json")));
            let record = bytes(&at(&place, &format!("{out}/record.ntes")));
            let texels = summary["width"].as_f64().unwrap() * summary["height"].as_f64().unwrap();
            assert_eq!(summary["file_bytes"].as_u64(), Some(record.len() as u64), "{out}");
            assert_eq!(summary["bpp_file"].as_f64().unwrap(), 8.0 * record.len() as f64 / texels, "{out}");
            sizes.push(record.len());
            // The file alone gives the same pictures.
            fs::write(at(&place, "r.ntes"), &record).unwrap();
            let written = ntc(place.path(), &format!("decode r.ntes --out d{out}")).works().out;
            let count = written.lines().count();
            for (k, line) in written.lines().enumerate() {
                let suffix = if count > 1 { format!("_t{k}") } else { String::new() };
                let own = at(&place, &format!("{out}/recon_q_final{suffix}.png"));
                assert!(same_samples(&place.path().join(line), &own), "{out} {line}");
            }
            let images = flags.split(" --").next().unwrap();
            ntc(place.path(), &format!("eval r.ntes {images} --out e.json")).works();
            let eval = json(&at(&place, "e.json"));
            for key in ["psnr_q_db", "ssim", "mse_q", "bpp_raw", "bpp_entropy", "bpp_file", "file_bytes", "weights"] {
                assert_eq!(summary[key], eval[key], "{out}: {key}");
            }
            let info = ntc(place.path(), "info r.ntes --json").works().out;
            let info: serde_json::Value = serde_json::from_str(&info).unwrap();
            let parts = info["parts_bits"].as_array().unwrap().iter();
            let sum: f64 = parts.map(|part| part["file"].as_f64().unwrap()).sum();
            assert!((sum / 8.0 - record.len() as f64).abs() < 1e-6 && info["coding"] == coding, "{info}");
            let table = ntc(place.path(), &format!("info {out}")).works().out;
            assert!(table.contains("level 0 channel 0") && table.contains("header"), "{table}");
        }
        assert!(sizes.iter().all(|&s| s > 100), "{sizes:?}");
        let fixed = load_model(&at(&place, &format!("{name}_fixed"))).unwrap();
        let range = load_model(&at(&place, &format!("{name}_range"))).unwrap();
        assert!(fixed.coded.unwrap().record.levels == range.coded.unwrap().record.levels, "{name}");
    }
}

#[test]
fn a_coded_file_can_be_started_from_and_limits_hold() {
    let place = images();
    run(place.path(), "a.png --qat 2", "range", "x");
    fs::copy(at(&place, "x/record.ntes"), at(&place, "r")).unwrap();
    ntc(place.path(), "a.png --load r --iters 0 --out y").works();
    assert_eq!(
        json(&at(&place, "y/summary.json"))["psnr_q_db"].as_f64().map(|x| (x * 100.0).round()),
        json(&at(&place, "x/summary.json"))["psnr_q_db"].as_f64().map(|x| (x * 100.0).round())
    );
    for tool in ["info r", "decode r --out d", "eval r a.png", "decode x/model.safetensors --out d"] {
        ntc(place.path(), &format!("{tool} --max-pixels 383")).fails(1, "24x16 texels; --max-pixels is 383");
        ntc(place.path(), &format!("{tool} --max-pixels 384")).works();
    }
    // A folder with nothing but the coded file is enough.
    fs::create_dir(at(&place, "only")).unwrap();
    fs::copy(at(&place, "r"), at(&place, "only/record.ntes")).unwrap();
    ntc(place.path(), "decode only --out d").works();
}

/// Decodes a region of `file` to raw samples.
fn region(place: &tempfile::TempDir, file: &str, region: &str) -> Vec<u8> {
    let written = ntc(place.path(), &format!("decode {file} --out d --format raw {region}")).works().out;
    bytes(&place.path().join(written.lines().next().unwrap()))
}

#[test]
fn a_region_is_a_crop_and_needs_no_other_bytes() {
    let place = images();
    for (name, flags) in LAYOUTS {
        for coding in ["fixed", "range"] {
            run(place.path(), flags, coding, name);
            let file = format!("{name}/record.ntes");
            let model = load_model(&at(&place, &file)).unwrap();
            let (width, texture) = (model.structure.source_width, &model.structure.textures[0]);
            let texel = texture.channels * texture.depth as usize / 8;
            let all = region(&place, &file, "");
            for (x, y, w, h) in [(0, 0, 3, 2), (5, 3, 4, 6), (10, 8, 1, 1)] {
                let row = |y: usize| &all[(y * width + x) * texel..][..w * texel];
                let crop: Vec<u8> = (y..y + h).flat_map(row).copied().collect();
                assert!(region(&place, &file, &format!("--region {x},{y},{w},{h}")) == crop, "{name} {coding} {x}");
            }
        }
    }
    // The last packets may be anything where they are not asked for.
    run(place.path(), "a.png --qat 2", "fixed", "x");
    let mut record = bytes(&at(&place, "x/record.ntes"));
    let crop = region(&place, "x/record.ntes", "--region 1,2,20,9");
    let end = record.len();
    record[end - 8 - 24..end].fill(0xff);
    fs::write(at(&place, "p.ntes"), &record).unwrap();
    ntc(place.path(), "decode p.ntes --out d").fails(1, "p.ntes: ");
    assert!(region(&place, "p.ntes", "--region 1,2,20,9") == crop);
    ntc(place.path(), "decode p.ntes --out d --region 1,2,24,9").fails(1, "24x16 texels; --region 1,2,24,9 leaves");
    for (bad, why) in [("--region 1,2,0,9", "--region 1,2,0,9: give"), ("--format tga", "--format tga: give png")] {
        ntc(place.path(), &format!("decode p.ntes --out d {bad}")).fails(2, why);
    }
}

#[test]
fn damaged_coded_files_give_one_line() {
    let place = images();
    image(&at(&place, "t.png"), (6, 4), 1, 8, 1);
    for coding in ["fixed", "range"] {
        run(place.path(), "t.png --qat 2 --latent2 0 0 1", coding, coding);
        let record = bytes(&at(&place, &format!("{coding}/record.ntes")));
        let path = at(&place, "bad");
        let load = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            load_model(&path).err().map(|e| e.to_string())
        };
        for end in (0..record.len()).step_by(3) {
            let line = load(&record[..end]).expect("a part of a file");
            assert!(line.contains("bad: ") && !line.contains('\n'), "{line}");
        }
        for at in 0..record.len() {
            let mut flipped = record.clone();
            flipped[at] ^= 1 << (at * 5 % 8);
            let line = load(&flipped).expect("a damaged file");
            assert!(line.contains("bad: ") && !line.contains('\n'), "{line}");
            repair(&mut flipped);
            load(&flipped);
        }
    }
    ntc(place.path(), "info bad").works();
}

/// The interpreter for the other reader: `NTC_PYTHON`, or python3; none without numpy.
fn python() -> Option<String> {
    let python = std::env::var("NTC_PYTHON").unwrap_or("python3".into());
    let works = Command::new(&python).args(["-c", "import numpy"]).output().is_ok_and(|o| o.status.success());
    works.then_some(python)
}

/// What the other reader makes of a file: u8 or u16 samples of texture `k`, interleaved.
fn other_reader(python: &str, record: &Path, out: &Path, textures: usize) -> Vec<Vec<u32>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/decode_ntes.py");
    let output = Command::new(python).arg("-B").arg(script).arg(record).arg(out).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let samples = |k: usize| {
        let npy = bytes(&out.join(format!("{k}.npy")));
        let start = 10 + usize::from(u16::from_le_bytes([npy[8], npy[9]]));
        let wide = String::from_utf8_lossy(&npy[..start]).contains("'<u2'");
        let data = &npy[start..];
        match wide {
            true => data.chunks_exact(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]]))).collect(),
            false => data.iter().map(|&b| u32::from(b)).collect(),
        }
    };
    (0..textures).map(samples).collect()
}

#[test]
fn a_reader_written_from_the_specification_agrees_within_one_level() {
    let Some(python) = python() else {
        eprintln!("skipped 1: python3 with numpy is missing; set NTC_PYTHON to one that has it");
        return;
    };
    let place = images();
    for (name, flags) in LAYOUTS {
        for coding in ["fixed", "range"] {
            let out = format!("{name}_{coding}");
            run(place.path(), flags, coding, &out);
            let model = load_model(&at(&place, &out)).unwrap();
            let textures = &model.structure.textures;
            let record = at(&place, &format!("{out}/record.ntes"));
            let theirs = other_reader(&python, &record, &at(&place, "other"), textures.len());
            for (k, (samples, info)) in theirs.iter().zip(textures).enumerate() {
                let suffix = if textures.len() > 1 { format!("_t{k}") } else { String::new() };
                let kind = if info.channels == 3 { Channels::Rgb } else { Channels::Alpha };
                let ours = load(&at(&place, &format!("{out}/recon_q_final{suffix}.png")), kind).unwrap();
                let most = ((1u32 << info.depth) - 1) as f32;
                let planes: Vec<_> = match (info.channels, ours.planes.as_slice()) {
                    (4, [grey, alpha]) => vec![grey, grey, grey, alpha],
                    (_, planes) => planes.iter().collect(),
                };
                assert_eq!(samples.len(), planes.len() * planes[0].len(), "{out}");
                // One level of 8 bits.
                let close = if info.depth == 16 { 257 } else { 1 };
                for (i, &sample) in samples.iter().enumerate() {
                    let own = (planes[i % info.channels][i / info.channels] * most).round() as u32;
                    assert!(sample.abs_diff(own) <= close, "{out} texture {k} sample {i}: {sample} against {own}");
                }
            }
        }
    }
}
