#!/usr/bin/env bash
# One grid or two, and how are they read?
exec bash "$(dirname "$0")/sweep.sh" 012-levels-and-filters "$@"
