#!/bin/sh
# github.com/go-gremlins/gremlins v0.6.0, "gremlins unleash --diff COMMIT": mutation testing of what has changed since a commit. Two changed lines
# that are so near to each other that git prints them as one hunk, with up to six unchanged lines in between, are not both mutated: the second one
# is skipped, and nothing says so. Of one hunk, it takes as changed only as many lines as were added in it, from the first of them on, as if they
# followed each other. One would expect the same as when the two changes are far apart: both lines are mutated.
# See internal/diff/diff.go: newChanges, EndLine.
#
# Needs Go, git and access to a module proxy. Ends with status 0 while this is so.
set -eu
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT INT TERM
cd "$dir"
export GOFLAGS=-mod=mod GOWORK=off GOBIN="$dir/bin" GIT_CONFIG_GLOBAL=/dev/null
go install github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0 2> log || { cat log >&2; exit 1; }

# calc writes a program with two functions; between the lines that compare are four lines and $2. $1 is what they compare.
calc() {
	printf 'package finding\n\nfunc first(a, b int) bool {\n\treturn %s\n}\n%b\nfunc second(a, b int) bool {\n\treturn %s\n}\n' "$1" "$2" "$1"
}
try() {
	mkdir module && cd module
	printf 'module finding\n\ngo 1.26.0\n' > go.mod
	printf 'package finding\n\nimport "testing"\n\nfunc TestBoth(t *testing.T) {\n\tif first(1, 1) || second(1, 1) {\n\t\tt.Error()\n\t}\n}\n' > calc_test.go
	calc 'a < b' "$1" > calc.go
	git init --quiet && git add . && git -c user.name=a -c user.email=a@example.com commit --quiet --message one
	calc 'b > a' "$1" > calc.go
	../bin/gremlins unleash --dry-run --diff HEAD > ../log 2>&1 || { cat ../log >&2; exit 1; }
	sed -n 's/^ *\(RUNNABLE\|SKIPPED\) CONDITIONALS_NEGATION at \(calc.go:[0-9]*\).*/\1 \2/p' ../log | sort
	cd .. && rm -rf module
}
{
	echo "far apart:"
	try '\n\n\n\n\n\n\n'
	echo "near:"
	try ''
} > out
cat > want <<'END'
far apart:
RUNNABLE calc.go:15
RUNNABLE calc.go:4
near:
RUNNABLE calc.go:4
SKIPPED calc.go:8
END
diff want out
