//! `--cuda` and its relatives on the command line, with and without a GPU.
#![cfg(feature = "cuda")]

use assert_cmd::Command;
use std::path::Path;

fn ntc(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ntc-es"));
    command.current_dir(folder).args(line.split_whitespace());
    command.env("NTC_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels")).env_remove("NTC_REQUIRE_CUDA");
    command
}

/// Exit code, stdout, stderr.
fn end(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn picture(folder: &Path) {
    let (code, _, said) = end(ntc(folder, "synth --out . --size 16"));
    assert_eq!(code, Some(0), "{said}");
}

/// Whether this machine has a GPU; where it has, tests of its absence are skipped and say so.
fn has_gpu() -> bool {
    let gpu = ntc_es::backend::cuda::gpu();
    println!("GPU: {gpu:?}");
    gpu.is_ok()
}

#[test]
fn without_a_gpu_it_is_one_line_and_exit_code_1() {
    if has_gpu() {
        println!("skipped: this machine has a GPU");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    picture(place.path());
    let (code, _, said) = end(ntc(place.path(), "m1.png --iters 1 --quiet --cuda"));
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("--cuda") && said.contains("install"), "{said}");
    let mut required = ntc(place.path(), "--cuda-check");
    required.env("NTC_REQUIRE_CUDA", "1");
    let (code, table, said) = end(required);
    assert_eq!((code, table.as_str(), said.lines().count()), (Some(1), "", 1), "{said}");
}

#[cfg(not(feature = "emu"))]
#[test]
fn the_emulation_is_only_in_builds_that_have_it() {
    let place = tempfile::tempdir().unwrap();
    picture(place.path());
    let (code, _, said) = end(ntc(place.path(), "m1.png --iters 1 --quiet --cuda-device emu"));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--features emu"), "{said}");
}

#[cfg(feature = "emu")]
#[test]
fn a_run_on_the_emulation_writes_the_same_model() {
    let place = tempfile::tempdir().unwrap();
    picture(place.path());
    let line = "m1.png --latent 5 5 3 --mlp 8,8 --iters 6 --mlp-fd 0.5 --mlp-batch 200 --quiet --out";
    for (out, more) in
        [("cpu", ""), ("cuda", "--cuda-device emu"), ("watched", "--cuda-device emu --cuda-check-every 2")]
    {
        let (code, _, said) = end(ntc(place.path(), &format!("{line} {out} {more}")));
        assert_eq!(code, Some(0), "{out}: {said}");
    }
    let model = |out: &str| std::fs::read(place.path().join(out).join("model.safetensors")).unwrap();
    assert!(model("cpu") == model("cuda") && model("cpu") == model("watched"), "the model files differ");
    let summary = std::fs::read_to_string(place.path().join("cuda/summary.json")).unwrap();
    assert!(summary.contains("cuda-emu"), "{summary}");
}

#[cfg(feature = "emu")]
#[test]
fn a_run_on_a_grid_writes_the_same_model() {
    let place = tempfile::tempdir().unwrap();
    picture(place.path());
    let line = "m1.png --qat 1 --latent 8 8 1 --latent2 5 5 2 --filter nearest,bilinear --lat-bits 5 --lat-bits-start 0.3 \
                --mlp 8 --mlp-bits 8 --iters 6 --mlp-fd 0.5 --mlp-batch 200 --quiet --out";
    for (out, more) in [("cpu", ""), ("cuda", "--cuda-device emu")] {
        let (code, _, said) = end(ntc(place.path(), &format!("{line} {out} {more}")));
        assert_eq!(code, Some(0), "{out}: {said}");
    }
    let model = |out: &str| std::fs::read(place.path().join(out).join("model.safetensors")).unwrap();
    assert!(model("cpu") == model("cuda"), "the model files differ");
}

/// The decoder's matrix has no fixed order of sums, so runs end near each other and not at the same bits.
#[cfg(feature = "emu")]
#[test]
fn gauss_newton_on_the_emulation_fits_as_well_as_on_the_cpu() {
    let place = tempfile::tempdir().unwrap();
    picture(place.path());
    let layouts = [
        "--qat 1 --latent 8 8 1 --latent2 5 5 2 --filter nearest,bilinear",
        "--latent 6 6 3 --filter bilinear --lat-bits 5 --mlp-bits 8",
        "--latent 8 8 2 --filter nearest",
    ];
    for layout in layouts {
        let psnr = |more: &str| {
            let line =
                format!("m1.png --optimizer gn {layout} --mlp 8 --gn-texels 200 --iters 8 --quiet --out run {more}");
            let (code, _, said) = end(ntc(place.path(), &line));
            assert_eq!(code, Some(0), "{line}: {said}");
            let summary = std::fs::read(place.path().join("run/summary.json")).unwrap();
            serde_json::from_slice::<serde_json::Value>(&summary).unwrap()["psnr_q_db"].as_f64().unwrap()
        };
        let (cpu, cuda) = (psnr(""), psnr("--cuda-device emu"));
        println!("{layout}: {cpu:.3} and {cuda:.3} dB");
        assert!((cpu - cuda).abs() < 0.2 && cpu > 15.0, "{layout}: {cpu:.3} and {cuda:.3} dB");
        assert!(
            (psnr("--cuda-device emu --cuda-check-every 2") - cuda).abs() < 1e-9,
            "{layout}: a run is watched in silence"
        );
    }
}

#[cfg(feature = "emu")]
#[test]
fn settings_are_checked_on_the_emulation_where_there_is_no_gpu() {
    let place = tempfile::tempdir().unwrap();
    picture(place.path());
    let line = "m1.png --latent 5 5 3 --mlp 8,8 --mlp-batch 200 --cuda-check";
    let (code, table, said) = end(ntc(place.path(), line));
    assert_eq!(code, Some(0), "{table}{said}");
    assert!(table.contains("verdict") && table.contains("decoder_fd") && table.contains(" 0 different"), "{table}");
    if !has_gpu() {
        assert!(said.contains("emulation") && !table.contains(" 0 skipped"), "{table}{said}");
    }
}
