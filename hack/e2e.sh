#!/usr/bin/env bash
# Builds the real components, the operator and the tests, and runs the tests in a
# network namespace that has only loopback. What is built is kept, so a second run
# starts at once.
#
#   hack/e2e.sh [REGEXP]     only the tests whose names match
#   hack/e2e.sh bench        the benchmarks of the operator, and no test
#   hack/e2e.sh bench-envoy  the benchmark of requests through Envoy, and no test
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

note() { printf '== %s\n' "$*"; }

note "components"
names=(etcd kube-apiserver minikcm authorino kuadrant-operator envoy-gateway egctl mcp-broker-router mcp-controller mcpserver mcpagent stubregistry crds)
packages=(stack e2e coverage)
# Envoy is the one component that is not built from a Go module.
if hack/components/build envoy >/dev/null; then
	names+=(envoy)
	packages+=(envoy quickstart)
else
	note "SKIPPED: test/envoy and test/quickstart, because there is no Envoy (see above)"
fi
ACCESSPOLICY_COMPONENTS=$(hack/components/build "${names[@]}")
EGTRANSLATE=$(test/coverage/build)/egtranslate
note "operator and tests"
CGO_ENABLED=0 go build -o bin/manager ./cmd/manager
CGO_ENABLED=0 go build -o bin/kubectl-accesspolicy ./cmd/kubectl-accesspolicy
# Compiled out here: in there nothing can be downloaded.
for package in "${packages[@]}"; do
	go test -c -o "bin/$package.test" "./test/$package"
done
export ACCESSPOLICY_COMPONENTS EGTRANSLATE ACCESSPOLICY_MANAGER=$root/bin/manager ACCESSPOLICY_CLI=$root/bin/kubectl-accesspolicy

if [ "${1:-}" = bench ]; then
	cd test/e2e
	for benchmark in OneEdit/100x ColdStart/1x; do
		note "${benchmark%/*}"
		"$root/hack/loopback" "$root/bin/e2e.test" -test.run '^$' -test.bench "^Benchmark${benchmark%/*}\$" \
			-test.benchtime "${benchmark#*/}"
	done
	exit
fi

if [ "${1:-}" = bench-envoy ]; then
	[[ " ${packages[*]} " == *" envoy "* ]] || exit 1
	cd test/envoy
	note "latency of requests through Envoy; load before: $(cut -d ' ' -f 1-3 /proc/loadavg)"
	"$root/hack/loopback" "$root/bin/envoy.test" -test.run '^$' -test.bench '^BenchmarkLatency$' -test.benchtime 1x
	exit
fi

failed=()
for package in "${packages[@]}"; do
	begin=$SECONDS
	note "test/$package"
	# Tests look for files beside their sources. What a passing test logs is figures;
	# the logs of components are printed by tests that fail.
	if ! (cd "test/$package" && "$root/hack/loopback" "$root/bin/$package.test" -test.v -test.timeout 60m -test.run "${1:-.}") |
		grep -Ev '^=== (RUN|PAUSE|CONT|NAME)'; then
		failed+=("test/$package")
	fi
	note "test/$package: done in $((SECONDS - begin)) s"
done
if [ "${#failed[@]}" -gt 0 ]; then
	note "failed in: ${failed[*]}"
	exit 1
fi
