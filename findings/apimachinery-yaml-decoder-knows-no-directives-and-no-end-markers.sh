#!/bin/sh
# k8s.io/apimachinery v0.37.1, package pkg/util/yaml: NewYAMLToJSONDecoder is documented to decode "each document (as defined by the YAML
# spec)", but it cuts the stream at every line "---", and at nothing else. Two streams that are valid by the spec (YAML 1.2.2, chapter 9):
# - A document may begin with directives and "---". The directive %YAML becomes a document of its own, which is an error.
# - A document may end with "...", and the next one needs no "---" then. It is lost: the decoder gives the first document and io.EOF. The YAML
#   parser of Go, go.yaml.in/yaml/v3 v3.0.4, cannot read the second one either, but says so.
# kubectl reads files with the same decoder. See pkg/util/yaml/decoder.go: YAMLReader.Read, YAMLToJSONDecoder.Decode.
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
	go.yaml.in/yaml/v3 v3.0.4
	k8s.io/apimachinery v0.37.1
)
END
cat > main.go <<'END'
package main

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

type decoder interface{ Decode(into any) error }

func show(name string, d decoder) {
	fmt.Printf("  %s:", name)
	for {
		var document struct {
			Kind string `json:"kind" yaml:"kind"`
		}
		err := d.Decode(&document)
		if err != nil {
			if err != io.EOF {
				fmt.Printf(" error: %v", err)
			}
			break
		}
		fmt.Printf(" %s", document.Kind)
	}
	fmt.Println()
}

func main() {
	for _, stream := range []string{
		"kind: Namespace\n---\nkind: ConfigMap\n",
		"%YAML 1.1\n---\nkind: Namespace\n",
		"kind: Namespace\n...\nkind: ConfigMap\n",
	} {
		fmt.Printf("%q\n", stream)
		show("NewYAMLToJSONDecoder", utilyaml.NewYAMLToJSONDecoder(strings.NewReader(stream)))
		show("NewYAMLOrJSONDecoder", utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(stream), 4096))
		show("yaml/v3", yaml.NewDecoder(strings.NewReader(stream)))
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
"kind: Namespace\n---\nkind: ConfigMap\n"
  NewYAMLToJSONDecoder: Namespace ConfigMap
  NewYAMLOrJSONDecoder: Namespace ConfigMap
  yaml/v3: Namespace ConfigMap
"%YAML 1.1\n---\nkind: Namespace\n"
  NewYAMLToJSONDecoder: error: error converting YAML to JSON: yaml: line 1: did not find expected <document start>
  NewYAMLOrJSONDecoder: error: error converting YAML to JSON: yaml: line 1: did not find expected <document start>
  yaml/v3: Namespace
"kind: Namespace\n...\nkind: ConfigMap\n"
  NewYAMLToJSONDecoder: Namespace
  NewYAMLOrJSONDecoder: Namespace
  yaml/v3: Namespace error: yaml: line 2: did not find expected <document start>
END
diff want out
