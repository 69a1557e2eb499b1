package openapi

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	restful "github.com/emicklei/go-restful/v3"
	"github.com/stretchr/testify/require"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Selector is a type that several documents have in common.
type Selector struct{}

// The race detector finds it if documents share what the builder writes to.
func TestDocumentsAreBuiltAndServedAtTheSameTime(t *testing.T) {
	selector := util.GetCanonicalTypeName(Selector{})
	shared := &common.OpenAPIV3Config{
		Info: &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes"}},
		Definitions: map[string]common.OpenAPIDefinition{selector: {Schema: spec.Schema{
			SchemaProps:      spec.SchemaProps{Type: []string{"object"}},
			VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{"x-kubernetes-map-type": "atomic"}},
		}}},
		GetOperationIDAndTagsFromRoute: func(r common.Route) (string, []string, error) { return r.OperationName(), nil, nil },
		GetDefinitionName: func(name string) (string, spec.Extensions) {
			return "Selector", spec.Extensions{"x-kubernetes-group-version-kind": []any{name}}
		},
	}
	var wg sync.WaitGroup
	documents := make([]string, 8)
	for i := range documents {
		wg.Go(func() {
			service := new(restful.WebService).Path(fmt.Sprintf("/apis/group%d/v1", i))
			service.Route(service.GET("selectors").To(func(*restful.Request, *restful.Response) {}).Operation("list").Writes(Selector{}))
			document, err := builder3.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices([]*restful.WebService{service}), Own(shared))
			if err != nil {
				t.Error(err)
				return
			}
			text, err := json.Marshal(document.Components)
			if err != nil {
				t.Error(err)
				return
			}
			documents[i] = string(text)
		})
	}
	wg.Wait()
	for _, document := range documents {
		require.JSONEq(t, fmt.Sprintf(`{"schemas": {"Selector": {
			"type": "object", "x-kubernetes-map-type": "atomic", "x-kubernetes-group-version-kind": [%q]}}}`, selector), document)
	}
	require.Equal(t, spec.Extensions{"x-kubernetes-map-type": "atomic"}, shared.Definitions[selector].Schema.Extensions)
}
