#!/bin/sh
# k8s.io/apimachinery v0.37.1, package util/yaml: ToJSON is documented to convert a YAML document into JSON. A document in flow
# style, which is valid YAML and begins with "{", is taken for JSON by its first character and returned as it is. So the "JSON" of
#   {apiVersion: v1, kind: ConfigMap}
# is the same text, which encoding/json rejects, without an error from ToJSON. The same document in block style is converted, and
# so is the flow document by sigs.k8s.io/yaml v1.6.0, with which other parts of the same project read manifests.
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

require (
	k8s.io/apimachinery v0.37.1
	sigs.k8s.io/yaml v1.6.0
)
END
cat > main.go <<'END'
package main

import (
	"encoding/json"
	"fmt"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

func show(name string, convert func([]byte) ([]byte, error), document string) {
	out, err := convert([]byte(document))
	fmt.Printf("%s: error %v, JSON: %t, %s\n", name, err, json.Valid(out), out)
}

func main() {
	const flow, block = "{apiVersion: v1, kind: ConfigMap}", "apiVersion: v1\nkind: ConfigMap\n"
	show("util/yaml, flow", utilyaml.ToJSON, flow)
	show("util/yaml, block", utilyaml.ToJSON, block)
	show("sigs.k8s.io/yaml, flow", yaml.YAMLToJSON, flow)
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
util/yaml, flow: error <nil>, JSON: false, {apiVersion: v1, kind: ConfigMap}
util/yaml, block: error <nil>, JSON: true, {"apiVersion":"v1","kind":"ConfigMap"}
sigs.k8s.io/yaml, flow: error <nil>, JSON: true, {"apiVersion":"v1","kind":"ConfigMap"}
END
diff want out
