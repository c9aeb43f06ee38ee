#!/usr/bin/env bash
# Format, lints, tests and documentation. Run from anywhere; needs a Rust toolchain and a C compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; "$@"; }

for component in rustfmt clippy; do
  cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 || step rustup component add "$component"
done
step cargo fmt --check
step cargo clippy --all-targets --features emu -- -D warnings
step cargo clippy --no-default-features -- -D warnings
# The command of the README.
step cargo test --features emu
RUSTDOCFLAGS="-D warnings" step cargo doc --no-deps
