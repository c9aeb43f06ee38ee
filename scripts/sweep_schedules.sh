#!/usr/bin/env bash
# Annealing, finite differences, frozen and full decoder steps, alternating levels: what helps evolution strategies?
exec bash "$(dirname "$0")/sweep.sh" 014-schedules "$@"
