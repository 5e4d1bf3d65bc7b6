#!/bin/bash
# Builds every fuzz target of the repository, which is the working directory, as OSS-Fuzz wants it. The program beside this script finds
# them. The command compile_native_go_fuzzer_v2 is of the image base-builder-go: it takes a package, a function and the name of the program.
# The first version of it cannot build targets of external test packages.
set -euo pipefail

targets=$(go run ./internal/tools/ossfuzz)
while read -r folder package function name; do
  (cd "$folder" && compile_native_go_fuzzer_v2 "$package" "$function" "$name" </dev/null)
done <<<"$targets"
