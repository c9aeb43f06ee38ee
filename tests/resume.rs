//! Runs that are stopped: by Ctrl-C, by a kill at any moment, by a disk that fails; and how they go on.

mod common;

use common::*;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Every kind of state: two levels, selectors, finite differences late, sparse steps, both anneals.
const RUN: &str = "a.png b.png --qat 1 --mlp 6 --mlp-batch 64 --mlp-fd 0.6 --mlp-every 3 --qat-every 4 --lr-anneal 0.3 0.1 \
     --sigma-anneal 0.5 0.5 --iters 400 --print-every 7 --save-every 30";

fn wait_for(child: &mut Child, what: &str, there: impl Fn() -> bool) {
    let started = Instant::now();
    while !there() {
        assert!(started.elapsed() < Duration::from_secs(120), "no {what}");
        assert!(child.try_wait().unwrap().is_none(), "the run ended before there was {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn interrupt(child: &Child) {
    assert!(Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap().success());
}

fn rows_of(run: &Path) -> usize {
    fs::read_to_string(run.join("log.csv")).map_or(0, |text| text.lines().count())
}

#[test]
fn a_killed_run_goes_on_to_the_same_bits() {
    let place = place();
    for rng in ["hash", "mt"] {
        let whole = at(&place, &format!("whole-{rng}"));
        ntc(place.path(), &format!("{RUN} --rng {rng} --out whole-{rng}")).works();
        let run = at(&place, "run");
        let mut child = start(place.path(), &format!("{RUN} --rng {rng} --out run"));
        // Killed again and again, a little after each has written more rows; the last one is left alone.
        for (more, delay) in [(6, 0), (3, 2), (5, 1), (4, 3), (7, 0)] {
            let before = rows_of(&run);
            wait_for(&mut child, "rows", || rows_of(&run) >= before + more);
            std::thread::sleep(Duration::from_millis(delay));
            child.kill().unwrap();
            child.wait().unwrap();
            child = start(place.path(), "--resume run --quiet");
        }
        assert!(child.wait().unwrap().success());
        assert_same_run(&whole, &run);
        let summary = |run: &Path| {
            let mut summary = json(&run.join("summary.json"));
            for key in ["wall_s", "cpu_s", "iterations_per_s", "decode_s", "peak_rss_bytes"] {
                summary.as_object_mut().unwrap().remove(key);
            }
            summary
        };
        assert_eq!(summary(&whole), summary(&run));
        fs::remove_dir_all(run).unwrap();
    }
}

#[test]
fn gauss_newton_goes_on_to_the_same_bits() {
    let place = place();
    let run = "a.png b.png --optimizer gn --qat 1 --filter nearest,bilinear --mlp 6 --gn-texels 256 --iters 30 \
               --lat-bits 5 --mlp-bits 8 --patience 9 --print-every 1 --save-every 4";
    ntc(place.path(), &format!("{run} --out whole")).works();
    let mut child = start(place.path(), &format!("{run} --out run"));
    for more in [4, 9, 6] {
        let before = rows_of(&at(&place, "run"));
        wait_for(&mut child, "rows", || rows_of(&at(&place, "run")) >= (before + more).min(26));
        child.kill().unwrap();
        child.wait().unwrap();
        child = start(place.path(), "--resume run --quiet --threads 1");
    }
    assert!(child.wait().unwrap().success());
    assert_same_run(&at(&place, "whole"), &at(&place, "run"));
}

#[test]
fn ctrl_c_saves_and_goes_on_to_the_same_bits() {
    let place = place();
    let run = at(&place, "run");
    let mut child = start(place.path(), &format!("{RUN} --out run"));
    wait_for(&mut child, "rows", || rows_of(&run) >= 4);
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let summary = json(&run.join("summary.json"));
    let done = summary["iterations"].as_u64().unwrap();
    assert_eq!(summary["finished"], false);
    assert!(names(&run).contains(&format!("recon_{done:06}_t0.png")));
    assert!(rows(&run).last().unwrap().starts_with(&format!("{done},")));
    ntc(place.path(), "decode run --out d").works();
    assert!(bytes(&at(&place, "d/a.png")) == bytes(&run.join("recon_q_final_t0.png")));

    let said = ntc(place.path(), "--resume run").works();
    assert!(said.err.contains(&format!("continuing after iteration {done}")), "{}", said.err);
    ntc(place.path(), &format!("{RUN} --out whole")).works();
    assert_same_run(&at(&place, "whole"), &run);
    let before = bytes(&run.join("log.csv"));
    assert!(ntc(place.path(), "--resume run").works().err.contains("the run is finished, all 400 iterations are done"));
    assert!(bytes(&run.join("log.csv")) == before);
}

const SHORT: &str =
    "a.png b.png --latent 6 4 2 --mlp 6 --mlp-batch 64 --iters 20 --print-every 5 --save-every 10 --out run";

/// A run that stopped behind its checkpoint of iteration 10: the next picture's name is a folder.
fn broken_run(place: &tempfile::TempDir) {
    fs::create_dir_all(at(place, "run/recon_000020_t1.png")).unwrap();
    ntc(place.path(), SHORT).fails(1, "recon_000020_t1.png: is a folder");
    fs::remove_dir(at(place, "run/recon_000020_t1.png")).unwrap();
}

#[test]
fn a_failed_write_keeps_the_last_checkpoint() {
    let place = place();
    broken_run(&place);
    // A torn row, as a full disk leaves it.
    let mut log = bytes(&at(&place, "run/log.csv"));
    log.extend(b"25,1.0,");
    fs::write(at(&place, "run/log.csv"), log).unwrap();
    let said = ntc(place.path(), "--resume run --threads 1 --simd scalar").works();
    assert!(said.err.contains("continuing after iteration 10"), "{}", said.err);
    ntc(place.path(), &SHORT.replace("--out run", "--out whole")).works();
    assert_same_run(&at(&place, "whole"), &at(&place, "run"));
}

#[test]
fn a_run_without_a_checkpoint_starts_over() {
    let place = place();
    ntc(place.path(), &SHORT.replace("--out run", "--out whole")).works();
    broken_run(&place);
    fs::remove_file(at(&place, "run/checkpoint.safetensors")).unwrap();
    let said = ntc(place.path(), "--resume run").works();
    assert!(said.err.contains("no checkpoint yet, starting over"), "{}", said.err);
    assert_same_run(&at(&place, "whole"), &at(&place, "run"));
    // A run that was finished but for its summary writes that.
    fs::remove_file(at(&place, "run/summary.json")).unwrap();
    ntc(place.path(), "--resume run").works();
    let figures = |run: &str| json(&at(&place, &format!("{run}/summary.json")))["textures"].clone();
    assert_eq!(figures("run"), figures("whole"));
    assert_same_run(&at(&place, "whole"), &at(&place, "run"));
}

#[test]
fn resume_finds_its_images_from_anywhere_and_refuses_others() {
    let place = place();
    broken_run(&place);
    ntc(place.path(), "--resume run --iters 30").fails(2, "--iters: --resume takes the run's own settings");
    let elsewhere = tempfile::tempdir().unwrap();
    let run = at(&place, "run");
    fs::rename(at(&place, "b.png"), at(&place, "c.png")).unwrap();
    ntc(elsewhere.path(), &format!("--resume {}", run.display())).fails(1, "b.png");
    image(&at(&place, "b.png"), (24, 16), 1, 8, 77);
    ntc(place.path(), "--resume run").fails(1, "b.png: is not the file that the run began with");
    fs::rename(at(&place, "c.png"), at(&place, "b.png")).unwrap();
    // A file of the same name that happens to lie here is not taken for it.
    image(&elsewhere.path().join("a.png"), (24, 16), 3, 8, 78);
    ntc(elsewhere.path(), &format!("--resume {}", run.display())).works();
    ntc(place.path(), &SHORT.replace("--out run", "--out whole")).works();
    assert_same_run(&at(&place, "whole"), &run);
}

#[test]
fn a_damaged_checkpoint_gives_one_line() {
    let place = place();
    broken_run(&place);
    let path = at(&place, "run/checkpoint.safetensors");
    let whole = bytes(&path);
    let mut tried = vec![vec![], whole[..7].to_vec(), whole[..200].to_vec(), whole[..whole.len() - 1].to_vec()];
    for at in (0..whole.len()).step_by(whole.len() / 30) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x41;
        tried.push(flipped);
    }
    for bad in tried {
        fs::write(&path, &bad).unwrap();
        let said = ntc(place.path(), "--resume run");
        said.fails(1, "run/checkpoint.safetensors: ");
        assert!(said.err.lines().count() <= 2, "{}", said.err);
        assert!(bytes(&path) == bad);
    }
    fs::write(&path, &whole).unwrap();
    let config = fs::read_to_string(at(&place, "run/config.toml")).unwrap();
    fs::write(at(&place, "run/config.toml"), config.replace("seed = 1", "seed = 2")).unwrap();
    ntc(place.path(), "--resume run").fails(1, "belongs to other settings");
    ntc(place.path(), "--resume run --threads -1").fails(2, "--threads");
}
