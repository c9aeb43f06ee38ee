//! Materials as users have them, by the program itself: folders, roles, manifests, sizes, kinds of maps.

mod common;

use common::*;
use ntc_es::model::structure::Channels;
use ntc_es::texture::write::write_png;
use ntc_es::texture::{Texture, load};
use std::fs;
use std::path::Path;

const SMALL: &str = "--latent 6 4 2 --mlp 6 --mlp-batch 64 --iters 2";

/// What reads back from a file, alpha included.
fn read(path: &Path) -> Texture {
    load(path, Channels::Alpha).unwrap()
}

/// A folder `m` of ten channels, as ambientCG would name it, with what is no map beside them.
fn ten_channels() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let folder = at(&place, "m");
    fs::create_dir_all(folder.join("more")).unwrap();
    let maps =
        [("Color", 3), ("NormalGL", 3), ("NormalDX", 3), ("Roughness", 1), ("Metalness", 1), ("AmbientOcclusion", 1)];
    for (seed, (name, channels)) in maps.into_iter().chain([("Displacement", 1)]).enumerate() {
        let depth = if name == "Displacement" { 16 } else { 8 };
        image(&folder.join(format!("Rock001_1K-PNG_{name}.png")), (24, 16), channels, depth, seed);
    }
    image(&folder.join("Rock001_PREVIEW.png"), (9, 9), 3, 8, 1);
    fs::write(folder.join("Rock001_1K-PNG.usdc"), "x").unwrap();
    place
}

#[test]
fn a_folder_of_ten_channels_goes_there_and_back() {
    let place = ten_channels();
    let said = ntc(place.path(), &format!("m {SMALL} --out run")).works();
    for line in [
        "albedo     Rock001_1K-PNG_Color.png",
        "normal     Rock001_1K-PNG_NormalGL.png",
        "left out   Rock001_1K-PNG_NormalDX.png: Rock001_1K-PNG_NormalGL.png is the normal",
        "left out   Rock001_PREVIEW.png: a preview",
        "left out   Rock001_1K-PNG.usdc: no PNG",
        "left out   more: a folder",
    ] {
        assert!(said.err.contains(line), "no `{line}` in: {}", said.err);
    }
    let summary = json(&at(&place, "run/summary.json"));
    let textures = summary["textures"].as_array().unwrap();
    let roles: Vec<_> = textures.iter().map(|t| t["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["albedo", "normal", "roughness", "metalness", "ao", "height"]);
    assert_eq!(textures.iter().map(|t| t["channels"].as_u64().unwrap()).sum::<u64>(), 10);
    assert!(said.out.contains("height"), "{}", said.out);

    // The coded file alone has names, kinds and roles.
    fs::copy(at(&place, "run/record.ntes"), at(&place, "alone")).unwrap();
    let info: serde_json::Value = serde_json::from_str(&ntc(place.path(), "info alone --json").works().out).unwrap();
    assert_eq!(info["structure"]["textures"][5]["role"], "height");
    ntc(place.path(), "decode alone --out back").works();
    for (name, channels) in [("Color", 3), ("NormalGL", 3), ("Roughness", 1), ("Metalness", 1), ("Displacement", 1)] {
        let file = format!("Rock001_1K-PNG_{name}.png");
        let (before, after) = (read(&at(&place, "m").join(&file)), read(&at(&place, "back").join(&file)));
        assert_eq!((after.info.channels, after.info.depth), (channels, before.info.depth), "{file}");
        assert_eq!((after.width, after.height), (24, 16));
    }
    assert_eq!(names(&at(&place, "back")).len(), 6);

    // Without the normals of DirectX's kind the same folder measures the same; resuming finds the files by config.toml.
    ntc(place.path(), "eval run m --out e.json").works();
    assert_eq!(json(&at(&place, "e.json"))["mse_q"], summary["mse_q"]);
    fs::remove_file(at(&place, "run/summary.json")).unwrap();
    ntc(place.path(), "--resume run").works();
    assert_eq!(json(&at(&place, "run/summary.json"))["mse_q"], summary["mse_q"]);
    ntc(place.path(), "eval run normal=m/Rock001_1K-PNG_Color.png a b c d e").fails(2, "as albedo");
}

#[test]
fn roles_change_nothing_of_the_fit() {
    let place = place();
    ntc(place.path(), &format!("albedo=a.png ao=b.png {SMALL} --out roles")).works();
    ntc(place.path(), &format!("a.png b.png {SMALL} --out plain")).works();
    let mse = |run: &str| json(&at(&place, &format!("{run}/summary.json")))["mse_q"].clone();
    assert_eq!(mse("roles"), mse("plain"));
    let length = |run: &str| bytes(&at(&place, &format!("{run}/record.ntes"))).len();
    assert_eq!(length("roles"), length("plain") + 12 + 2, "a section of two bytes");
}

#[test]
fn one_channel_sixteen_bits_and_holes() {
    let place = tempfile::tempdir().unwrap();
    image(&at(&place, "grey.png"), (24, 16), 1, 8, 1);
    image(&at(&place, "deep.png"), (24, 16), 3, 16, 2);
    let planes: Vec<Vec<f32>> =
        (0..4).map(|c| (0..384).map(|i| ((i * (c + 3)) % 17) as f32 / 16.0).collect()).collect();
    let alpha: Vec<f32> = (0..384).map(|i| if i % 24 < 8 { 0.0 } else { 1.0 }).collect();
    let slices = [planes[0].as_slice(), planes[1].as_slice(), planes[2].as_slice(), alpha.as_slice()];
    write_png(&at(&place, "holes.png"), 24, 16, 8, &slices).unwrap();
    for (images, file, shape) in [
        ("height=grey.png", "grey.png", (1, 8)),
        ("albedo=deep.png", "deep.png", (3, 16)),
        ("albedo:alpha=holes.png", "holes.png", (4, 8)),
        ("other:rgb=grey.png", "grey.png", (3, 8)),
    ] {
        ntc(place.path(), &format!("{images} {SMALL} --out run")).works();
        let summary = json(&at(&place, "run/summary.json"));
        let texture = &summary["textures"][0];
        assert_eq!(
            (texture["channels"].as_u64(), texture["depth"].as_u64()),
            (Some(shape.0), Some(shape.1)),
            "{images}"
        );
        ntc(place.path(), "decode run --out back").works();
        // A grey picture of three channels is written as three, whatever it holds.
        let back = load(&at(&place, "back").join(file), Channels::Alpha).unwrap();
        assert!(back.info.channels as u64 == shape.0 && u64::from(back.info.depth) == shape.1, "{images}");
    }
}

#[test]
fn manifests() {
    let place = place();
    fs::create_dir(at(&place, "sub")).unwrap();
    fs::rename(at(&place, "a.png"), at(&place, "sub/a.png")).unwrap();
    fs::rename(at(&place, "b.png"), at(&place, "sub/b.png")).unwrap();
    let write = |text: &str| fs::write(at(&place, "sub/m.json"), text).unwrap();
    write(
        r#"{"textures": [{"path": "b.png", "role": "ao", "channels": "rgb", "weight": 0.5},
                         {"path": "a.png", "role": "albedo"}]}"#,
    );
    ntc(place.path(), &format!("--material sub/m.json {SMALL} --out run")).works();
    let textures = json(&at(&place, "run/summary.json"))["textures"].clone();
    assert_eq!((&textures[0]["role"], &textures[0]["channels"]), (&"ao".into(), &3.into()));
    assert_eq!((&textures[0]["loss_weight"], &textures[1]["loss_weight"]), (&0.5.into(), &1.0.into()));
    // The run's own settings name everything again.
    let config = fs::read_to_string(at(&place, "run/config.toml")).unwrap();
    assert!(config.contains(r#""ao:rgb=sub/b.png""#), "{config}");
    ntc(place.path(), "--resume run").works();

    let refused = |text: &str, code, words: &str| {
        write(text);
        ntc(place.path(), &format!("--material sub/m.json {SMALL} --out no")).fails(code, words);
        assert!(!at(&place, "no").exists());
    };
    refused("{", 1, "m.json: EOF");
    refused(r#"{"textures": []}"#, 1, "give 1 to 8");
    refused(r#"{"textures": [{"path": "a.png", "role": "colour"}]}"#, 1, "unknown variant `colour`");
    refused(r#"{"textures": [{"path": "a.png", "role": "ao", "wieght": 1}]}"#, 1, "unknown field `wieght`");
    refused(r#"{"textures": [{"path": "a.png", "role": "ao", "weight": -1}]}"#, 2, "--weights -1");
    refused(r#"{"textures": [{"path": "a.png", "role": "ao", "quality": -5}]}"#, 2, "--quality ao=-5");
    refused(r#"{"textures": [{"path": "a.png", "role": "ao"}, {"path": "b.png", "role": "ao"}]}"#, 2, "is ao already");
    refused(r#"{"textures": [{"path": "none.png", "role": "ao"}]}"#, 1, "none.png");
    ntc(place.path(), "--material sub/m.json a.png").fails(2, "--material");
    ntc(place.path(), "--material none.json").fails(1, "none.json");
}

#[test]
fn sizes_that_differ_want_a_word() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(at(&place, "m")).unwrap();
    image(&at(&place, "m/albedo.png"), (48, 32), 3, 8, 1);
    image(&at(&place, "m/roughness.png"), (24, 16), 1, 8, 2);
    // Both would be 16x16 after this crop, of different parts.
    ntc(place.path(), &format!("m --crop 16 {SMALL}")).fails(2, "48x32 texels but roughness.png is 24x16; give maps");
    for (to, width, height) in [("largest", 48, 32), ("smallest", 24, 16)] {
        let said = ntc(place.path(), &format!("m --resize-to {to} {SMALL} --out {to}")).works();
        assert!(said.err.contains("Catmull-Rom"), "{}", said.err);
        let summary = json(&at(&place, &format!("{to}/summary.json")));
        assert_eq!((summary["width"].as_u64(), summary["height"].as_u64()), (Some(width), Some(height)));
        ntc(place.path(), &format!("eval {to} m --out e.json")).works();
        assert_eq!(json(&at(&place, "e.json"))["mse_q"], summary["mse_q"]);
    }
    image(&at(&place, "m/ao.png"), (24, 24), 1, 8, 3);
    ntc(place.path(), &format!("m --resize-to largest {SMALL}")).fails(2, "ao.png is 24x24 texels; 48x32");
}

#[test]
fn folders_and_names_that_cannot_be_read_are_refused() {
    let place = place();
    fs::create_dir_all(at(&place, "m/empty")).unwrap();
    ntc(place.path(), "m/empty").fails(2, "no file in it has a map's name");
    fs::copy(at(&place, "a.png"), at(&place, "m/x_Color.png")).unwrap();
    fs::copy(at(&place, "a.png"), at(&place, "m/y_albedo.png")).unwrap();
    ntc(place.path(), "m").fails(2, "x_Color.png and y_albedo.png may both be albedo");
    ntc(place.path(), "m a.png").fails(2, "m: a folder is a material of its own");
    ntc(place.path(), "albedo=m").fails(2, "a folder is a material of its own");
    ntc(place.path(), "rougness=a.png").fails(2, "rougness is no role; roles are albedo");
    ntc(place.path(), "ao=a.png ao=b.png").fails(2, "another map is ao already");
    // What looks like a role and is a file's name is that file.
    fs::copy(at(&place, "a.png"), at(&place, "k=v.png")).unwrap();
    ntc(place.path(), &format!("k=v.png {SMALL}")).works();
}

/// Two maps that Gauss-Newton fits in a moment, and a role each.
const PAIR: &str = "albedo=a.png roughness=b.png --optimizer gn --latent 6 4 2 --mlp 6 --gn-texels 256 --iters 4 \
                    --print-every 1 --save-every 1";

/// PSNR as decoded and loss weight of each map of a run.
fn reached(run: &Path) -> Vec<(f64, f64)> {
    let of = |t: &serde_json::Value| (t["psnr_q_db"].as_f64().unwrap(), t["loss_weight"].as_f64().unwrap());
    json(&run.join("summary.json"))["textures"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn quality_targets_are_met_by_weights_or_missed_with_a_word() {
    let place = place();
    ntc(place.path(), &format!("{PAIR} --out plain")).works();
    let plain = reached(&at(&place, "plain"));
    let shares = json(&at(&place, "plain/summary.json"))["textures"].clone();
    let share = |k: usize| shares[k]["error_share"].as_f64().unwrap();
    let mse = |k: usize| shares[k]["mse_q"].as_f64().unwrap();
    assert!((share(0) - mse(0) / (mse(0) + mse(1))).abs() < 1e-12 && (share(0) + share(1) - 1.0).abs() < 1e-12);

    // A little more of one map than equal weights give.
    let goal = plain[1].0 + 0.1;
    let said = ntc(place.path(), &format!("{PAIR} --quality roughness={goal:.3} --out met")).works();
    let met = reached(&at(&place, "met"));
    assert!(said.err.contains("; met with --weights 1.0000,"), "{}", said.err);
    assert!(met[1].0 >= goal - 1e-3 && met[1].1 > 1.0 && met[0].1 == 1.0, "{plain:?} {met:?}");
    let record = json(&at(&place, "met/quality.json"));
    let fits = record["fits"].as_array().unwrap();
    assert!(record["done"] == true && fits.len() >= 2, "{record}");
    assert_eq!(fits.last().unwrap()["psnr_q_db"][1].as_f64(), Some(met[1].0));
    assert!(ntc(place.path(), "--resume met").works().err.contains("finished"));
    // The found weights alone make the same file.
    let weights = format!("--weights {},{}", met[0].1 as f32, met[1].1 as f32);
    ntc(place.path(), &format!("{PAIR} {weights} --out again")).works();
    assert_eq!(bytes(&at(&place, "again/record.ntes")), bytes(&at(&place, "met/record.ntes")));

    // What no weights can give: the closest fit stays, and the word says how short it is.
    let said = ntc(place.path(), &format!("{PAIR} --quality albedo=70,roughness=70 --out short")).works();
    assert!(said.err.contains("dB, the closest of "), "{}", said.err);
    let record = json(&at(&place, "short/quality.json"));
    let least = |fit: &serde_json::Value| (0..2).map(|k| fit["psnr_q_db"][k].as_f64().unwrap()).fold(99.0, f64::min);
    let best = record["fits"].as_array().unwrap().iter().map(least).fold(0.0, f64::max);
    assert_eq!(reached(&at(&place, "short")).iter().map(|m| m.0).fold(99.0, f64::min), best);

    // Killed after every fit, it goes on to the same file; every fit begins with the loaded model where there is one.
    let search = format!("{} --quality roughness=70", PAIR.replace("--iters 4 ", "--iters 40 "));
    ntc(place.path(), &format!("{search} --out long")).works();
    ntc(place.path(), &format!("{search} --load plain --out loaded")).works();
    for (whole, load) in [("long", ""), ("loaded", "--load plain")] {
        let mut child = start(place.path(), &format!("{search} {load} --out killed --quiet"));
        let fits = || fs::read_to_string(at(&place, "killed/quality.json")).map_or(0, |t| t.matches("weights").count());
        let (mut kills, mut seen) = (0, 0);
        let status = loop {
            std::thread::sleep(std::time::Duration::from_millis(1));
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            // Once after every fit that ended, a little later each time.
            if fits() > seen {
                seen = fits();
                std::thread::sleep(std::time::Duration::from_millis(7 * kills));
                child.kill().unwrap();
                child.wait().unwrap();
                kills += 1;
                child = start(place.path(), "--resume killed --quiet");
            }
        };
        assert!(status.success() && kills >= 2, "killed {kills} times");
        let whole = at(&place, whole);
        assert_eq!(bytes(&at(&place, "killed/record.ntes")), bytes(&whole.join("record.ntes")));
        assert_eq!(json(&at(&place, "killed/quality.json")), json(&whole.join("quality.json")));
        fs::remove_dir_all(at(&place, "killed")).unwrap();
    }

    let refused = |words: &str, message: &str| ntc(place.path(), &format!("{PAIR} --out no {words}")).fails(2, message);
    refused("--quality normal=30", "--quality normal=30: no map is normal; of the maps: albedo, roughness");
    refused("--quality roughness", "ROLE=DB");
    refused("--quality rough=30", "rough is no role");
    refused("--quality ao=0", "above 0 and at most 120");
    refused("--quality ao=nan", "above 0 and at most 120");
    refused("--quality ao=30,ao=31", "another target for ao");
    ntc(place.path(), &format!("a.png {SMALL} --out no --quality ao=30")).fails(2, "none has a role");
    assert!(!at(&place, "no").exists());
}

#[test]
fn channels_that_hold_nothing_new_are_written_once() {
    let place = tempfile::tempdir().unwrap();
    let ramp = |by: usize| (0..384).map(|i| ((i * by) % 23) as f32 / 22.0).collect::<Vec<f32>>();
    let flat = |level: u32| vec![level as f32 / 255.0; 384];
    let write = |name: &str, planes: &[&[f32]]| write_png(&at(&place, name), 24, 16, 8, planes).unwrap();
    // Occlusion unused and full, roughness, metalness 0; a grey picture of three channels; an all-grey map of one level.
    write("orm.png", &[&flat(255), &ramp(5), &flat(0)]);
    write("ao.png", &[&ramp(3), &ramp(3), &ramp(3)]);
    write("height.png", &[&flat(77)]);
    let run = format!("orm=orm.png ao:rgb=ao.png height=height.png {SMALL}");
    ntc(place.path(), &format!("{run} --out run")).works();
    let outputs = |run: &str| -> Vec<u64> {
        let textures = json(&at(&place, &format!("{run}/summary.json")))["textures"].clone();
        textures.as_array().unwrap().iter().map(|t| t["outputs"].as_u64().unwrap()).collect()
    };
    println!("outputs {:?}", outputs("run"));
    assert_eq!(outputs("run")[0], 1);
    assert_eq!(outputs("run")[2], 0);
    ntc(place.path(), "decode run/record.ntes --out back").works();
    let back = read(&at(&place, "back/orm.png"));
    assert_eq!(back.info.channels, 3);
    assert!(back.planes[0].iter().all(|&x| x == 1.0) && back.planes[2].iter().all(|&x| x == 0.0));
    assert!(same_samples(&at(&place, "back/height.png"), &at(&place, "height.png")));
    // Every format writes all channels, and a region of them too.
    ntc(place.path(), "decode run --out part --region 3,2,5,4 --format raw").works();
    ntc(place.path(), "decode run --out ktx --format ktx2").works();
    assert_eq!(names(&at(&place, "part")).len(), 3);
    assert_eq!(names(&at(&place, "ktx")).len(), 3);
    // A model of other constants is no start for these maps.
    write("orm.png", &[&flat(254), &ramp(5), &flat(0)]);
    ntc(place.path(), &format!("{run} --load run --out no")).fails(2, "--load: the model has other constant");
    // Nothing but constants still makes a model.
    ntc(place.path(), &format!("height.png {SMALL} --out flat")).works();
    ntc(place.path(), "decode flat --out plain").works();
    assert_eq!(read(&at(&place, "plain/height.png")).info.channels, 1);
}
