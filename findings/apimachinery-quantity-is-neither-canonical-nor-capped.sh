#!/bin/sh
# k8s.io/apimachinery v0.37.1, package pkg/api/resource: three promises of the documentation of Quantity that ParseQuantity and String
# do not keep.
# - "Non-canonical values will still parse [...], but will be re-emitted in their canonical form", and "the sign will be omitted unless
#   the number is negative": +5, 007 and 5. are emitted as they are, also as JSON, while 1000m becomes 1. A sum with any of them is
#   canonical.
# - "No quantity may represent a number greater than 2^63-1 in magnitude [...]. Numbers larger [...] will be capped": 10Ei is capped,
#   9223372036854775808 (2^63) is not, and its Value() is negative although its Sign() is not.
# - "Nor may it have more than 3 decimal places. (E.g.: 0.1m will rounded up to 1m.)": 0.1m is 100u.
# See pkg/api/resource/quantity.go: ParseQuantity.
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

require k8s.io/apimachinery v0.37.1
END
cat > main.go <<'END'
package main

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

func main() {
	for _, text := range []string{"1000m", "+5", "007", "5.", "10Ei", "9223372036854775808", "0.1m"} {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			panic(err)
		}
		out, err := json.Marshal(q)
		if err != nil {
			panic(err)
		}
		var sum resource.Quantity
		sum.Add(q)
		fmt.Printf("%s: %s, added to nothing %s, sign %d, value %d\n", text, out, sum.String(), q.Sign(), q.Value())
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
1000m: "1", added to nothing 1, sign 1, value 1
+5: "+5", added to nothing 5, sign 1, value 5
007: "007", added to nothing 7, sign 1, value 7
5.: "5.", added to nothing 5, sign 1, value 5
10Ei: "9223372036854775807", added to nothing 9223372036854775807, sign 1, value 9223372036854775807
9223372036854775808: "9223372036854775808", added to nothing 9223372036854775808, sign 1, value -9223372036854775808
0.1m: "100u", added to nothing 100u, sign 1, value 1
END
diff want out
