#!/usr/bin/env bash
# Runs the benchmarks: translation with the Go benchmark runner, decisions in Authorino's own pipeline. Figures of one run
# can be compared with each other, not with those of another machine or day.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

make --no-print-directory build >&2
echo "== translation and emission of one Gateway"
go test ./translator -run '^$' -bench Translate -benchtime 10x -benchmem
echo "== one decision in Authorino, beside a constant predicate and one evaluator per rule"
go test ./test/differential -run '^$' -bench Decision -benchtime 1x
