//! Sweeps: rows that a killed sweep goes on from, cells that fail, and reports that come out the same every time.

mod common;

use common::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const PLAN: &str = "images = [['a.png'], ['a.png', 'b.png']]\nseeds = [1, 2]\n[base]\nmlp = [4]\nmlp-batch = 64\niters = 12\n\
                    print-every = 4\n[axes]\nqat = [[1], [2]]\n[[case]]\nname = 'es'\n[[case]]\nname = 'gn'\n\
                    optimizer = 'gn'\ngn-texels = 200\niters = 2\n";
/// Columns that tell of time, memory or the machine.
const TIMES: [&str; 7] = ["encode_s", "cpu_s", "decode_s", "peak_rss_bytes", "device", "cpu_model", "commit"];

fn plan(text: &str) -> tempfile::TempDir {
    let place = place();
    fs::write(at(&place, "sweep.toml"), text).unwrap();
    place
}

/// Cell name to its columns, without those of [`TIMES`].
fn table(path: &Path) -> BTreeMap<String, Vec<(String, String)>> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let header = reader.headers().unwrap().clone();
    let rows = reader.records().map(|record| {
        let record = record.unwrap();
        let cells = header.iter().zip(record.iter()).filter(|(name, _)| !TIMES.contains(name));
        (record[0].to_owned(), cells.map(|(a, b)| (a.to_owned(), b.to_owned())).collect())
    });
    rows.collect()
}

fn column(rows: &BTreeMap<String, Vec<(String, String)>>, name: &str) -> Vec<String> {
    rows.values().map(|row| row.iter().find(|(column, _)| column == name).unwrap().1.clone()).collect()
}

#[test]
fn a_killed_sweep_goes_on_to_the_same_rows() {
    let place = plan(PLAN);
    ntc(place.path(), "sweep sweep.toml --out whole --quiet").works();
    let whole = table(&at(&place, "whole/results.csv"));
    assert_eq!(whole.len(), 16);
    assert!(column(&whole, "status").iter().all(|status| status == "done"));
    let first: Vec<f64> = column(&whole, "psnr_q_db").iter().map(|x| x.parse().unwrap()).collect();
    assert!(first.iter().all(|&psnr| psnr > 5.0), "{first:?}");
    // Killed at several points, and with a torn line left behind.
    let started = Instant::now();
    for round in 1u64.. {
        let mut child = start(place.path(), "sweep sweep.toml --out parts --quiet --jobs 2");
        std::thread::sleep(Duration::from_millis(60 + 70 * (round % 7)));
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        if ended.is_some() {
            break;
        }
        let results = at(&place, "parts/results.csv");
        if round == 2 && results.exists() {
            let mut text = fs::read(&results).unwrap();
            text.extend(b"torn,row");
            fs::write(&results, text).unwrap();
        }
        assert!(started.elapsed() < Duration::from_secs(120), "no end after {round} rounds");
    }
    ntc(place.path(), "sweep sweep.toml --out parts --quiet").works();
    assert_eq!(table(&at(&place, "parts/results.csv")), whole);
    // Nothing is left to do.
    let before = bytes(&at(&place, "parts/results.csv"));
    ntc(place.path(), "sweep sweep.toml --out parts --quiet").works();
    assert!(bytes(&at(&place, "parts/results.csv")) == before);
}

#[test]
fn children_end_with_the_sweep() {
    let place = plan("images = [['a.png']]\n[base]\niters = 100000000\nprint-every = 10\n");
    let mut child = start(place.path(), "sweep sweep.toml --out o --quiet");
    let log =
        || fs::read_dir(at(&place, "o/cells")).ok()?.flatten().map(|e| e.path().join("log.csv")).find(|p| p.exists());
    let deadline = Instant::now() + Duration::from_secs(60);
    while log().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = log().expect("the cell has begun");
    child.kill().unwrap();
    child.wait().unwrap();
    // The log of a cell that lives on would grow within a second.
    std::thread::sleep(Duration::from_millis(500));
    let length = fs::metadata(&log).unwrap().len();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(fs::metadata(&log).unwrap().len(), length);
}

#[test]
fn a_cell_that_fails_is_a_row() {
    let place = plan("images = [['a.png'], ['missing.png']]\n[base]\nmlp = [4]\niters = 2\n");
    ntc(place.path(), "sweep sweep.toml --out o --quiet").works();
    let rows = table(&at(&place, "o/results.csv"));
    assert_eq!(column(&rows, "status").iter().filter(|status| *status == "failed").count(), 1);
    assert!(column(&rows, "error").iter().any(|error| error.contains("missing.png")), "{rows:?}");
    // Once the image is there, --retry mends it.
    fs::copy(at(&place, "b.png"), at(&place, "missing.png")).unwrap();
    ntc(place.path(), "sweep sweep.toml --out o --quiet").works();
    assert!(column(&table(&at(&place, "o/results.csv")), "status").contains(&"failed".to_owned()));
    ntc(place.path(), "sweep sweep.toml --out o --quiet --retry").works();
    let rows = table(&at(&place, "o/results.csv"));
    assert_eq!(column(&rows, "status"), ["done", "done"]);
}

#[test]
fn bad_plans_and_busy_folders_give_one_line() {
    let place = plan("[base]\nitres = 3\n");
    ntc(place.path(), "sweep sweep.toml --out o").fails(1, "itres");
    assert!(!at(&place, "o").exists());
    ntc(place.path(), "sweep nothing.toml --out o").fails(1, "nothing.toml");
    ntc(place.path(), "sweep sweep.toml").fails(2, "--out");
    ntc(place.path(), "sweep sweep.toml --out o --shard 3/2").fails(2, "--shard");
    ntc(place.path(), "report .").fails(1, "no finished cell");
    fs::write(at(&place, "sweep.toml"), "[base]\niters = 3\n").unwrap();
    fs::create_dir(at(&place, "o")).unwrap();
    fs::write(at(&place, "o/results.csv"), "other,columns\n").unwrap();
    ntc(place.path(), "sweep sweep.toml --out o").fails(1, "other columns");
    fs::remove_file(at(&place, "o/results.csv")).unwrap();
    let lock = fs::File::create(at(&place, "o/lock")).unwrap();
    lock.lock().unwrap();
    ntc(place.path(), "sweep sweep.toml --out o").fails(1, "another sweep");
    drop(lock);
    let list = ntc(place.path(), "sweep sweep.toml --list").works().out;
    assert!(list.starts_with("bundled-s1-"), "{list}");
    let commands = ntc(place.path(), "sweep sweep.toml --dry-run").works().out;
    assert!(commands.contains("--iters=3") && commands.starts_with("ntc-es "), "{commands}");
}

#[test]
fn reports_are_the_same_every_time_and_from_shards() {
    let place = plan(PLAN);
    for shard in 1..=2 {
        ntc(place.path(), &format!("sweep sweep.toml --out o/s{shard} --shard {shard}/2 --quiet")).works();
    }
    fs::write(at(&place, "README.md"), "before\n<!-- table -->\n<!-- end -->\nafter\n").unwrap();
    let report = || ntc(place.path(), "report o --baseline es --into README.md").works().out;
    let files = report();
    let read = || files.lines().map(|line| bytes(&place.path().join(line))).collect::<Vec<_>>();
    let first = read();
    assert_eq!(report(), files);
    assert!(read() == first);
    let readme = fs::read_to_string(at(&place, "README.md")).unwrap();
    assert!(readme.starts_with("before\n") && readme.ends_with("after\n"));
    for words in ["### a\n", "### a+b\n", "BD-rate", "| gn | ", "rd-file-a.svg", " ± "] {
        assert!(readme.contains(words), "{words}: {readme}");
    }
    let curves = json(&at(&place, "o/report.json"));
    assert_eq!(curves.as_array().unwrap().len(), 4);
    assert_eq!(curves[0]["results"]["bpp"].as_array().unwrap().len(), 2);
    ntc(place.path(), "report o --baseline bc1").fails(2, "--baseline bc1");
    fs::write(at(&place, "README.md"), "no marks").unwrap();
    ntc(place.path(), "report o --into README.md").fails(1, "README.md");
    assert_eq!(fs::read_to_string(at(&place, "README.md")).unwrap(), "no marks");
}
