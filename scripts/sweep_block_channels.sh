#!/usr/bin/env bash
# How many channels should a block have, and at how many bits each?
exec bash "$(dirname "$0")/sweep.sh" 011-block-channels "$@"
