#!/usr/bin/env bash
# Runs a sweep as a Slurm job array on a slurmctld and a slurmd of its own on the loopback interface, then again, and compares the
# merged rows with those of a sweep without Slurm. Needs root, and Debian's slurm-wlm (which brings munge); both daemons and
# their files live in a temporary folder and end with this script.
# Usage: test_slurm.sh [PROGRAM], by default target/debug/ntc-es.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "${1:-target/debug/ntc-es}")
for tool in slurmctld slurmd munged sbatch squeue; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is missing; apt-get install slurm-wlm" >&2; exit 77; }
done
work=$(mktemp -d)
pids=()
finish() {
  kill "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
host=$(hostname -s)
if ! munge -n 2>/dev/null | unmunge >/dev/null 2>&1; then
  mkdir -p /run/munge /etc/munge
  [ -s /etc/munge/munge.key ] || head -c 128 /dev/urandom >/etc/munge/munge.key
  chown -R munge: /etc/munge /run/munge /var/lib/munge /var/log/munge
  chmod 400 /etc/munge/munge.key
  setpriv --reuid=munge --regid=munge --clear-groups munged --foreground >"$work/munged.log" 2>&1 &
  pids+=($!)
  sleep 2
fi
mkdir -p "$work/state" "$work/spool"
cat >"$work/slurm.conf" <<CONF
ClusterName=loopback
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=16817
SlurmdPort=16818
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$work/slurm.conf NTC_ES=$program
slurmctld -D >"$work/slurmctld.log" 2>&1 &
pids+=($!)
slurmd -D -N "$host" >"$work/slurmd.log" 2>&1 &
pids+=($!)
for _ in $(seq 60); do
  sinfo -h -o %T 2>/dev/null | grep -q idle && break
  sleep 1
done
sinfo -h -o %T | grep -q idle || { tail -n 5 "$work"/slurm*d.log >&2; exit 1; }

plan=$PWD/experiments/000-smoke/sweep.toml
submit() {
  sbatch --wait --array=1-3 --cpus-per-task=1 --chdir="$work" "$PWD/scripts/slurm_sweep.sbatch" "$plan" "$work/out"
}
# Cell, status and quality of all shards, sorted: what does not depend on time and machine.
rows() {
  python3 - "$@" <<'PY'
import csv, sys
rows = [row for path in sys.argv[1:] for row in csv.DictReader(open(path))]
for row in sorted(rows, key=lambda row: row["cell"]):
    print(row["cell"], row["status"], row["psnr_q_db"], row["file_bytes"])
PY
}
submit
rows "$work"/out/shard-*/results.csv >"$work/first"
submit
rows "$work"/out/shard-*/results.csv >"$work/again"
"$program" sweep "$plan" --out "$work/alone" --quiet
rows "$work/alone/results.csv" >"$work/wanted"
diff "$work/first" "$work/again"
diff "$work/wanted" "$work/first"
"$program" report "$work/out" >/dev/null
echo "ok: $(wc -l <"$work/wanted") cells, the same rows from three shards, twice, and from one sweep"
