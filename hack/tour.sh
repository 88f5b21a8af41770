#!/usr/bin/env bash
# Shows what the translator does, without a cluster: the AuthPolicy that comes out of three teams' policies, and what the
# real Authorino pipeline says to their calls. The first run compiles Authorino (a few minutes on two cores).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

case_dir=${1:-translator/testdata/composition/multi-team}

if [ ! -x bin/authorino-judge ]; then
	echo "building Authorino into bin/authorino-judge; the first time this takes about 3 minutes" >&2
fi
begin=$SECONDS
make --no-print-directory build >&2
echo "built in $((SECONDS - begin)) s" >&2

exec go run ./hack/tour "$case_dir"
