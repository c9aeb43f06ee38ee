//! Settings: TOML, hash, and the structures that they come to. The command line's side is in `cli/tests.rs`.

use super::arbitrary::check;
use super::*;
use crate::error::{Error, Result};
use crate::model::structure::{Filter, Structure, TextureInfo};
use proptest::prelude::prop_assert_eq;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;

/// Settings of a command line, split at spaces.
pub(crate) fn parse(line: &str) -> Config {
    let matches = command().no_binary_name(true).try_get_matches_from(line.split_whitespace());
    let config = matches.and_then(|m| Config::from_arg_matches(&m));
    config.unwrap_or_else(|e| panic!("{line}: {e}"))
}

pub(crate) fn textures(count: usize) -> Vec<TextureInfo> {
    (0..count)
        .map(|k| TextureInfo { name: format!("m{k}"), channels: 3, depth: 8, role: None, sources: vec![] })
        .collect()
}

/// The structure that a command line gives for `count` RGB textures of a size.
fn resolve(line: &str, (width, height): (usize, usize), count: usize) -> Result<Structure> {
    parse(line).resolve(width, height, textures(count))
}

/// Whether an error is one line with all of `words` (separated by `|`) and asks for exit code 2.
pub(crate) fn assert_says(case: &str, error: &Error, words: &str) {
    let message = error.to_string();
    assert!(!message.contains('\n'), "{case}: more than one line: {message}");
    for word in words.split('|') {
        assert!(message.contains(word), "{case}: no `{word}` in: {message}");
    }
    assert_eq!(error.exit_code(), 2, "{case}: {message}");
}

#[test]
fn defaults_are_those_of_the_reference() {
    let config = Config::default();
    assert_eq!(config.validate().map_err(|e| e.to_string()), Ok(()));
    assert_eq!((config.crop, config.iters, config.seed, config.threads), (512, 3000, 1, 0));
    assert_eq!((config.mlp.as_slice(), config.mlp_pairs, config.mlp_batch), (&[24, 24][..], 32, 4096));
    assert_eq!((config.mlp_sigma, config.mlp_lr, config.mlp_fd_h), (0.02, 0.005, 1e-3));
    assert_eq!((config.lat_pairs, config.lat_sigma, config.lat_lr, config.lat_init), (4, 0.05, 0.02, 0.1));
    assert_eq!((config.mlp_fd, config.mlp_full, config.mlp_freeze), (1.0, 1.0, 1.0));
    assert_eq!((config.print_every, config.save_every, config.qat_every, config.mlp_every), (10, 100, 1, 1));
    assert_eq!((config.lr_anneal.as_slice(), config.sigma_anneal.as_slice()), (&[1.0, 1.0][..], &[1.0, 1.0][..]));
    let structure = config.resolve(512, 512, textures(1)).unwrap();
    let complete = config.complete(&structure);
    assert_eq!(complete.latent, Some(vec![64, 64, 4]));
    assert_eq!((complete.latent2, complete.pos.as_deref()), (None, Some("uv")));
    assert_eq!(complete.filter, Some(FilterPair::both(Filter::Bilinear)));
    assert_eq!((complete.mlp_full_pairs, complete.lat2_sigma), (Some(32), Some(0.05)));
}

#[test]
fn an_empty_path_is_refused() {
    let config = Config { out: PathBuf::new(), ..Config::default() };
    assert_says("empty --out", &config.validate().unwrap_err(), "--out|path");
}

#[test]
fn a_line_break_in_a_value_stays_on_the_line() {
    let config = Config { pos: Some("uv,a\nb".into()), ..Config::default() };
    assert_says("line break", &config.validate().unwrap_err(), "--pos|a\\nb");
}

#[test]
fn toml_errors_say_where() {
    let cases = [
        ("crop = 3\nlatnt = [1, 1, 1]\n", "run/config.toml|line 2, column 1|unknown key `latnt`|`latent`"),
        ("frobnicate = 1", "line 1, column 1|unknown key `frobnicate`|--help"),
        ("\n\nmlp-sigma = \"big\"", "line 3, column 13|string|f32"),
        ("iters = 1.5", "line 1, column 9|1.5"),
        ("latent = 64", "line 1, column 10|sequence"),
        ("filter = \"cubic\"", "line 1|--filter cubic|bilinear"),
        ("crop = ", "line 1"),
        ("latent = [64, 64]", "--latent|three"),
        ("lr-anneal = [1.0]", "--lr-anneal|two"),
        ("mlp = []", "--mlp|1 to 8"),
        ("hidden = 16\nmlp = [8]", "--hidden 16|--mlp 16,16"),
        ("nfreq = 1\npos = \"uv\"", "--nfreq|--pos"),
        ("mlp-sigma = nan", "--mlp-sigma NaN"),
    ];
    for (text, words) in cases {
        let error = Config::from_toml(text, Path::new("run/config.toml")).expect_err(text);
        let message = error.to_string();
        assert!(!message.contains('\n'), "{text}: more than one line: {message}");
        for word in words.split('|') {
            assert!(message.contains(word), "{text}: no `{word}` in: {message}");
        }
    }
    assert_eq!(Config::from_toml("", Path::new("x")).unwrap(), Config::default());
}

#[test]
fn flags_and_keys_are_the_same_names() {
    let flags: BTreeSet<_> = command().get_arguments().map(|a| a.get_id().as_str().replace('_', "-")).collect();
    let keys: BTreeSet<_> = Config::default().table().keys().cloned().collect();
    assert_eq!(flags, keys);
    for argument in command().get_arguments().filter(|a| a.get_id() != "images") {
        assert_eq!(argument.get_long().unwrap(), argument.get_id().as_str().replace('_', "-"));
    }
}

#[test]
fn the_hash_follows_the_result() {
    let base = Config { images: vec!["maps/a.png".into()], load: Some("runs/x".into()), ..Config::default() };
    let changed = |key: &str, value: serde_json::Value| -> Config {
        let mut table = base.table();
        assert!(table.insert(key.into(), value).is_some(), "{key} is no key");
        serde_json::from_value(table.into()).unwrap()
    };
    // One other value for every setting; the flag says whether the result changes with it.
    let others = [
        ("images", json!(["maps/b.png"]), true),
        ("images", json!(["albedo=maps/a.png"]), true),
        ("images", json!(["other/a.png"]), false),
        ("crop", json!(0), true),
        ("resize-to", json!("largest"), true),
        ("channels", json!("rgb"), true),
        ("normal", json!("xy"), true),
        ("weights", json!([0.5]), true),
        ("quality", json!(["normal=30"]), true),
        ("latent", json!([32, 32, 4]), true),
        ("latent2", json!([16, 16, 4]), true),
        ("block", json!(8), true),
        ("filter", json!("nearest,bilinear"), true),
        ("mlp", json!([16]), true),
        ("hidden", json!(16), true),
        ("act", json!("sine"), true),
        ("leak", json!(0.1), true),
        ("clamp", json!(true), true),
        ("pos", json!("none"), true),
        ("nfreq", json!(2), true),
        ("deblock", json!(true), true),
        ("deblock-falloff", json!(2.0), true),
        ("qbits", json!(6), true),
        ("lat-bits", json!([6]), true),
        ("lat-bits-start", json!(0.25), true),
        ("mlp-bits", json!(8), true),
        ("mlp-bits-start", json!(0.5), true),
        ("gn-h", json!([0.01, 0.001]), true),
        ("gn-lat-steps", json!(3), true),
        ("gn-mlp-steps", json!(3), true),
        ("gn-texels", json!(4096), true),
        ("gn-right", json!(2.0), true),
        ("rd-lambda", json!(2.0), true),
        ("gn-grow", json!([1.0, 2.0]), true),
        ("gn-mlp-mu", json!([0.01, 1e-6, 1e3, 0.5, 5.0]), true),
        ("gn-near-mu", json!([0.01, 1e-6, 1e3, 0.5, 5.0]), true),
        ("gn-lin-mu", json!([0.01, 1e-6, 1e3, 0.5, 5.0]), true),
        ("gn-tries", json!([4, 2]), true),
        ("gn-cg", json!(20), true),
        ("optimizer", json!("gn"), true),
        ("init", json!("pca"), true),
        ("lat-phases", json!(true), true),
        ("lat-grad", json!("fd"), true),
        ("es-dist", json!("rademacher"), true),
        ("preset", json!("fast"), false),
        ("target-psnr", json!(30.0), true),
        ("max-seconds", json!(30.0), true),
        ("patience", json!(3), true),
        ("coding", json!("fixed"), true),
        ("mlp-pairs", json!(16), true),
        ("mlp-batch", json!(1024), true),
        ("mlp-sigma", json!(0.01), true),
        ("mlp-lr", json!(0.01), true),
        ("mlp-every", json!(2), true),
        ("mlp-fd", json!(0.5), true),
        ("mlp-fd-h", json!(0.01), true),
        ("mlp-full", json!(0.5), true),
        ("mlp-full-pairs", json!(8), true),
        ("mlp-freeze", json!(0.5), true),
        ("lat-pairs", json!(2), true),
        ("lat-sigma", json!(0.01), true),
        ("lat2-sigma", json!(0.01), true),
        ("lat-lr", json!(0.01), true),
        ("lat-init", json!(0.0), true),
        ("lat-alt", json!(true), true),
        ("qat", json!([2]), true),
        ("qat-every", json!(2), true),
        ("qat-joint", json!(true), true),
        ("iters", json!(10), true),
        ("lr-anneal", json!([0.5, 0.1]), true),
        ("sigma-anneal", json!([0.5, 0.1]), true),
        ("seed", json!(2), true),
        ("rng", json!("mt"), true),
        ("load", json!("runs/y"), true),
        ("out", json!("elsewhere"), false),
        ("print-every", json!(1), false),
        ("save-every", json!(1), false),
        ("quiet", json!(true), false),
        ("threads", json!(1), false),
        ("simd", json!("scalar"), false),
        ("cuda", json!(true), false),
        ("cuda-device", json!("emu"), false),
        ("cuda-check-every", json!(3), false),
    ];
    let named: BTreeSet<_> = others.iter().map(|o| o.0.to_owned()).collect();
    assert_eq!(named, base.table().keys().cloned().collect(), "a setting is missing from the list above");
    let mut hashes = BTreeSet::from([base.hash()]);
    for (key, value, changes) in others {
        let hash = changed(key, value).hash();
        assert_eq!(hash.len(), 16);
        assert_eq!(hash != base.hash(), changes, "{key}");
        assert!(!changes || hashes.insert(hash), "{key}: another change has the same hash");
    }
    assert_eq!(changed("images", json!(["other/a.png"])).hash(), base.hash(), "folders do not count");
    assert_eq!(changed("load", json!("/tmp/x")).hash(), base.hash(), "folders do not count");
    assert_eq!(changed("hidden", json!(24)).hash(), base.hash(), "a short form is what it stands for");
}

#[test]
fn the_hash_function_is_the_published_one() {
    // FNV-1a's own test vectors: results are found by this hash on other machines and after updates.
    assert_eq!(text::fnv1a(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(text::fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(text::fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
}

/// Extent and levels as (width, height, channels, nearest), for one line each in the table below.
fn shape_of(s: &Structure) -> String {
    let levels: Vec<_> = s
        .levels
        .iter()
        .map(|l| {
            let kind = if l.filter == Filter::Nearest { "n" } else { "b" };
            let bits: Vec<_> = l.selector_bits.iter().map(u32::to_string).collect();
            format!("{}x{}x{}{kind}{}", l.width, l.height, l.channels, bits.join("/"))
        })
        .collect();
    format!("{}x{} {} {}", s.width, s.height, levels.join(" "), s.position)
}

#[test]
fn settings_and_a_size_give_a_structure() {
    let cases = [
        ("", (512, 512), "512x512 64x64x4b uv"),
        ("", (1, 1), "1x1 64x64x4b uv"),
        ("", (490, 490), "490x490 64x64x4b uv"),
        ("--latent 0 0 1 --latent2 0 0 4", (490, 490), "492x492 492x492x1b 123x123x4b uv"),
        ("--latent 0 0 1", (490, 492), "492x492 492x492x1b uv"),
        ("--latent2 0 0 4", (490, 490), "492x492 64x64x4b 123x123x4b uv"),
        ("--latent2 0 0 4 --block 16", (490, 490), "496x496 64x64x4b 31x31x4b uv"),
        ("--latent 0 0 1 --block 1", (490, 490), "490x490 490x490x1b uv"),
        ("--qat 2", (1, 1), "4x4 4x4x1n2 1x1x4n lv1local"),
        ("--qat 2", (1000, 667), "1000x668 1000x668x1n2 250x167x4n lv1local"),
        ("--qat 3,1", (512, 512), "512x512 512x512x2n3/1 128x128x4n lv1local"),
        ("--qat 2 --latent2 0 0 6", (512, 512), "512x512 512x512x1n2 128x128x6n lv1local"),
        ("--qat 2 --pos uv", (512, 512), "512x512 512x512x1n2 128x128x4n uv"),
        ("--qat 2 --nfreq 1", (512, 512), "512x512 512x512x1n2 128x128x4n uv,fourier:1"),
        ("--qat 2 --filter nearest,bilinear", (512, 512), "512x512 512x512x1n2 128x128x4b lv1local"),
        ("--qat 2 --latent 128 128 2 --filter nearest", (512, 512), "512x512 128x128x2n2/2 uv"),
        ("--latent 49 70 4 --filter nearest", (490, 490), "490x490 49x70x4n uv"),
        ("--latent 64 64 4 --latent2 16 16 4", (490, 490), "490x490 64x64x4b 16x16x4b uv"),
        ("--deblock", (512, 384), "512x384 64x64x4b uv"),
        ("--latent 123 123 4 --latent2 0 0 2 --filter nearest", (490, 490), "492x492 123x123x4n 123x123x2n uv"),
        ("--latent 128 128 2 --filter nearest --pos bc7part:64", (512, 512), "512x512 128x128x2n bc7part:64"),
        ("--latent 128 128 2 --filter nearest --pos onehot,bdct:3", (512, 512), "512x512 128x128x2n onehot,bdct:3"),
        ("--nfreq 0", (512, 512), "512x512 64x64x4b uv"),
        ("--latent 8 8 126 --pos uv", (16, 16), "16x16 8x8x126b uv"),
    ];
    for (line, size, expected) in cases {
        let config = parse(line);
        let structure = config.resolve(size.0, size.1, textures(1)).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(shape_of(&structure), expected, "{line} at {size:?}");
        assert_eq!((structure.source_width, structure.source_height), size);
        let complete = config.complete(&structure);
        assert_eq!(complete.resolve(size.0, size.1, textures(1)).unwrap(), structure, "{line}: completed");
        assert_eq!(complete.complete(&structure), complete, "{line}: completed twice");
        assert_eq!(complete.hash(), config.hash(), "{line}: completed");
        let adopted = Config::default().adopt(&structure, &[]).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(adopted.resolve(size.0, size.1, textures(1)).unwrap(), structure, "{line}: loaded");
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let cases = [
        ("--latent 64 64 4 --filter nearest", (490, 490), 1, "--latent 64 64 4|490x490|49 or 70 across|49 or 70 down"),
        ("--latent 49 64 4 --filter nearest", (490, 490), 1, "49 or 70 down"),
        ("--latent 64 64 4 --filter nearest", (1, 1), 1, "--latent 64 64 4|1x1 texels|1 across, 1 down"),
        ("--latent2 16 16 4 --filter bilinear,nearest", (490, 490), 1, "--latent2 16 16 4|14 or 35 across"),
        ("--deblock", (490, 490), 1, "--latent 64 64 4|deblocked|49 or 70"),
        ("--deblock --latent 16 8 4", (16, 16), 1, "--deblock|1x2 texels|2x2"),
        ("--pos lv1local", (512, 512), 1, "--pos lv1local|--latent2"),
        ("--pos onehot", (512, 512), 1, "--pos onehot|nearest"),
        ("--pos onehot --filter nearest --latent 32 32 1", (512, 512), 1, "--pos|256 position features|128 inputs"),
        ("--pos bc7part:4 --filter nearest", (512, 512), 1, "--pos bc7part:4|4x4"),
        ("--latent 8 8 127", (512, 512), 1, "--latent|127 latent channels|2 position features|128"),
        ("--weights 1,1", (512, 512), 3, "--weights|2 weights|3 images"),
        ("", (512, 512), 9, "IMAGE|9 images|1 to 8"),
        ("", (512, 512), 0, "IMAGE|0 images|1 to 8"),
        ("", (0, 512), 1, "IMAGE|0x512"),
        ("", (8193, 8192), 1, "IMAGE|8193x8192|67108864|--crop"),
        ("", (usize::MAX, usize::MAX), 1, "IMAGE|67108864"),
        ("--qat 2", (usize::MAX, 1), 1, "IMAGE|67108864"),
        ("--latent 0 0 17", (8192, 8192), 1, "--latent 8192 8192 17|1073741824"),
    ];
    for (line, size, count, words) in cases {
        assert_says(line, &resolve(line, size, count).expect_err(line), words);
    }
}

#[test]
fn every_config_survives_toml() {
    check(|config| {
        prop_assert_eq!(config.validate().map_err(|e| e.to_string()), Ok(()));
        let text = config.to_toml();
        let back = Config::from_toml(&text, Path::new("config.toml"));
        prop_assert_eq!(back.map_err(|e| e.to_string()), Ok(config.clone()), "{}", text);
        Ok(())
    });
}
