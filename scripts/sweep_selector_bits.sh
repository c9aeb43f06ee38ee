#!/usr/bin/env bash
# How many bits should a selector have, and does a second selector channel pay?
exec bash "$(dirname "$0")/sweep.sh" 010-selector-bits "$@"
