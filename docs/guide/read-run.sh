#!/bin/sh
# Prints what a run did, from a plain clone: git, sed and awk are enough (jq, if it is there,
# for the cost). Reads only; works on bare clones too. dex is not needed.
#
#   sh read-run.sh [BRANCH]    BRANCH: a run's branch, e.g. dex/2026-07-28-4f0c1a or
#                              origin/dex/2026-07-28-4f0c1a; default: the newest run there is
set -eu
export LC_ALL=C TZ=UTC0 GIT_OPTIONAL_LOCKS=0

die() {
  echo "read-run: $1" >&2
  exit "${2:-3}"
}

git rev-parse --git-dir >/dev/null 2>&1 || die "not in a git repository" 2

# Every run is a branch dex/<date>-<id>; in a fresh clone it is a remote-tracking one.
branch=${1:-$(git for-each-ref --sort=-committerdate --count=1 --format='%(refname)' \
  'refs/heads/dex/*' 'refs/remotes/*/dex/*')}
[ -n "$branch" ] || die "no run here: there is no branch dex/*"
tip=$(git rev-parse --verify --quiet --end-of-options "$branch^{commit}") ||
  die "no branch or commit '$branch'"

# One line per stage commit, oldest first: cycle, stage, feature, time. A stage commit has a first
# line of a fixed form and, right below, a marker that agrees with it. Git shows both lines as one
# subject, so the raw message (%B) is read. %x1e and %x1f cannot occur in a message line of ours.
stages() {
  git log --first-parent --reverse --date=format-local:'%Y-%m-%d %H:%M:%S' \
    --format='%x1e%cd%x1f%B' "$tip" -- | awk '
    BEGIN { RS = "\036"; FS = "\037" }
    {
      count = split($2, line, "\n")
      for (i = 1; i <= count; i++) sub(/\r$/, "", line[i])
      if (line[1] !~ /^dex: [a-z][a-z0-9_]* completed \[cycle:[0-9]+\]( \[feature:[A-Za-z0-9._\/-]+\])?( \[cost:[$][0-9.]+\])?$/) next
      stage = line[1]; sub(/^dex: /, "", stage); sub(/ completed .*$/, "", stage)
      cycle = line[1]; sub(/^[^[]*\[cycle:/, "", cycle); sub(/\].*$/, "", cycle)
      feature = "-"
      if (match(line[1], /\[feature:[A-Za-z0-9._\/-]+\]/))
        feature = substr(line[1], RSTART + 9, RLENGTH - 10)
      marker = line[2]
      if (marker == "" && count > 2) marker = line[3]
      if (marker != "" && marker != "[checkpoint:" stage ":" cycle "]") next
      printf "%s\t%s\t%s\t%s\n", cycle, stage, feature, $1
    }'
}

found=$(stages)
[ -n "$found" ] || die "no stage commits on $branch"
echo "run $(printf '%s' "$branch" | sed -e 's,^refs/heads/,,' -e 's,^refs/remotes/,,')"

echo
echo "features, in the order they were worked on:"
printf '%s\n' "$found" | awk -F '\t' '
  $1 > 0 && $3 != "-" {
    if (!($3 in cycles)) { order[++n] = $3 }
    if (index(cycles[$3] " ", " " $1 " ") == 0) cycles[$3] = cycles[$3] " " $1
    count[$3]++
  }
  END {
    if (n == 0) print "  none yet"
    for (i = 1; i <= n; i++) printf "  %d. %s (cycle%s, %d stages)\n", i, order[i], cycles[order[i]], count[order[i]]
  }'

echo
echo "stages, oldest first (times in UTC):"
printf '%s\n' "$found" | awk -F '\t' '{ printf "  %3d. cycle %s  %-24s %-30s %s\n", NR, $1, $2, $3, $4 }'

# The cost is in the run's record, one file per run, on the branch itself. The last six
# characters of a run id are the end of the branch's name; a fork has the file it was started with.
echo
suffix=$(printf '%s' "$branch" | sed -n 's,.*dex/[0-9-]*-\([0-9a-f]\{6\}\)$,\1,p')
record=$(git ls-tree --name-only "$tip" .dex/runs/ |
  awk -v suffix="$suffix" '/\.json$/ { if (!last || suffix == "" || index($0, suffix ".json")) last = $0 } END { print last }')
if [ -z "$record" ]; then
  echo "cost: no record in .dex/runs/ on this branch"
elif command -v jq >/dev/null 2>&1; then
  git cat-file blob "$tip:$record" | jq -r '
    [(.phases // .agentRuns // [])[] | select(.agent)] as $attempts
    | "cost: " + (if .totalCostUsd == null then "not reported" else "$\(.totalCostUsd)" end)
      + " in \($attempts | length) attempts"'
  echo "  by: jq '.totalCostUsd, ([.phases[] | select(.agent)] | length)' $record"
else
  git cat-file blob "$tip:$record" |
    sed -n 's/^  "totalCostUsd": *\(.*[^,]\),\{0,1\}$/\1/p' |
    awk 'NR == 1 { cost = $0 } END { print "cost: " (cost == "" || cost == "null" ? "not reported" : "$" cost) }'
  echo "  in $record (install jq for more)"
fi
