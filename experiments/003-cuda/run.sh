#!/usr/bin/env bash
# Checks a GPU's results against the CPU's, then times runs on it; see README.md beside this. Needs a GPU, NVRTC and cargo.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --release
ntc=target/release/ntc-es
NTC_REQUIRE_CUDA=1 "$ntc" --cuda-check

results=experiments/003-cuda/results.csv
printf 'device,side,phase,iterations_per_s,peak_fraction\n' > "$results"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for side in 512 1024 2048 4096; do
  "$ntc" synth --out "$work/$side" --size "$side" > /dev/null
  for phase in es fd search; do
    case $phase in
      es) flags=(--mlp-pairs 64 --latent $((side / 4)) $((side / 4)) 3) ;;
      fd) flags=(--mlp-fd 0 --latent $((side / 4)) $((side / 4)) 3) ;;
      search) flags=(--qat 2) ;;
    esac
    "$ntc" "$work/$side/m3.png" --crop 0 --hidden 36 --cuda --iters 200 --print-every 200 --save-every 200 --quiet \
      --out "$work/run" "${flags[@]}" > /dev/null
    python3 - "$work/run/summary.json" "$side" "$phase" >> "$results" <<'PY'
import json, sys
summary = json.load(open(sys.argv[1]))
speeds = summary["iterations_per_s"]
speed = speeds["fd" if sys.argv[3] == "fd" else "es"]
print(summary["simd"], sys.argv[2], sys.argv[3], f"{speed:.2f}", "", sep=",")
PY
  done
done
cat "$results"
