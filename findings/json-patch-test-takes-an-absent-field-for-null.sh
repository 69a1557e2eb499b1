#!/bin/sh
# gopkg.in/evanphx/json-patch.v4 v4.13.0, with which the API server applies JSON patches, and client-go's fake clientset, too: the operation
# "test" is weaker and stronger than RFC 6902 has it (section 4.6), which the README names as its format. A member that does not exist equals
# null: {"op": "test", "path": "/a", "value": null} succeeds for {}, while the RFC tests "that a value at the target location is equal", and
# there is none. With a parent that does not exist, it fails as expected. And numbers are compared by their text: 1 is not equal to 1.0 and
# 1e0, while the RFC has numbers equal if they are "numerically equal".
# See patch.go: Patch.test, lazyNode.equal.
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

require gopkg.in/evanphx/json-patch.v4 v4.13.0
END
cat > main.go <<'END'
package main

import (
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

func main() {
	const document = `{"null": null, "one": 1}`
	for _, test := range []string{
		`{"op": "test", "path": "/null", "value": null}`,
		`{"op": "test", "path": "/absent", "value": null}`,
		`{"op": "test", "path": "/absent", "value": 1}`,
		`{"op": "test", "path": "/absent/child", "value": null}`,
		`{"op": "test", "path": "/one", "value": 1}`,
		`{"op": "test", "path": "/one", "value": 1.0}`,
		`{"op": "test", "path": "/one", "value": 1e0}`,
	} {
		patch, err := jsonpatch.DecodePatch([]byte("[" + test + "]"))
		if err != nil {
			panic(err)
		}
		_, err = patch.Apply([]byte(document))
		fmt.Printf("%s: succeeds %t\n", test, err == nil)
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
{"op": "test", "path": "/null", "value": null}: succeeds true
{"op": "test", "path": "/absent", "value": null}: succeeds true
{"op": "test", "path": "/absent", "value": 1}: succeeds false
{"op": "test", "path": "/absent/child", "value": null}: succeeds false
{"op": "test", "path": "/one", "value": 1}: succeeds true
{"op": "test", "path": "/one", "value": 1.0}: succeeds false
{"op": "test", "path": "/one", "value": 1e0}: succeeds false
END
diff want out
