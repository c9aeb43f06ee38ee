//! Tells the program which commit it was built from: `NTC_COMMIT`, empty where that cannot be known. Under the feature
//! `emu` it also builds the stand-ins for CUDA's driver and compiler (kernels/host), which the program then carries.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=NTC_COMMIT");
    // A package built without its repository may state the commit itself.
    let commit = std::env::var("NTC_COMMIT").ok().or_else(commit_of_repository).unwrap_or_default();
    println!("cargo::rustc-env=NTC_COMMIT={}", commit.lines().next().unwrap_or(""));
    #[cfg(feature = "emu")]
    stand_ins::build();
}

/// The commit of the repository whose top folder this package is, not of one that merely contains it.
fn commit_of_repository() -> Option<String> {
    if !git(&["rev-parse", "--show-prefix"])?.is_empty() {
        return None;
    }
    // Git names the files itself: in a worktree `.git` is a file, and the branch lies in the main repository.
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in [Some("HEAD"), branch.as_deref(), Some("packed-refs")].into_iter().flatten() {
        // A file that is missing would make every build run this again.
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// What git prints, or nothing where git, the repository or the object is missing.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[cfg(feature = "emu")]
mod stand_ins {
    use std::path::{Path, PathBuf};

    /// Builds both libraries; each has the name that cudarc asks for first, so that a loaded one answers.
    pub fn build() {
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        let host = Path::new("kernels/host");
        for file in ["cuda_emu.h", "libcuda.cpp", "libnvrtc.cpp"] {
            println!("cargo::rerun-if-changed={}", host.join(file).display());
        }
        let shim = std::fs::read_to_string(host.join("cuda_emu.h")).expect("kernels/host/cuda_emu.h is readable");
        let literal = format!("R\"NTC_SHIM({shim})NTC_SHIM\"\n");
        std::fs::write(out.join("cuda_emu_text.inc"), literal).expect("OUT_DIR is writable");
        for (source, library) in [("libcuda.cpp", "libcuda.so"), ("libnvrtc.cpp", "libnvrtc.so")] {
            let built = out.join(library);
            let mut command =
                cc::Build::new().cpp(true).std("c++17").opt_level(2).pic(true).get_compiler().to_command();
            command.args(["-shared", "-Wall", "-Wextra", "-o"]).arg(&built).arg(format!("-Wl,-soname,{library}"));
            command.arg("-I").arg(&out).arg(host.join(source)).arg("-ldl");
            let done = command.status().is_ok_and(|status| status.success());
            assert!(done, "feature emu: a C++17 compiler must build kernels/host/{source}");
            let name = if library == "libcuda.so" { "NTC_EMU_DRIVER" } else { "NTC_EMU_COMPILER" };
            println!("cargo::rustc-env={name}={}", built.display());
        }
    }
}
