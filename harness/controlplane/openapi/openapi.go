// Package openapi lets OpenAPI v3 documents of Kubernetes be built while others are built or served.
package openapi

import (
	"maps"

	"k8s.io/kube-openapi/pkg/common"
)

// Own returns a copy of a configuration from which one document can be built. The builder of kube-openapi writes into the
// extensions of the definitions that it is given, and the documents that it returns refer to them. kube-apiserver builds one
// document after the other, and serves them afterwards; otherwise, one goroutine would write to a map while another reads it,
// and Go ends the program.
//
// The definitions themselves are shared: nothing but their extensions is written to.
func Own(shared *common.OpenAPIV3Config) *common.OpenAPIV3Config {
	own := *shared
	own.Definitions = maps.Clone(shared.Definitions)
	for name, definition := range own.Definitions {
		if definition.Schema.Extensions != nil {
			definition.Schema.Extensions = maps.Clone(definition.Schema.Extensions)
			own.Definitions[name] = definition
		}
	}
	return &own
}
