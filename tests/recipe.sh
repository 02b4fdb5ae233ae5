#!/usr/bin/env bash
# make's shell within make check: runs a line of a recipe, and appends a line to CHECK_BUILDS, as check.sh
# describes. Arguments: the target (none: of a $(shell)), -c, the line.
target=${1#-c}
[ -z "$target" ] || shift
[ -n "$target" ] || exec sh "$@"
TIMEFORMAT=$'%R\tok\tbuild\t'"$target"$'\t'"make $target"$'\t%U\t%S'
{ time sh "$@" 2>&3 3>&-; } 3>&2 2>>"$CHECK_BUILDS"
