#!/usr/bin/env bash
# Runs each fuzz test of the main module for FUZZTIME, one after the other: the go
# command fuzzes one function of one package at a time.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
fuzztime=${FUZZTIME:-30s}
count=0

while read -r package; do
	while read -r target; do
		printf '== %s %s for %s\n' "$package" "$target" "$fuzztime"
		go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" </dev/null
		count=$((count + 1))
	done < <(go test "$package" -run '^$' -list '^Fuzz' | grep '^Fuzz' || true)
done < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...)

printf '== %s fuzz tests\n' "$count"
