#!/bin/sh
# Installs one pinned agent CLI from npm, once, under a directory of its own, and prints its path.
# Never into the system, never under version control.
#
#   install-agent.sh DIRECTORY PACKAGE VERSION PROGRAM
set -eu

dir=$1
package=$2
version=$3
name=$4

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
# Several test programs may start at the same time; one installs, the others wait.
exec 9>"$dir/.lock"
flock -w 600 9

manifest=$dir/node_modules/$package/package.json
program=$dir/node_modules/.bin/$name
if ! grep -q "\"version\": *\"$version\"" "$manifest" 2>/dev/null || ! [ -x "$program" ]; then
    command -v npm >/dev/null || {
        echo "npm is not installed, so $package cannot be" >&2
        exit 1
    }
    timeout 500 npm install --prefix "$dir" --no-audit --no-fund --loglevel=error \
        "$package@$version" >&2
fi
echo "$program"
