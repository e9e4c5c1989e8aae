#!/bin/sh
# Installs the Claude Code version the tests are pinned to, once, under the directory given, and
# prints the program's path. Never into the system, never under version control.
set -eu

version=2.1.197
package=@anthropic-ai/claude-code
dir=$1

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
# Several test programs may start at the same time; one installs, the others wait.
exec 9>"$dir/.lock"
flock -w 600 9

manifest=$dir/node_modules/$package/package.json
program=$dir/node_modules/.bin/claude
if ! grep -q "\"version\": *\"$version\"" "$manifest" 2>/dev/null || ! [ -x "$program" ]; then
    command -v npm >/dev/null || {
        echo "npm is not installed, so Claude Code cannot be" >&2
        exit 1
    }
    timeout 500 npm install --prefix "$dir" --no-audit --no-fund --loglevel=error \
        "$package@$version" >&2
fi
echo "$program"
