#!/bin/sh
# notes: one-line notes in a file, notes.txt unless NOTES says otherwise.
file=${NOTES:-notes.txt}
command=$1
[ $# -gt 0 ] && shift
case "$command" in
*) echo "usage: notes.sh COMMAND" >&2; exit 2 ;;
esac
