#!/bin/sh
# Runs every test under tests/ and fails if one fails.
failed=0
for test in tests/*.sh; do
    [ -e "$test" ] || continue
    if sh "$test"; then echo "ok   $test"; else echo "FAIL $test"; failed=1; fi
done
exit "$failed"
