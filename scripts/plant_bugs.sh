#!/usr/bin/env bash
# Plants known faults one at a time in a copy of the kernels or of the launch code, and runs tests/cuda.rs on the emulation: it
# must fail on each. Needs cargo and a C++ compiler; nothing of the working tree changes.
#
# A fault is: name | cases that the test is limited to (part of a name, may be empty) | file | text | its replacement.
# Faults in kernels/ need no build; one in src/ is built from a copy of the tree into target/planted: in target/ itself cargo
# would take what it made for the tree's own.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CARGO_TARGET_DIR=$target NTC_CACHE_DIR=$target/tmp/kernels NTC_EMU_ORDER=${NTC_EMU_ORDER:-1}

faults() {
  cat <<'FAULTS'
missing barrier behind a decoded tile|deblocked|kernels/evaluate.cu|    }\n    __syncthreads();\n}|    }\n}
missing barrier behind a pair's tile|deblocked|kernels/latent_es.cu|    }\n    __syncthreads();\n    const i64 texels|    }\n    const i64 texels
missing barrier in the credits' sum|few latents|kernels/latent_es.cu|parts[threadIdx.x + half];\n            }\n            __syncthreads();|parts[threadIdx.x + half];\n            }
missing guard in Adam|bilinear|kernels/adam.cu|    if (i >= count) {\n        return;\n    }|
missing guard in the batch|bilinear|kernels/minibatch.cuh|    if (i >= count) {\n        return;\n    }|
swapped arguments|bilinear|src/backend/cuda/launch.rs|            unit: f32 = unit,\n            h: f32 = h,|            unit: f32 = h,\n            h: f32 = unit,
grid rounded down|bilinear|src/backend/cuda/launch.rs|"adam_step"), (count.div_ceil(THREADS), 1)|"adam_step"), (count / THREADS, 1)
wrong stride of a batch's rows|bilinear|kernels/decoder_es.cu|shape::INPUTS + k) * batch.stride|shape::INPUTS + k) * batch.count
wrong stride of a level|two levels|kernels/scene.cuh|(i64)level.y1[py] * level.width|(i64)level.y1[py] * (level.width + 1)
unclipped border of the filter|deblocked|kernels/tile.cuh|px + 1 < scene.width ? out[at + 1] : c|out[at + 1]
unclipped border of a batch's neighbour|deblocked|kernels/minibatch.cuh|py + 1 < scene.height ? py + 1 : scene.height - 1|py + 1
double credit at a clamped border|bilinear|kernels/latent_es.cu|sum += d[row * texels + (u64)py * width + px];|sum += d[row * texels + (u64)py * width + px] * (px == 0 ? 2 : 1);
double credit where ranges meet|deblocked|kernels/latent_es.cu|sum += d[row * texels + (u64)py * width + px];|sum += d[row * texels + (u64)py * width + px] * (in_x && in_y && across > 4 ? 2 : 1);
stale constant of exp, Taylor's in place of ours|bilinear|kernels/math.cuh|0.16666488f|0.16666667f
stale constant of Adam|bilinear|kernels/adam.cu|beta2 = 0.999f|beta2 = 0.99f
tie rule of the search|ties|kernels/selector_search.cu|error < least|error <= least
order of trial in the search|ties|kernels/selector_search.cu|k == 0 ? now : k <= now ? k - 1 : k|k
multiply-add that rounds twice|bilinear|kernels/mlp.cuh|sum[t] = fmaf(w[j], x[t][i], sum[t]);|sum[t] = w[j] * x[t][i] + sum[t];
noise of the wrong pair|bilinear|kernels/noise.cu|first_pair + blockIdx.y, step|blockIdx.y, step
tap weight of Gauss-Newton's rows|bilinear|kernels/gauss_newton.cu|gy * gy, gy * fy, fy * fy|gy * gy, gy * fy, fy * gy
chunk that forgets the ones before|bilinear|kernels/gauss_newton.cu|column + x] += (double)sum[k]|column + x] = (double)sum[k]
error of another element|bilinear|kernels/gauss_newton.cu|columns + element_x[px]|columns + element_x[0]
unit of another layer bumped|bilinear|kernels/gauss_newton.cu|y, unit - OUT, h, out|y, unit % shape::WIDTH[LAYER + 2], h, out
missing barrier in the product of columns|bilinear|kernels/gauss_newton.cu|        }\n        __syncthreads();\n        for (u32 n = 0|        }\n        for (u32 n = 0
grid never rounded up|bilinear|kernels/gauss_newton.cu|x - whole >= 0.5f|x - whole >= 1.5f
rounding of losses to the even|ties|kernels/scene.cuh|(v + whole) - whole|truncf(v)
FAULTS
}

# $1 file, $2 text, $3 replacement: once in the file, else the fault is out of date.
plant() {
  python3 - "$@" <<'PY'
import sys
path, old, new = sys.argv[1], *(text.replace("\\n", "\n") for text in sys.argv[2:])
text = open(path, encoding="utf-8").read()
if old not in text:
    sys.exit(f"{path} does not hold: {old}")
open(path, "w", encoding="utf-8").write(text.replace(old, new))
PY
}

run() {
  local into=$target
  [ "$1" = "$root" ] || into=$target/planted
  (cd "$1" && CARGO_TARGET_DIR=$into NTC_TEST_CASES=$2 cargo test -q --features emu --test cuda -- --exact verbs --ignored)
}

echo "building"
cargo test -q --features emu --test cuda --no-run
planted=0 caught=0
while IFS='|' read -r name cases file old new; do
  planted=$((planted + 1))
  rm -rf "$work/tree" && mkdir "$work/tree"
  if [[ $file == kernels/* ]]; then
    cp kernels/*.cu kernels/*.cuh "$work/tree"
    plant "$work/tree/${file#kernels/}" "$old" "$new"
    export NTC_KERNELS_DIR=$work/tree
    tree=$root
  else
    git ls-files -z | xargs -0 cp --parents -t "$work/tree"
    plant "$work/tree/$file" "$old" "$new"
    unset NTC_KERNELS_DIR
    tree=$work/tree
  fi
  if run "$tree" "$cases" > "$work/log" 2>&1; then
    echo "MISSED  $name ($file)"
  elif ! grep -qE 'panicked|emulated GPU|signal' "$work/log"; then
    echo "BROKEN  $name ($file): the test did not run"
    tail -n 5 "$work/log"
  else
    caught=$((caught + 1))
    echo "caught  $name ($file): $(grep -m 1 -E 'DIFFERENT|CUDA:|emulated GPU' "$work/log" | cut -c 1-100 || true)"
  fi
done < <(faults)
echo "$caught of $planted planted faults caught"
[ "$caught" -eq "$planted" ]
