#!/usr/bin/env bash
# Compiles the kernels for the decoder shapes of the tests as a GPU would get them: NVRTC makes a cubin for each, ptxas says how
# many registers and spilled bytes each kernel takes. Needs no GPU. Fails where a kernel does not compile, or where one of
# the common shape's main kernels spills more than a little.
#
# NVRTC and ptxas come from PyPI into target/nvrtc-venv (some 200 MB) unless NTC_NVRTC_DIR names the folder of libnvrtc.so; then
# nothing is downloaded and ptxas is left out where it is not beside it. NTC_NVRTC_ARCH is the architecture, by default sm_90.
# Arguments pass on: --common checks the common shape alone. --fetch only fetches.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=target/nvrtc-venv
if [ -z "${NTC_NVRTC_DIR:-}" ]; then
  if ! compgen -G "$venv/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13" > /dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q 'nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-nvcc==13.0.*'
  fi
  NTC_NVRTC_DIR=$(compgen -G "$venv/lib/python3*/site-packages/nvidia/cu13/lib" | head -n 1)
  export NTC_NVRTC_DIR
fi
[ "${1:-}" = --fetch ] && exit
exec python3 scripts/nvrtc_check.py "$@"
