//! Model files that nobody should trust: one line each, never a panic.

mod common;

use common::*;
use ntc_es::run::{load_model, tools};
use ntc_es::texture::write::Format;
use serde_json::{Value, json};
use std::fs;

/// Loads `bytes` as a model; whatever loads must also decode. The error, if any, is one line that names the file.
fn try_model(place: &tempfile::TempDir, bytes: &[u8]) -> Option<String> {
    let path = at(place, "bad");
    fs::write(&path, bytes).unwrap();
    match load_model(&path) {
        Ok(_) => {
            let out = at(place, "decoded");
            let what =
                tools::Decode { out: &out, float: false, most: 1 << 26, region: None, format: Format::default() };
            tools::write_pictures(&path, &what).unwrap();
            None
        }
        Err(e) => {
            let line = e.to_string();
            assert!(!line.contains('\n') && line.contains("bad: "), "{line:?}");
            Some(line)
        }
    }
}

fn tiny_models(place: &tempfile::TempDir) -> [Vec<u8>; 2] {
    image(&at(place, "t.png"), (6, 4), 1, 8, 1);
    ntc(place.path(), "t.png --latent 2 2 1 --mlp 2 --iters 1 --out x").works();
    ntc(place.path(), "t.png --qat 3,2 --mlp 2 --latent2 0 0 1 --iters 1 --out y").works();
    ["x", "y"].map(|run| bytes(&at(place, &format!("{run}/model.safetensors"))))
}

#[test]
fn truncations_and_flips_never_panic() {
    let place = place();
    for model in tiny_models(&place) {
        assert_eq!(try_model(&place, &model), None);
        for end in 0..model.len() {
            assert!(try_model(&place, &model[..end]).is_some(), "cut to {end} bytes");
        }
        for (at, bit) in (0..model.len()).map(|k| (k, k * 5 % 8)) {
            let mut flipped = model.clone();
            flipped[at] ^= 1 << bit;
            try_model(&place, &flipped);
        }
        let longer = [model.as_slice(), &[0; 4]].concat();
        assert!(try_model(&place, &longer).is_some());
    }
    ntc(place.path(), "decode bad --out d").fails(1, "bad: ");
    ntc(place.path(), "info bad").fails(1, "bad: ");
    ntc(place.path(), "eval bad a.png").fails(1, "bad: ");
    ntc(place.path(), "a.png --load bad --out d").fails(1, "bad: ");
}

/// The model with its JSON changed.
fn with_about(model: &[u8], change: impl Fn(&mut Value)) -> Vec<u8> {
    let length = u64::from_le_bytes(model[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&model[8..8 + length]).unwrap();
    let mut about: Value = serde_json::from_str(header["__metadata__"]["ntc_es"].as_str().unwrap()).unwrap();
    change(&mut about);
    header["__metadata__"]["ntc_es"] = about.to_string().into();
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &model[8 + length..]].concat()
}

#[test]
fn structures_that_no_settings_give_are_refused() {
    let place = place();
    let [plain, selectors] = tiny_models(&place);
    assert_eq!(try_model(&place, &with_about(&plain, |_| {})), None);
    let huge = json!(u64::MAX);
    let cases = [
        ("/format", json!(2)),
        ("/structure/width", json!(0)),
        ("/structure/width", json!(5)),
        ("/structure/width", huge.clone()),
        ("/structure/source_width", json!(0)),
        ("/structure/source_height", json!(7)),
        ("/structure/textures", json!([])),
        ("/structure/textures/0/name", json!("../t")),
        ("/structure/textures/0/name", json!("a/t")),
        ("/structure/textures/0/name", json!("")),
        ("/structure/textures/0/name", json!("..")),
        ("/structure/textures/0/name", json!("a\u{0}")),
        ("/structure/textures/0/channels", json!(5)),
        ("/structure/textures/0/channels", json!(2)),
        ("/structure/textures/0/depth", json!(33)),
        ("/structure/levels", json!([])),
        ("/structure/levels/0/width", json!(0)),
        ("/structure/levels/0/width", huge.clone()),
        ("/structure/levels/0/height", json!(1u64 << 40)),
        ("/structure/levels/0/channels", json!(0)),
        ("/structure/levels/0/channels", json!(1000)),
        ("/structure/levels/0/selector_bits", json!([40])),
        ("/structure/levels/0/selector_bits", json!([1, 1, 1, 1, 1])),
        ("/structure/hidden", json!([])),
        ("/structure/hidden", json!([129])),
        ("/structure/hidden", json!([1, 1, 1, 1, 1, 1, 1, 1, 1])),
        ("/structure/hidden", json!([0])),
        ("/structure/position", json!("nonsense")),
        ("/structure/position", json!("uv,".repeat(80) + "uv")),
        ("/structure/qbits", json!(0)),
        ("/structure/qbits", json!(17)),
        ("/structure/leak", json!(1e30)),
        ("/structure/deblock", json!(-1.0)),
        ("/structure/activation", json!("gelu")),
        ("/structure/extra", json!(1)),
    ];
    for model in [&plain, &selectors] {
        for (pointer, value) in &cases {
            let changed = with_about(model, |about| match about.pointer_mut(pointer) {
                Some(place) => *place = value.clone(),
                None => {
                    let (parent, key) = pointer.rsplit_once('/').unwrap();
                    about.pointer_mut(parent).unwrap()[key] = value.clone();
                }
            });
            assert!(try_model(&place, &changed).is_some(), "{pointer} = {value} was taken");
        }
    }
    let three = with_about(&plain, |about| {
        let level = about["structure"]["levels"][0].clone();
        about["structure"]["levels"] = json!([level, level, level]);
    });
    assert!(try_model(&place, &three).is_some());
}

#[test]
fn indices_beyond_their_depth_and_values_that_are_no_numbers_are_refused() {
    let place = place();
    let [plain, selectors] = tiny_models(&place);
    let mut bad = selectors.clone();
    *bad.last_mut().unwrap() = 4; // the u8 tensor is last, and its last channel has 2 bits
    assert!(try_model(&place, &bad).unwrap().contains("beyond 2 bits"));
    let mut bad = plain.clone();
    let end = bad.len();
    bad[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    assert!(try_model(&place, &bad).unwrap().contains("not finite"));
}
