#!/bin/sh
# k8s.io/client-go v0.37.1, package util/jsonpath, which is the code of "kubectl get -o jsonpath": the results of .. have
# another order from run to run, for the same object. The page "JSONPath Support" of the documentation of Kubernetes has an example:
# for its input, {..name} is said to give "127.0.0.1 127.0.0.2 myself e2e". So it does, by chance, or else "myself e2e 127.0.0.1
# 127.0.0.2". One would expect an order that stays, as json.Marshal sorts the keys of the same maps, so that two outputs can be compared.
# See util/jsonpath/jsonpath.go: evalRecursive, "range value.MapKeys()".
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

require k8s.io/client-go v0.37.1
END
cat > main.go <<'END'
package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/client-go/util/jsonpath"
)

// What matters of the input on https://kubernetes.io/docs/reference/kubectl/jsonpath/
const input = `{
	"kind": "List",
	"items": [
		{"kind": "None", "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}}, "status": {"capacity": {"cpu": "4"}}},
		{"kind": "None", "metadata": {"name": "127.0.0.2"}, "status": {"capacity": {"cpu": "8"}}}
	],
	"users": [{"name": "myself", "user": {}}, {"name": "e2e", "user": {"username": "admin", "password": "secret"}}]
}`

func main() {
	var data any
	if err := json.Unmarshal([]byte(input), &data); err != nil {
		panic(err)
	}
	for _, template := range []string{"{.items[*].metadata.name}", "{..name}"} {
		path := jsonpath.New("names")
		if err := path.Parse(template); err != nil {
			panic(err)
		}
		outputs := map[string]bool{}
		for range 1000 {
			var out bytes.Buffer
			if err := path.Execute(&out, data); err != nil {
				panic(err)
			}
			outputs[out.String()] = true
		}
		sorted, err := json.Marshal(outputs)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: %s\n", template, sorted)
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
{.items[*].metadata.name}: {"127.0.0.1 127.0.0.2":true}
{..name}: {"127.0.0.1 127.0.0.2 myself e2e":true,"myself e2e 127.0.0.1 127.0.0.2":true}
END
diff want out
