package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	restful "github.com/emicklei/go-restful/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/klog/v2"
	openapiv3 "k8s.io/kube-aggregator/pkg/controllers/openapiv3/aggregator"
	"k8s.io/kube-openapi/pkg/handler3"

	"example.com/controllers/harness/controlplane/openapi"
)

const (
	openAPIV2 = "/openapi/v2"
	openAPIV3 = "/openapi/v3"
)

// openAPI serves the OpenAPI documents of the built-in resources, and builds each one when a client first
// requests it. kube-apiserver builds all of them before it serves anything, which is a third of the CPU time
// of its start; most clients never request one.
//
// The index of the v3 documents needs care: its URLs end in hashes of the documents, and the aggregator,
// which merges the indexes of all servers, fetches it at the start. So the aggregator gets an index without
// hashes, and withHashes adds them when a client requests the index from the aggregator.
type openAPI struct {
	// v3 has the handler that serves each v3 document, by group and version, such as "apis/apps/v1".
	v3 map[string]http.Handler

	// hashes returns the index of v3 with hashes, as kube-apiserver would serve it. The first call builds all
	// documents.
	hashes func() (openAPIIndex, error)
}

// openAPIIndex has an entry for each group and version, keyed as openAPI.v3 is.
type openAPIIndex map[string]handler3.OpenAPIV3DiscoveryGroupVersion

// newOpenAPI configures the server of the built-in resources, and the aggregator in front of it, to serve
// OpenAPI documents through the result. Its install must be called before they run.
func newOpenAPI(builtIn, aggregator *genericapiserver.Config) *openAPI {
	o := &openAPI{v3: map[string]http.Handler{}}
	o.hashes = sync.OnceValues(o.buildAll)
	builtIn.SkipOpenAPIInstallation = true
	chain := aggregator.BuildHandlerChainFunc
	aggregator.BuildHandlerChainFunc = func(handler http.Handler, config *genericapiserver.Config) http.Handler {
		return chain(o.withHashes(handler), config)
	}
	return o
}

// install registers the documents with the server of the built-in resources.
func (o *openAPI) install(builtIn *genericapiserver.GenericAPIServer, config *genericapiserver.Config) {
	resources, paths := builtIn.Handler.GoRestfulContainer, builtIn.Handler.NonGoRestfulMux

	paths.Handle(openAPIV2, lazy(func(m *mux.PathRecorderMux) {
		routes.OpenAPI{Config: config.OpenAPIConfig}.InstallV2(resources, m)
	}))

	index := openAPIIndex{}
	for _, service := range resources.RegisteredWebServices() {
		name := strings.TrimPrefix(service.RootPath(), "/")
		path := openAPIV3 + "/" + name
		o.v3[name] = lazy(func(m *mux.PathRecorderMux) {
			routes.OpenAPI{V3Config: openapi.Own(config.OpenAPIV3Config)}.InstallV3(restful.NewContainer().Add(service), m)
		})
		paths.UnlistedHandle(path, o.v3[name])
		index[name] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: path}
	}
	paths.Handle(openAPIV3, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { index.serve(w, r) }))
}

// lazy returns a handler that calls install on the first request, and serves what that has registered.
func lazy(install func(*mux.PathRecorderMux)) http.Handler {
	handler := sync.OnceValue(func() http.Handler {
		m := mux.NewPathRecorderMux("openapi")
		install(m)
		return m
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler().ServeHTTP(w, r) })
}

func (o *openAPI) buildAll() (openAPIIndex, error) {
	all := openAPIIndex{}
	var mutex sync.Mutex
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for name, handler := range o.v3 {
		work.Go(func() error {
			downloader := openapiv3.NewDownloader()
			built, status, err := downloader.OpenAPIV3Root(handler)
			if err != nil || status != http.StatusOK {
				return fmt.Errorf("build OpenAPI document of %s: status %d: %w", name, status, err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			all[name] = built.Paths[name]
			return nil
		})
	}
	return all, work.Wait()
}

// withHashes adds the hashes to the index that next, the aggregator, responds with.
func (o *openAPI) withHashes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != openAPIV3 || r.Method != http.MethodGet || isFromAPIServer(r) {
			next.ServeHTTP(w, r)
			return
		}
		response := responsewriter.NewInMemoryResponseWriter()
		next.ServeHTTP(response, r)
		var merged handler3.OpenAPIV3Discovery
		if err := json.Unmarshal(response.Data(), &merged); err != nil {
			http.Error(w, string(response.Data()), response.RespCode())
			return
		}
		hashes, err := o.hashes()
		if err != nil {
			klog.ErrorS(err, "Serving the index of OpenAPI documents without hashes")
		}
		index := openAPIIndex(merged.Paths)
		for name, entry := range hashes {
			if _, ok := index[name]; ok {
				index[name] = entry
			}
		}
		index.serve(w, r)
	})
}

// isFromAPIServer reports whether the API server sent the request to itself. It requests the index every five
// seconds, for mutating admission policies, only to see whether a URL has changed. The built-in documents
// never change, so it needs no hashes, and the documents need not be built for it.
func isFromAPIServer(r *http.Request) bool {
	client, ok := request.UserFrom(r.Context())
	return ok && client.GetName() == user.APIServerUser
}

func (i openAPIIndex) serve(w http.ResponseWriter, r *http.Request) {
	text, err := json.Marshal(handler3.OpenAPIV3Discovery{Paths: i})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, openAPIV3, time.Now(), bytes.NewReader(text))
}
