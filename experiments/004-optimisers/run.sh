#!/usr/bin/env bash
# Fits every case below and leaves results.csv, curves.csv, the tables in README.md and the plots beside this script. A case
# that has a summary is not fitted again, so a stopped run goes on. About 2 CPU-hours; the order is that of the questions.
# Usage: run.sh FOLDER [FOLDER FOR THE RUNS]; FOLDER holds kodak/kodim23.png and materials/pavingstones070/*.png.
set -euo pipefail
data="$(realpath "$1")"
runs="$(realpath -m "${2:-out-004}")"
here="$(cd "$(dirname "$0")" && pwd)"
cd "$here/../.."
cargo build --release
mkdir -p "$runs"
photo="$data/kodak/kodim23.png"
paving="$data/materials/pavingstones070"
stones="$paving/normal.png $paving/roughness.png $paving/albedo.png $paving/ao.png --channels rgb"
bundled="data/m1.png data/m2.png data/m3.png data/m4.png --channels rgb"

# fit GROUP CASE IMAGES-AND-FLAGS...
fit() {
  local out="$runs/$1/$2"
  [ -e "$out/summary.json" ] || target/release/ntc-es --quiet --save-every 100000 --out "$out" "${@:3}" >/dev/null
  echo "$1 $2"
}
gn="--optimizer gn --mlp 36,36 --print-every 5"
level0="--qat 2 --latent 0 0 1"
mixed="--filter nearest,bilinear"

# The records whose quality GAUSS_NEWTON names, in whole: 512 x 512 texels.
# shellcheck disable=SC2086 # the flags are words, here and below
records() {
  fit records 2+128x128x2x8-nearest $photo $gn $level0 --latent2 128 128 2 --filter nearest --lat-bits 0,8
  fit records 2+128x128x4x8-bilinear $photo $gn $level0 --latent2 128 128 4 $mixed --lat-bits 0,8
  fit records 2+64x64x6x6-bilinear $photo $gn $level0 --latent2 64 64 6 $mixed --lat-bits 0,6
  fit records 128x128x8x4-bilinear $photo $gn --latent 128 128 8 --lat-bits 4
  fit records 22+128x128x4x8-bilinear $stones $gn --qat 2,2 --latent 0 0 2 --latent2 128 128 4 $mixed --lat-bits 0,8
  fit records 2+128x128x4x8-bilinear-100 $photo $gn $level0 --latent2 128 128 4 $mixed --lat-bits 0,8 --iters 100
}

# CPU-seconds to the reference's 32.48 dB.
target() {
  local end="--optimizer gn $level0 --latent2 128 128 4 $mixed --print-every 1 --target-psnr 32.48"
  fit target 24,24 $photo $end
  fit target 16,16 $photo $end --mlp 16,16
}

# 256 x 256 texels from here on.
small="--crop 256"
block="$level0 --latent2 64 64 4 $mixed"

optimisers() {
  local es="--mlp 36,36 --print-every 20" image
  for image in "kodim23 $photo" "pavingstones070 $stones" "bundled $bundled"; do
    local name="${image%% *}" files="${image#* } $small $block"
    fit optimisers $name-gn $files $gn
    fit optimisers $name-es $files $es --act tanh --iters 1500
    fit optimisers $name-es-pca $files $es --act tanh --iters 1500 --init pca
    fit optimisers $name-es-leaky $files $es --iters 1500
    fit optimisers $name-es-fd-end $files $es --act tanh --iters 1500 --mlp-fd 0.75
    fit optimisers $name-es-fd $files $es --act tanh --iters 1000 --mlp-fd 0
    fit optimisers $name-latfd-fd $files $es --act tanh --iters 1000 --mlp-fd 0 --lat-grad fd
  done
}

estimators() {
  local es="$photo $small $block --mlp 36,36 --act tanh --print-every 20 --iters 1000"
  fit estimators gaussian $es
  fit estimators rademacher $es --es-dist rademacher
  fit estimators spsa $es --es-dist rademacher --lat-pairs 1 --mlp-pairs 1
  fit estimators phases $es --lat-phases
  fit estimators phases-rademacher $es --lat-phases --es-dist rademacher
  fit estimators lat-grad-fd $es --lat-grad fd
}

grid() {
  local filter
  for filter in nearest,nearest nearest,bilinear; do
    fit grid $filter-float $photo $small $gn $level0 --latent2 64 64 4 --filter $filter --qbits 16
    for bits in 4 5 6 8; do
      fit grid $filter-$bits $photo $small $gn $level0 --latent2 64 64 4 --filter $filter --lat-bits 0,$bits
    done
  done
  fit grid nearest,bilinear-4-start-0.1 $photo $small $gn $block --lat-bits 0,4 --lat-bits-start 0.1
  fit grid nearest,bilinear-post-4 $photo $small $gn $block --qbits 4
  fit grid nearest,bilinear-8-mlp8 $photo $small $gn $block --lat-bits 0,8 --mlp-bits 8
}

settings() {
  local seed
  for seed in 1 2; do
    fit settings act-tanh-$seed $photo $small $gn $block --seed $seed
    fit settings act-leaky-$seed $photo $small $gn $block --act leaky --seed $seed
    fit settings mlp-steps-1-$seed $photo $small $gn $block --gn-mlp-steps 1 --seed $seed
    fit settings steps-3-$seed $photo $small $gn $block --gn-mlp-steps 3 --gn-lat-steps 3 --seed $seed
  done
  fit settings init-random-1 $photo $small $gn $block --init random
  fit settings pos-none-1 $photo $small $gn $block --pos none
  fit settings pos-lv1local-1 $photo $small $gn $block --pos lv1local
  fit settings texels-4096-1 $photo $small $gn $block --gn-texels 4096
  fit settings texels-16384-1 $photo $small $gn $block --gn-texels 16384
  fit settings h-1e-2-1 $photo $small $gn $block --gn-h 1e-2 1e-2
  fit settings h-1e-4-1 $photo $small $gn $block --gn-h 1e-4 1e-4
}

width() {
  for units in 24 36 48 64; do
    fit width $units $photo $small ${gn/36,36/$units,$units} $block --lat-bits 0,8
    fit width $units-mlp8 $photo $small ${gn/36,36/$units,$units} $block --lat-bits 0,8 --mlp-bits 8
  done
}

# Channels and bits of the block level at 30 to 33 bits a block.
channels() {
  for shape in "4 8" "5 6" "6 5" "8 4"; do
    fit channels ${shape/ /x} $photo $small $gn $level0 --latent2 64 64 ${shape% *} $mixed --lat-bits 0,${shape#* }
  done
  fit channels 2x8 $photo $small $gn $level0 --latent2 64 64 2 $mixed --lat-bits 0,8
}

cells() {
  local cell filter
  for cell in 4 6 8; do
    for filter in nearest nearest,bilinear; do
      fit cells $cell-$filter $photo $small $gn $level0 --block $cell --latent2 0 0 4 --filter $filter --lat-bits 0,8
    done
  done
}

joint() {
  local two="--qat 1,1 --latent 0 0 2 --latent2 64 64 4 $mixed --lat-bits 0,8"
  fit joint kodim23-sequential $photo $small $gn $two
  fit joint kodim23-joint $photo $small $gn $two --qat-joint
  two="--qat 2,2 --latent 0 0 2 --latent2 64 64 4 $mixed --lat-bits 0,8"
  fit joint pavingstones070-sequential $stones $small $gn $two
  fit joint pavingstones070-joint $stones $small $gn $two --qat-joint
}

for group in ${GROUPS_TO_RUN:-records target grid channels cells width settings estimators joint optimisers}; do "$group"; done
python3 "$here/table.py" "$runs"
python3 -c "import matplotlib" 2>/dev/null && python3 "$here/plot.py" || echo "no plots: matplotlib is missing"
