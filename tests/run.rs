//! Runs by the program itself: what they write, and that nothing but the settings changes it.

mod common;

use common::*;
use ntc_es::run::log::HEADER;
use std::fs;

const TWO: &str = "a.png b.png --latent 12 8 2 --mlp 6 --mlp-batch 64 --iters 6 --print-every 2 --save-every 3";

#[test]
fn a_run_leaves_every_file_and_its_figures() {
    let place = place();
    let said = ntc(place.path(), &format!("{TWO} --latent2 6 4 1 --out run")).works();
    let run = at(&place, "run");
    let mut expected = vec!["checkpoint.safetensors", "config.toml", "inputs.json", "log.csv", "model.safetensors"];
    expected.extend(["record.ntes", "summary.json"]);
    let mut expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
    for it in [3, 6] {
        expected.extend([format!("latent_00000{it}.png"), format!("latent2_00000{it}.png")]);
        expected.extend([0, 1].map(|k| format!("recon_00000{it}_t{k}.png")));
    }
    for kind in ["target", "recon_q_final", "side_by_side"] {
        expected.extend([0, 1].map(|k| format!("{kind}_t{k}.png")));
    }
    expected.sort();
    assert_eq!(names(&run), expected);
    assert_eq!(fs::read_to_string(run.join("log.csv")).unwrap().lines().next(), Some(HEADER));
    assert_eq!(rows(&run).iter().map(|r| r.split(',').next().unwrap()).collect::<Vec<_>>()[1..], ["0", "2", "4", "6"]);

    let summary = json(&run.join("summary.json"));
    let last = fs::read_to_string(run.join("log.csv")).unwrap().lines().last().unwrap().to_owned();
    for (key, column) in [("mse", 3), ("psnr_db", 4), ("psnr_q_db", 5), ("bpp_raw", 6), ("bpp_entropy", 7)] {
        let logged: f64 = last.split(',').nth(column).unwrap().parse().unwrap();
        // serde_json reads floats to within an ulp.
        assert!((summary[key].as_f64().unwrap() / logged - 1.0).abs() < 1e-12, "{key}");
    }
    assert_eq!((summary["iterations"].as_u64(), summary["finished"].as_bool()), (Some(6), Some(true)));
    assert_eq!((summary["width"].as_u64(), summary["height"].as_u64()), (Some(24), Some(16)));
    assert_eq!(summary["textures"][1]["file"], "b.png");
    assert_eq!(summary["textures"][1]["channels"], 1);
    let crc = format!("{:08x}", crc32fast::hash(&bytes(&at(&place, "a.png"))));
    assert_eq!(summary["textures"][0]["crc32"], crc);
    assert!(summary["iterations_per_s"]["es"].as_f64().unwrap() > 0.0 && summary["iterations_per_s"]["fd"].is_null());
    assert!(summary["ssim"].is_number() && summary["cpu_s"].is_number());
    assert!(said.out.contains("PSNR") && said.err.contains("iteration 6: psnr"));
    for file in ["summary.json", "inputs.json", "config.toml", "log.csv"] {
        let text = fs::read_to_string(run.join(file)).unwrap();
        assert!(!text.contains(place.path().to_str().unwrap()), "{file} names the machine's folders");
    }
    let info = ntc(place.path(), "info run").works().out;
    assert!(info.contains("24 x 16 texels") && info.contains("12 x 8 x 2, bilinear"), "{info}");
    let info: serde_json::Value = serde_json::from_str(&ntc(place.path(), "info run --json").works().out).unwrap();
    assert_eq!(info["weights"], summary["weights"]);
}

#[test]
fn decode_needs_the_model_alone_and_reproduces_the_last_pictures() {
    let place = place();
    fs::create_dir(at(&place, "sub")).unwrap();
    image(&at(&place, "sub/a.png"), (24, 16), 4, 16, 3);
    for (run, flags) in
        [("x", "--latent 6 4 2 --channels alpha"), ("y", "--qat 2,1 --pos uv,lv1local --clamp --act sine")]
    {
        ntc(place.path(), &format!("a.png sub/a.png b.png {flags} --mlp 6 --iters 2 --out {run}")).works();
        fs::copy(at(&place, &format!("{run}/model.safetensors")), at(&place, "m")).unwrap();
        let out = ntc(place.path(), &format!("decode m --out d{run}")).works().out;
        assert_eq!(names(&at(&place, &format!("d{run}"))), ["a_t0.png", "a_t1.png", "b.png"]);
        assert_eq!(out.lines().count(), 3);
        for (name, k) in [("a_t0", 0), ("a_t1", 1), ("b", 2)] {
            let decoded = at(&place, &format!("d{run}/{name}.png"));
            assert!(same_samples(&decoded, &at(&place, &format!("{run}/recon_q_final_t{k}.png"))), "{run} {name}");
        }
        ntc(place.path(), &format!("decode {run} --float --out f{run}")).works();
        let last = at(&place, &format!("{run}/recon_000002_t2.png"));
        assert!(same_samples(&at(&place, &format!("f{run}/b.png")), &last));
    }
}

#[test]
fn eval_agrees_with_the_run_and_with_the_pictures() {
    let place = place();
    image(&at(&place, "wide.png"), (41, 16), 3, 8, 5);
    ntc(place.path(), "wide.png --crop 24 --latent 12 8 2 --mlp 6 --iters 3 --out run --quiet").works();
    let said = ntc(place.path(), "eval run wide.png --out e.json").works();
    assert!(said.err.contains("41x16 cropped to 24x16 at x=8; --crop 0 keeps everything"), "{}", said.err);
    let (run, eval) = (json(&at(&place, "run/summary.json")), json(&at(&place, "e.json")));
    for key in ["psnr_db", "psnr_q_db", "ssim", "bpp_raw", "bpp_entropy", "weights", "textures"] {
        assert_eq!(run[key], eval[key], "{key}");
    }
    // By the pictures alone.
    let load = |name: &str| ntc_es::texture::load(&at(&place, name), ntc_es::model::structure::Channels::Rgb).unwrap();
    let (target, decoded) = (load("run/target.png"), load("run/recon_q_final.png"));
    let square = |(a, b): (&f32, &f32)| f64::from(a - b).powi(2);
    let pairs = target.planes.iter().flatten().zip(decoded.planes.iter().flatten());
    let mse = pairs.map(square).sum::<f64>() / (3.0 * 24.0 * 16.0);
    assert!((10.0 * (1.0 / mse).log10() - run["psnr_q_db"].as_f64().unwrap()).abs() < 1e-5);
    ntc(place.path(), "eval run wide.png --float --out f.json").works();
    assert!(json(&at(&place, "f.json"))["psnr_q_db"].is_null());
    ntc(place.path(), "eval run a.png b.png").fails(2, "2 images; the model is of 1");
    ntc(place.path(), "eval run b.png").works(); // grey as RGB
    image(&at(&place, "small.png"), (8, 8), 3, 8, 5);
    ntc(place.path(), "eval run small.png").fails(2, "small.png: 8x8 texels; the model is of 24x16");
    assert_eq!(ntc(place.path(), "eval run wide.png --quiet").code, Some(2));
}

#[test]
fn threads_levels_and_repetition_do_not_change_a_byte() {
    let place = place();
    for rng in ["hash", "mt"] {
        let flags = format!("{TWO} --rng {rng} --latent2 6 4 1 --lat-alt --mlp-fd 0.5 --quiet");
        let reference = ntc(place.path(), &format!("{flags} --threads 1 --out one{rng}")).works();
        assert_eq!(reference.err, "");
        for (run, more) in
            [("again", "--threads 1"), ("two", "--threads 2"), ("seven", "--threads 7"), ("scalar", "--simd scalar")]
        {
            ntc(place.path(), &format!("{flags} {more} --out {run}{rng}")).works();
            assert_same_run(&at(&place, &format!("one{rng}")), &at(&place, &format!("{run}{rng}")));
        }
    }
    let model = |run: &str| bytes(&at(&place, &format!("{run}/model.safetensors")));
    assert!(model("onehash") != model("onemt"));
    // Paths, names of folders and when a run saves are not in the model.
    fs::create_dir(at(&place, "sub")).unwrap();
    fs::copy(at(&place, "a.png"), at(&place, "sub/a.png")).unwrap();
    let other = TWO.replace("a.png", "sub/a.png").replace("--save-every 3", "--save-every 5");
    ntc(place.path(), &format!("{other} --rng mt --latent2 6 4 1 --lat-alt --mlp-fd 0.5 --out elsewhere")).works();
    assert!(model("elsewhere") == model("onemt"));
}

#[test]
fn odd_sizes_fit_and_decode() {
    let place = place();
    for (k, size) in [(1, 1), (1, 5), (5, 1), (33, 7), (49, 50)].into_iter().enumerate() {
        image(&at(&place, "odd.png"), size, 3, 8, k);
        for flags in ["--qat 2 --iters 3", "--latent 3 3 2 --iters 2", "--latent 0 0 2 --filter bilinear --iters 1"] {
            ntc(place.path(), &format!("odd.png {flags} --mlp 5 --mlp-batch 32 --out o")).works();
            ntc(place.path(), "decode o --out d").works();
            assert!(same_samples(&at(&place, "d/odd.png"), &at(&place, "o/recon_q_final.png")), "{size:?} {flags}");
            let summary = json(&at(&place, "o/summary.json"));
            assert_eq!(summary["ssim"].is_null(), size.0 < 11 || size.1 < 11);
            assert_eq!(summary["width"], size.0);
        }
    }
    image(&at(&place, "odd.png"), (490, 490), 1, 8, 9);
    ntc(place.path(), "odd.png --qat 1 --mlp 4 --mlp-pairs 2 --lat-pairs 1 --iters 1 --out o").works();
    ntc(place.path(), "decode o --out d").works();
    assert!(same_samples(&at(&place, "d/odd.png"), &at(&place, "o/recon_q_final.png")));
}

#[test]
fn alpha_and_sixteen_bits_go_through() {
    let place = place();
    image(&at(&place, "deep.png"), (12, 12), 4, 16, 1);
    image(&at(&place, "ga.png"), (12, 12), 2, 8, 2);
    let said = ntc(place.path(), "deep.png ga.png --channels alpha --latent 6 6 2 --iters 2 --out keep").works();
    assert!(!said.err.contains("alpha"), "{}", said.err);
    let load =
        |name: &str| ntc_es::texture::load(&at(&place, name), ntc_es::model::structure::Channels::Alpha).unwrap();
    for name in ["recon_q_final", "target", "recon_000002", "side_by_side"] {
        let (deep, grey) = (load(&format!("keep/{name}_t0.png")), load(&format!("keep/{name}_t1.png")));
        assert_eq!((deep.info.channels, deep.info.depth, grey.info.channels, grey.info.depth), (4, 16, 2, 8), "{name}");
    }
    assert_eq!(load("keep/target_t0.png").planes, load("deep.png").planes);
    ntc(place.path(), "eval keep deep.png ga.png").works();
    let said = ntc(place.path(), "deep.png ga.png --latent 6 6 2 --iters 0 --out drop --quiet").works();
    assert_eq!(said.err.matches("alpha dropped").count(), 2, "{}", said.err);
    assert_eq!(load("drop/recon_q_final_t0.png").info.channels, 3);
    ntc(place.path(), "eval keep a.png ga.png").fails(1, "a.png: has 3 channels; the model has 4 of it");
}

#[test]
fn no_iterations_only_evaluate() {
    let place = place();
    ntc(place.path(), "a.png --latent 6 4 2 --iters 0 --out zero").works();
    assert_eq!(rows(&at(&place, "zero")).len(), 2);
    assert!(names(&at(&place, "zero")).contains(&"recon_000000.png".to_owned()));
    assert!(ntc(place.path(), "--resume zero").works().err.contains("finished"));
}

#[test]
fn a_loaded_model_brings_its_structure() {
    let place = place();
    ntc(place.path(), "a.png --qat 2 --mlp 5 --iters 3 --out first").works();
    ntc(place.path(), "a.png --load first --iters 0 --out same").works();
    assert!(bytes(&at(&place, "first/model.safetensors")) == bytes(&at(&place, "same/model.safetensors")));
    ntc(place.path(), "a.png --load first/model.safetensors --mlp 5 --qat 2 --iters 2 --out more").works();
    ntc(place.path(), "a.png --load first --mlp 6 --out no").fails(2, "--mlp");
    ntc(place.path(), "b.png --load first --out no").fails(2, "with 3 channels, the images are 24x16 texels with 1");
    image(&at(&place, "c.png"), (12, 12), 3, 8, 4);
    ntc(place.path(), "c.png --load first --out no").fails(2, "--load: the model is of 24x16");
    assert!(!at(&place, "no").exists());
}

#[test]
fn what_cannot_work_is_found_before_training() {
    let place = place();
    fs::write(at(&place, "file"), "x").unwrap();
    ntc(place.path(), "a.png --out file").fails(1, "file: is a file; --out names a folder");
    ntc(place.path(), "a.png --out file/run").fails(1, "file/run: ");
    ntc(place.path(), "a.png --out /proc/run").fails(1, "/proc/run: ");
    ntc(place.path(), "a.png none.png --out run").fails(1, "none.png: ");
    image(&at(&place, "c.png"), (12, 12), 3, 8, 4);
    ntc(place.path(), "a.png c.png --out run").fails(2, "a.png is 24x16 texels but c.png is 12x12");
    ntc(place.path(), "a.png --latent 5 5 1 --filter nearest --out run").fails(2, "--latent 5 5 1");
    ntc(place.path(), "a.png --iters 1 --weights 1,2 --out run").fails(2, "--weights");
    ntc(place.path(), "file --out run").fails(1, "file: ");
    assert!(!at(&place, "run").exists());
    fs::copy(at(&place, "a.png"), at(&place, "target.png")).unwrap();
    ntc(place.path(), "target.png --out .").fails(2, "target.png: the run would write over it");
    assert!(bytes(&at(&place, "target.png")) == bytes(&at(&place, "a.png")));
    ntc(place.path(), "info none").fails(1, "none: ");
    fs::create_dir(at(&place, "empty")).unwrap();
    ntc(place.path(), "decode empty --out d").fails(1, "empty: has no model.safetensors");
    ntc(place.path(), "--resume empty").fails(1, "empty: has no config.toml");
    ntc(place.path(), "--resume nowhere").fails(1, "nowhere: has no config.toml");
}

/// A limit on the size of files stands in for a full disk: both fail in the write.
#[test]
fn a_full_disk_is_found_before_training() {
    let place = place();
    let program = assert_cmd::cargo::cargo_bin!("ntc-es").display().to_string();
    let script = format!("trap '' 25; ulimit -f 1; exec {program} a.png --latent 24 16 8 --iters 5 --out run");
    let output = std::process::Command::new("sh").args(["-c", &script]).current_dir(place.path()).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.starts_with("ntc-es: run: ") && err.lines().count() == 1, "{err}");
    assert!(names(&at(&place, "run")).is_empty());
}

#[test]
fn an_earlier_run_is_replaced_and_other_files_stay() {
    let place = place();
    let run = at(&place, "run");
    ntc(place.path(), "a.png b.png --latent 6 4 2 --iters 7 --save-every 2 --out run").works();
    fs::write(run.join("notes.txt"), "mine").unwrap();
    fs::write(run.join("recon_best.png"), "mine").unwrap();
    let said = ntc(place.path(), "a.png --latent 6 4 2 --iters 3 --save-every 2 --out run --quiet").works();
    assert_eq!(said.err, "run: replacing the run in it\n");
    ntc(place.path(), "a.png --latent 6 4 2 --iters 3 --save-every 2 --out fresh").works();
    fs::write(at(&place, "fresh/notes.txt"), "mine").unwrap();
    fs::write(at(&place, "fresh/recon_best.png"), "mine").unwrap();
    assert_same_run(&run, &at(&place, "fresh"));
}

#[test]
fn synth_and_completions() {
    let place = place();
    ntc(place.path(), "synth --out m --size 16 --seed 3").works();
    assert_eq!(names(&at(&place, "m")), ["m1.png", "m2.png", "m3.png", "m4.png"]);
    assert!(ntc(place.path(), "completions bash").works().out.contains("ntc-es"));
}
