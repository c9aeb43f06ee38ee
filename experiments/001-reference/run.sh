#!/usr/bin/env bash
# Runs the reference's three configurations with its noise, and its published one with ours, on kodim23; leaves
# results.csv beside this script and the table in README.md. About 8 CPU-minutes.
# Usage: run.sh PATH/TO/kodim23.png [FOLDER FOR THE RUNS]
set -euo pipefail
photo="$(realpath "$1")"
runs="$(realpath -m "${2:-out-001}")"
here="$(cd "$(dirname "$0")" && pwd)"
cd "$here/../.."
cargo build --release
ntc() { target/release/ntc-es "$photo" --quiet --save-every 100000 "$@" >/dev/null; }
mkdir -p "$runs"
ntc --iters 300 --rng mt --out "$runs/a"
ntc --iters 300 --rng mt --latent 128 128 8 --out "$runs/b"
ntc --iters 300 --rng mt --latent 128 128 4 --latent2 64 64 4 --mlp 36,36 --mlp-pairs 64 --lr-anneal 0.5 0.05 \
  --mlp-fd 0.75 --out "$runs/c"
ntc --iters 3000 --out "$runs/hash"
python3 "$here/table.py" "$runs"
