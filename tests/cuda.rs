//! The CUDA backend on the emulation: every verb, and whole runs, equal the CPU backend to the bit, in several orders of
//! blocks and threads. A process has one order (NTC_EMU_ORDER), so the orders are processes that this one starts.
#![cfg(feature = "emu")]

use ntc_es::backend::Backend;
use ntc_es::backend::check::{self, Case, Steps};
use ntc_es::backend::cpu::{Cpu, CpuOptions};
use ntc_es::backend::cuda::{Cuda, CudaOptions, Device};
use ntc_es::backend::simd::SimdLevel;
use ntc_es::config::Simd;
use ntc_es::error::Result;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const STEPS: Steps = Steps { step: 3, batch: 300, pairs: 3, latent_pairs: 3, full: true };

fn cpu(case: &Case) -> Result<Box<dyn Backend>> {
    let options = CpuOptions::new(SimdLevel::new(Simd::Auto)?, 1);
    let Case { geometry, target, weights, state, .. } = case.clone();
    Ok(Box::new(Cpu::new(options, geometry, target, &weights, case.noise(), state)?))
}

/// With little memory every step takes several parts: of texels, of pairs.
fn emulated(case: &Case, scratch: usize) -> Result<Box<dyn Backend>> {
    let options = CudaOptions { scratch, ..CudaOptions::new(Device::Emulation) };
    let Case { geometry, target, weights, state, .. } = case.clone();
    Ok(Box::new(Cuda::new(options, geometry, target, &weights, case.noise(), state)?))
}

/// Calls `test` for every case on two threads; panics with all that went wrong. NTC_TEST_CASES picks the cases whose names
/// hold that text.
fn for_cases(test: impl Fn(&Case) -> Result<Vec<String>> + Sync) {
    let picked = std::env::var("NTC_TEST_CASES").unwrap_or_default();
    let mut cases = check::cases().unwrap();
    cases.retain(|case| case.name.contains(&picked));
    assert!(!cases.is_empty(), "no case holds `{picked}`");
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(vec![]));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = test(case).unwrap_or_else(|e| vec![format!("{}: {e}", case.name)]);
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A test of this file in a process of its own, with an environment; whether it passed, and what it said.
fn apart(test: &str, environment: &[(&str, &str)]) -> (bool, String) {
    // One at a time: each has two threads, and the first one's compiled kernels serve the others.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).envs(environment.iter().copied());
    command.env("NTC_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (text.contains("1 passed") && output.status.success(), text)
}

fn in_order(test: &str, order: u64) {
    let (passed, text) = apart(test, &[("NTC_EMU_ORDER", &order.to_string())]);
    assert!(passed, "order {order}:\n{text}");
}

/// Faults planted in a copy of the kernels, and what the emulation says of each.
#[test]
fn faults_are_reported() {
    let faults = [
        ("compat.cuh", "#pragma once", "#error broken on purpose", "does not compile", "broken on purpose"),
        ("adam.cu", "NTC_KERNEL(pack_decoder)", "", "no kernel named pack_decoder", ""),
        (
            "adam.cu",
            "u32 count, float* packed)",
            "u32 count, float* packed, int more)",
            "kernel pack_decoder",
            "5 arguments, not 4",
        ),
        (
            "adam.cu",
            "const u32* place, u32 count",
            "const u32* place, u64 count",
            "pack_decoder: argument 2",
            "8 bytes",
        ),
        ("adam.cu", "    if (i < count) {", "    {", "pack_decoder", "allocation of"),
        (
            "evaluate.cu",
            "    }\n    __syncthreads();\n}",
            "    }\n    if (threadIdx.x == 7) { __syncthreads(); }\n    __syncthreads();\n}",
            ": threads diverge",
            "",
        ),
        (
            "evaluate.cu",
            "outs + c * tile.points, px, py);\n        }",
            "outs + c * tile.points, px, py);\n        }\n        outs[shape::OUTPUTS * tile.points + k] = 1.0f;",
            "decode_planes: wrote",
            "shared memory",
        ),
        (
            "evaluate.cu",
            "        add_to(sums + t, sum);",
            "        if (threadIdx.x != 5) { add_to(sums + t, sum); }",
            "evaluate_errors: the shuffle",
            "lane 5",
        ),
        (
            "adam.cu",
            "    packed[place[i]] = w[i];",
            "    packed[place[i]] = w[i + count];",
            "pack_decoder touched byte",
            "",
        ),
    ];
    for (file, from, to, said, also) in faults {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels")).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let planted = if name == file { text.replacen(from, to, 1) } else { text.clone() };
            assert!(name != file || planted != text, "{file} has no `{from}`");
            std::fs::write(folder.path().join(name), planted).unwrap();
        }
        let kernels = folder.path().to_str().unwrap();
        let (passed, text) = apart("verbs", &[("NTC_KERNELS_DIR", kernels), ("NTC_TEST_CASES", "bilinear")]);
        assert!(
            !passed && text.contains(said) && text.contains(also),
            "{file}, {to}: no `{said}` .. `{also}` in\n{text}"
        );
    }
}

#[test]
fn too_little_memory_is_said_in_one_line() {
    let small = [("NTC_EMU_MEMORY", "3000"), ("NTC_TEST_CASES", "bilinear")];
    let (passed, text) = apart("verbs", &small);
    assert!(!passed && text.contains("too little device memory"), "{text}");
}

#[test]
fn every_verb_equals_the_cpu_in_index_order() {
    in_order("verbs", 0);
}

#[test]
fn every_verb_equals_the_cpu_in_shuffled_orders() {
    for order in [1, 2] {
        in_order("verbs", order);
    }
}

#[test]
fn whole_runs_equal_the_cpu() {
    in_order("runs", 3);
}

#[test]
#[ignore = "started by the tests above, one process an order"]
fn verbs() {
    for_cases(|case| {
        let mut wrong = vec![];
        let fresh = case.clone();
        let trained = Case {
            name: format!("{}, trained", case.name),
            state: check::trained(case, cpu(case)?.as_mut(), 12)?,
            ..case.clone()
        };
        // With the least memory every step goes in parts: of texels, and of pairs.
        let parts = Steps { batch: 130, full: false, ..STEPS };
        for (case, scratch, steps) in [(&fresh, 64 << 20, STEPS), (&trained, 20_000, STEPS), (&trained, 3_000, parts)] {
            let rows = check::compare(case, steps, cpu(case)?.as_mut(), emulated(case, scratch)?.as_mut())?;
            wrong.extend(rows.iter().filter(|row| !row.equal).map(|row| row.to_string()));
        }
        Ok(wrong)
    });
}

#[test]
#[ignore = "started by a test above"]
fn runs() {
    for_cases(|case| {
        let (mut a, mut b) = (cpu(case)?, emulated(case, 64 << 20)?);
        let a = check::trained(case, a.as_mut(), 10)?;
        let b = check::trained(case, b.as_mut(), 10)?;
        Ok(if a == b { vec![] } else { vec![format!("{}: the states after a run differ", case.name)] })
    });
}
