#!/bin/sh
# k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad, package pkg/validation/validate, by which k8s.io/apiextensions-apiserver
# v0.37.1 validates custom resources: for a value that is written without a decimal point, the bounds of its schema are cut to
# integers. With type: number and minimum: 0.5, the value 0 is valid, and 0.0, which is the same number to JSON and to JSON Schema, is
# not. With multipleOf: 0.5, the value 3 is refused, because the factor is 0 then ("must be positive"), and 3.0 is valid. With
# multipleOf: 1.5, 2 is valid. The code has notes on very large integers, and none on fractions.
# See pkg/validation/validate/values.go: MinimumNativeType, MultipleOfNativeType, "int64(min)", "int64(multipleOf)".
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
	k8s.io/apiextensions-apiserver v0.37.1
	k8s.io/apimachinery v0.37.1
)
END
cat > main.go <<'END'
package main

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
)

func main() {
	half, more := 0.5, 1.5
	for _, one := range []struct {
		name   string
		schema apiextensions.JSONSchemaProps
		values []string
	}{
		{"minimum: 0.5", apiextensions.JSONSchemaProps{Minimum: &half}, []string{"0", "0.0", "1", "1.0"}},
		{"multipleOf: 0.5", apiextensions.JSONSchemaProps{MultipleOf: &half}, []string{"3", "3.0", "3.2"}},
		{"multipleOf: 1.5", apiextensions.JSONSchemaProps{MultipleOf: &more}, []string{"2", "2.0", "3", "3.0"}},
	} {
		one.schema.Type = "number"
		validator, _, err := validation.NewSchemaValidator(&apiextensions.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensions.JSONSchemaProps{"ratio": one.schema},
		})
		if err != nil {
			panic(err)
		}
		for _, value := range one.values {
			var object map[string]any
			// As apimachinery reads JSON: int64 without a decimal point, or else float64.
			if err := json.Unmarshal([]byte(`{"ratio": `+value+`}`), &object); err != nil {
				panic(err)
			}
			fmt.Printf("%s, %s: %v\n", one.name, value, validation.ValidateCustomResource(nil, object, validator))
		}
	}
}
END
go run . > out 2> log || { cat log >&2; exit 1; }
cat > want <<'END'
minimum: 0.5, 0: []
minimum: 0.5, 0.0: [ratio: Invalid value: 0: ratio in body should be greater than or equal to 0.5]
minimum: 0.5, 1: []
minimum: 0.5, 1.0: []
multipleOf: 0.5, 3: [ratio: Invalid value: 0: factor MultipleOf declared for ratio must be positive: 0]
multipleOf: 0.5, 3.0: []
multipleOf: 0.5, 3.2: [ratio: Invalid value: 3.2: ratio in body should be a multiple of 0.5]
multipleOf: 1.5, 2: []
multipleOf: 1.5, 2.0: [ratio: Invalid value: 2: ratio in body should be a multiple of 1.5]
multipleOf: 1.5, 3: []
multipleOf: 1.5, 3.0: []
END
diff want out
