#!/usr/bin/env bash
# Times every step on this machine and leaves results.csv, scaling.csv, memory.csv and the tables in README.md beside this
# script. About 6 minutes on 2 cores; run it on a quiet machine.
# Usage: run.sh [FOLDER FOR THE RUNS]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
runs="$(realpath -m "${1:-out-002}")"
cd "$here/../.."
cargo build --release
ntc=target/release/ntc-es
mkdir -p "$runs"
# label|flags
cases=(
  "6-24-24-3 64x64x4|"
  "5-36-36-3 128x128x3|--latent 128 128 3 --mlp 36,36"
  "10-36-36-3 128x128x4 + 64x64x4|--latent 128 128 4 --latent2 64 64 4 --mlp 36,36 --mlp-pairs 64"
  "qat 2 36-36|--qat 2 --mlp 36,36"
)
echo "case,$($ntc bench --csv --size 16 | head -n 1)" >"$here/results.csv"
for level in $($ntc bench --list-simd); do
  for case in "${cases[@]}"; do
    # shellcheck disable=SC2086 # the flags are words
    $ntc bench --csv --simd "$level" ${case#*|} | tail -n +2 | sed "s/^/${case%%|*},/" >>"$here/results.csv"
  done
done
echo "size,$($ntc bench --csv --size 16 | head -n 1)" >"$here/scaling.csv"
for size in 512 1024 2048; do
  $ntc bench --csv --threads 1 --size "$size" --qat 2 --mlp 36,36 | tail -n +2 | sed "s/^/$size,/" >>"$here/scaling.csv"
done
echo "width,height,channels,texels,peak_rss_bytes,model_bytes" >"$here/memory.csv"
for size in 1024 4096; do
  $ntc synth --out "$runs/maps-$size" --size "$size"
  $ntc "$runs/maps-$size"/m{1,2,3,4}.png --crop 0 --qat 2 --mlp 36,36 --iters 1 --quiet --out "$runs/memory-$size" >/dev/null
  python3 - "$runs/memory-$size" >>"$here/memory.csv" <<'PY'
import json, os, sys
s = json.load(open(f"{sys.argv[1]}/summary.json"))
channels = sum(t["channels"] for t in s["textures"])
model = os.path.getsize(f"{sys.argv[1]}/model.safetensors")
print(s["width"], s["height"], channels, s["width"] * s["height"], s["peak_rss_bytes"], model, sep=",")
PY
done
python3 "$here/table.py"
