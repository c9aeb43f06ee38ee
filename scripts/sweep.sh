#!/usr/bin/env bash
# Runs the sweep of one experiment and puts its table and plots beside its plan; started again it goes on.
# Usage: sweep.sh EXPERIMENT [FLAGS OF ntc-es sweep]; the runs go to target/sweeps/EXPERIMENT.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
shift
here=experiments/$name
out=target/sweeps/$name
cargo build --release
target/release/ntc-es sweep "$here/sweep.toml" --out "$out" "$@"
cp "$out/results.csv" "$here/"
if [ ! -e "$here/README.md" ]; then
  printf '# %s\n\n**Question.** %s\n\n**Command.** `scripts/sweep.sh %s`\n\n<!-- table -->\n<!-- end -->\n' \
    "$name" "$(sed -n 's/^# //p' "$here/sweep.toml" | head -n 1)" "$name" >"$here/README.md"
fi
target/release/ntc-es report "$out" --into "$here/README.md"
cp "$out"/*.svg "$here/"
