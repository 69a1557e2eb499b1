#!/bin/sh
# go.uber.org/goleak v1.3.0: within a testing/synctest bubble of Go 1.26, VerifyNone(t) reports two goroutines of the package testing
# itself as leaks, in every test: the test, which waits for its bubble in synctest.Run, and the one that runs the bubble. Outside of
# bubbles it is made to "automatically skip goroutines that the testing package runs while the user's tests are running", and a
# subtest, which is made of two goroutines as well, has no leak. The documentation has one limit, t.Parallel. After the bubble, there
# is no leak.
# See options.go: isTestStack.
#
# Needs Go and access to a module proxy. Ends with status 0 while this is so.
set -eu
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT INT TERM
cd "$dir"
export GOFLAGS=-mod=mod GOWORK=off
cat > go.mod <<'END'
module finding

go 1.26.0

require go.uber.org/goleak v1.3.0
END
cat > finding_test.go <<'END'
package finding

import (
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

var top = regexp.MustCompile(`with (\S+) on top of the stack`)

func report(where string, err error) {
	fmt.Printf("%s: %t", where, err == nil)
	if err != nil {
		for _, match := range top.FindAllStringSubmatch(err.Error(), -1) {
			fmt.Print(" ", match[1])
		}
	}
	fmt.Println()
}

func TestLeak(t *testing.T) {
	report("no leak: test", goleak.Find())
	t.Run("sub", func(*testing.T) { report("no leak: subtest", goleak.Find()) })
	synctest.Test(t, func(*testing.T) { report("no leak: bubble", goleak.Find()) })
	report("no leak: after it", goleak.Find())
}
END
go test -v -count=1 ./... > log 2>&1 || { cat log >&2; exit 1; }
grep '^no leak' log > out
cat > want <<'END'
no leak: test: true
no leak: subtest: true
no leak: bubble: false internal/synctest.Run testing/synctest.testingSynctestTest
no leak: after it: true
END
diff want out
