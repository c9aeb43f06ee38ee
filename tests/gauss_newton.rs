//! Fits by Gauss-Newton of a small picture: what a grid kept during the fit costs, and the early ends of a run.

mod common;

use common::*;

/// A fit of 64 x 64 texels with selectors or without; returns the PSNR of the coded file.
fn psnr(place: &tempfile::TempDir, flags: &str) -> f64 {
    let line = format!("c.png --optimizer gn --mlp 12,12 --gn-texels 1024 --iters 24 --quiet --out run {flags}");
    ntc(place.path(), &line).works();
    json(&at(place, "run/summary.json"))["psnr_q_db"].as_f64().unwrap()
}

fn material() -> tempfile::TempDir {
    let place = place();
    image(&at(&place, "c.png"), (64, 64), 3, 8, 3);
    place
}

/// With the leaky activation and one decoder step: the bounds are from such fits; those of the defaults end several dB higher and lose more to a
/// grid (experiments/004-optimisers, group `grid`).
#[test]
fn a_grid_kept_during_the_fit_costs_little() {
    let place = material();
    for filter in ["nearest,nearest", "nearest,bilinear"] {
        let layout = format!("--act leaky --gn-mlp-steps 1 --qat 1 --latent2 0 0 3 --filter {filter}");
        let free = psnr(&place, &format!("{layout} --qbits 12"));
        assert!(free > 27.0, "{filter}: {free:.2} dB");
        for (bits, most) in [(4, 1.2), (5, 0.6), (6, 0.3)] {
            let kept = psnr(&place, &format!("{layout} --lat-bits {bits}"));
            println!("{filter}, {bits} bits: {kept:.2} dB of {free:.2}");
            assert!(free - kept <= most, "{filter}, {bits} bits: {kept:.2} dB of {free:.2}");
        }
    }
}

/// The dearer a bit, the smaller the range-coded file and the larger the error, on both filters.
#[test]
fn dearer_bits_make_a_smaller_file() {
    let place = material();
    for filter in ["nearest,nearest", "nearest,bilinear"] {
        let fits: Vec<(f64, f64)> = [0, 20, 400]
            .iter()
            .map(|lambda| {
                let layout = "--qat 2 --latent2 0 0 3 --lat-bits 5 --coding range";
                let psnr = psnr(&place, &format!("{layout} --filter {filter} --rd-lambda {lambda}"));
                (json(&at(&place, "run/summary.json"))["bpp_file"].as_f64().unwrap(), psnr)
            })
            .collect();
        println!("{filter}: {fits:?}");
        assert!(fits[0].0 > fits[1].0 && fits[1].0 > fits[2].0, "{filter}: {fits:?}");
        assert!(fits[0].1 > fits[2].1, "{filter}: {fits:?}");
    }
    ntc(place.path(), "c.png --rd-lambda 3 --out es").fails(2, "give --optimizer gn");
}

#[test]
fn a_run_ends_early_where_it_is_asked_to() {
    let place = material();
    let run = |flags: &str| {
        ntc(
            place.path(),
            &format!("c.png --optimizer gn --mlp 6 --gn-texels 256 --quiet --print-every 1 --out run {flags}"),
        )
        .works();
        let rows: Vec<Vec<String>> =
            rows(&at(&place, "run")).iter().skip(1).map(|row| row.split(',').map(str::to_owned).collect()).collect();
        let psnr = |row: &Vec<String>| row[3].parse::<f64>().unwrap();
        (rows.len() - 1, psnr(&rows[rows.len() - 1]), rows.iter().map(psnr).collect::<Vec<_>>())
    };
    let (rounds, last, all) = run("--latent 16 16 3 --iters 40 --target-psnr 17");
    assert!(rounds < 40 && last >= 17.0 && all[..rounds].iter().all(|&p| p < 17.0), "{rounds} rounds, {all:?}");
    assert_eq!(run("--latent 16 16 3 --iters 40 --max-seconds 0").0, 1);
    let (rounds, _, all) = run("--latent 2 2 1 --iters 200 --patience 3");
    let best = all.iter().position(|&p| p == all.iter().copied().fold(0.0, f64::max)).unwrap();
    assert!(rounds == 200 || rounds == best + 3, "{rounds} rounds, the best at {best}");
}
