#!/usr/bin/env bash
# Codes images by the formats that textures and photographs are stored in today, and writes a table with the columns of a
# sweep's results.csv, so that `ntc-es report` puts both into one plot. The encoders come from PyPI into target/baselines-venv.
# Usage: baselines.sh TABLE.csv NAME=IMAGE[,IMAGE..].. [--like RESULTS.csv]; see baselines.py.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
venv="$root/target/baselines-venv"
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q numpy==2.* pillow imagecodecs etcpak texture2ddecoder quicktex astc-encoder-py
fi
exec "$venv/bin/python" "$root/scripts/baselines.py" "$@"
