#!/usr/bin/env bash
# Four maps in one record, or each by itself?
exec bash "$(dirname "$0")/sweep.sh" 015-materials "$@"
