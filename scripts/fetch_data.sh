#!/usr/bin/env bash
# Fetches public test images into a folder: Kodak photographs, and the ambientCG material of the study. Nothing in the project needs
# them; data/ is enough for every command. Started again it resumes, and leaves what is complete alone.
# Usage: fetch_data.sh DIR [kodak] [ambientcg]; both where none is named. KODAK_URL and AMBIENTCG_URL name mirrors.
# Each photograph's SHA-256 is checked. ambientCG packs its archives anew from time to time, so that archive's sum is written
# beside it at the first download and only held from then on.
set -euo pipefail
if [ $# -lt 1 ]; then
  echo "fetch_data.sh: give the folder to fetch into" >&2
  exit 2
fi
mkdir -p "$1"
cd "$1"
shift
kodak_url=${KODAK_URL:-https://r0k.us/graphics/kodak/kodak}
ambientcg_url=${AMBIENTCG_URL:-https://ambientcg.com/get?file=}

# fetch URL FILE [SHA256]: the file takes its name only when it is whole and its sum is right.
fetch() {
  local url=$1 file=$2 sum=${3:-}
  [ -n "$sum" ] || { [ ! -f "$file.sha256" ] || sum=$(cat "$file.sha256"); }
  if [ ! -f "$file" ]; then
    mkdir -p "$(dirname "$file")"
    curl --fail --location --silent --show-error --retry 3 --continue-at - --output "$file.part" "$url"
  fi
  local got
  got=$(sha256sum "$(if [ -f "$file" ]; then echo "$file"; else echo "$file.part"; fi)" | cut -d' ' -f1)
  if [ -n "$sum" ] && [ "$got" != "$sum" ]; then
    rm -f "$file.part" # a resumed download would keep what is wrong
    echo "fetch_data.sh: $file: SHA-256 is $got, should be $sum" >&2
    return 1
  fi
  [ -n "${3:-}" ] || echo "$got" > "$file.sha256"
  [ -f "$file" ] || mv "$file.part" "$file"
  echo "$file: $got"
}

kodak() {
  echo "Kodak photographs: released by Kodak for unrestricted use"
  while read -r name sum; do
    fetch "$kodak_url/$name.png" "kodak/$name.png" "$sum"
  done <<'SUMS'
kodim01 a56e27cbf5f843c048b6af1d6e090760e9c92fadba88b7dee0205918a37523bd
kodim02 4f4b74a79237e311d72cad958237b5f7088d8bce1c82305ebefe1a70e3022dfd
kodim03 e25ca1ff2f0c0cb5fdfd5f9b0a0bb21ac4c3de3c84a67f35b09a85d3306249db
kodim05 10349e963c5c813d327852f82c1795fa4148d69fedffc4c589bee458e3ac3d53
kodim19 b7450b264b1b0a411390d8931b112c27905a992520fc90569dc4b920aa32bbdc
kodim23 e3111a2fd4da24af15d6459ef9eacfe54106b38e27b4a21821b75c3f5d2d5baf
SUMS
}

ambientcg() {
  echo "ambientCG PavingStones070: CC0 1.0"
  fetch "${ambientcg_url}PavingStones070_1K-PNG.zip" materials/PavingStones070_1K-PNG.zip
}

[ $# -gt 0 ] || set -- kodak ambientcg
for set in "$@"; do
  case "$set" in
    kodak | ambientcg) "$set" ;;
    *) echo "fetch_data.sh: $set: give kodak or ambientcg" >&2; exit 2 ;;
  esac
done
