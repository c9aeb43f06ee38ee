//! Tells the program which commit it was built from: `NTC_COMMIT`, empty where that cannot be known.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=NTC_COMMIT");
    // A package built without its repository may state the commit itself.
    let commit = std::env::var("NTC_COMMIT").ok().or_else(commit_of_repository).unwrap_or_default();
    println!("cargo::rustc-env=NTC_COMMIT={}", commit.lines().next().unwrap_or(""));
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
