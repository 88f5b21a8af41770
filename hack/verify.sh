#!/usr/bin/env bash
# Checks that what is generated is what the sources generate, and that formatting
# and go.mod files are as the go command wants them. Everything happens in a copy
# of the tree (tracked files and new ones that are not ignored), so that a check
# changes nothing. For each finding it prints the command that mends it.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
failed=0

note() { printf '== %s\n' "$*"; }

# finding WHAT COMMAND
finding() {
	failed=1
	printf 'FAIL: %s\n      mend it with: %s\n' "$1" "$2"
}

copy_tree() {
	git ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' file; do
			# A file that is deleted but still tracked is listed too.
			if [ -e "$file" ] || [ -L "$file" ]; then
				printf '%s\0' "$file"
			fi
		done |
		tar --null --files-from=- -cf - |
		tar -xf - -C "$copy"
	# An index of its own shows what the generators change.
	git -C "$copy" init -q
	git -C "$copy" add -A
}

# regenerate TARGET
regenerate() {
	local target=$1
	note "make $target"
	if ! make -C "$copy" --no-print-directory "$target"; then
		finding "make $target does not run" "make $target, and read what it says"
	fi
	git -C "$copy" add -A -N
	if ! git -C "$copy" --no-pager diff --exit-code; then
		finding "make $target changes the files above" "make $target"
	fi
	# Only what the next target changes is to be laid at its door.
	git -C "$copy" add -A
}

formatting() {
	note "gofmt"
	local files
	files=$(gofmt -l "$copy")
	if [ -n "$files" ]; then
		printf '%s\n' "${files//"$copy"\//}"
		finding "gofmt wants to change the files above" "gofmt -w ."
	fi
}

# module FOLDER
module() {
	local folder=$1
	if [ -z "$(find "$copy/$folder" -name '*.go' -print -quit)" ]; then
		tool_module "$folder"
		return
	fi
	note "$folder: go vet, go mod tidy -diff"
	if ! go -C "$copy/$folder" vet ./...; then
		finding "go vet finds fault in $folder" "go -C $folder vet ./..., and read what it says"
	fi
	local diff
	if ! diff=$(go -C "$copy/$folder" mod tidy -diff); then
		# The part about go.sum is long and says nothing more.
		printf '%s\n' "$diff" | sed '/^diff current\/go.sum/,$d'
		finding "go.mod or go.sum in $folder is not tidy" "go -C $folder mod tidy"
	fi
}

# tool_module FOLDER checks a module that only says which version of a tool is
# built. `go mod tidy` would also look at the tests of everything that the tool
# depends on, which nobody here builds and which do not all resolve (Authorino
# v0.27.0: two modules have cloud.google.com/go/compute/metadata).
tool_module() {
	local folder=$1
	note "$folder: go list -deps tool"
	if ! go -C "$copy/$folder" list -mod=readonly -deps tool >/dev/null; then
		finding "go.mod or go.sum in $folder lacks what its tool needs" "go -C $folder get -tool \$(go -C $folder list tool)"
	fi
}

begin=$SECONDS
copy_tree
formatting
for target in generate manifests golden; do
	regenerate "$target"
done
while IFS= read -r mod; do
	folder=$(dirname "$mod")
	module "${folder#./}"
done < <(cd "$copy" && find . -name go.mod | sort)

if [ "$failed" -ne 0 ]; then
	note "verify failed after $((SECONDS - begin)) s; the commands above are for $root"
	exit 1
fi
note "verified in $((SECONDS - begin)) s"
