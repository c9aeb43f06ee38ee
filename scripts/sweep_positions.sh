#!/usr/bin/env bash
# Which position features help the decoder?
exec bash "$(dirname "$0")/sweep.sh" 013-positions "$@"
