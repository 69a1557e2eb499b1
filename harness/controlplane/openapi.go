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
)

const (
	openAPIV2 = "/openapi/v2"
	openAPIV3 = "/openapi/v3"
)

// openAPI serves the OpenAPI documents of the built-in resources, and builds each when a client first
// asks for it. kube-apiserver builds all of them before it serves anything. That is a third of what its
// start computes, and most clients never ask for one.
//
// The list of the v3 documents needs care: its URLs end in hashes of the documents, and the aggregator,
// which merges the lists of all servers, asks for it at the start. So the aggregator gets a list without
// hashes, and they are put in when a client asks the aggregator.
type openAPI struct {
	v3 map[string]http.Handler // serves a document, by group and version such as "apis/apps/v1"

	// hashes returns the list of v3 as kube-apiserver would serve it. It builds all documents.
	hashes func() (openAPIList, error)
}

// openAPIList has an entry for each group and version.
type openAPIList map[string]handler3.OpenAPIV3DiscoveryGroupVersion

// newOpenAPI changes the configurations of the server of the built-in resources and of the aggregator
// before it. What it returns must be installed before they run.
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

// install has the server of the built-in resources serve their documents.
func (o *openAPI) install(builtIn *genericapiserver.GenericAPIServer, config *genericapiserver.Config) {
	build := routes.OpenAPI{Config: config.OpenAPIConfig, V3Config: config.OpenAPIV3Config}
	resources, paths := builtIn.Handler.GoRestfulContainer, builtIn.Handler.NonGoRestfulMux

	paths.Handle(openAPIV2, lazy(func(m *mux.PathRecorderMux) { build.InstallV2(resources, m) }))

	list := openAPIList{}
	for _, service := range resources.RegisteredWebServices() {
		name := strings.TrimPrefix(service.RootPath(), "/")
		path := openAPIV3 + "/" + name
		o.v3[name] = lazy(func(m *mux.PathRecorderMux) { build.InstallV3(restful.NewContainer().Add(service), m) })
		paths.UnlistedHandle(path, o.v3[name])
		list[name] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: path}
	}
	paths.Handle(openAPIV3, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { list.serve(w, r) }))
}

// lazy serves what install installs, and calls it on the first request.
func lazy(install func(*mux.PathRecorderMux)) http.Handler {
	handler := sync.OnceValue(func() http.Handler {
		m := mux.NewPathRecorderMux("openapi")
		install(m)
		return m
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler().ServeHTTP(w, r) })
}

func (o *openAPI) buildAll() (openAPIList, error) {
	all := openAPIList{}
	var mutex sync.Mutex
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for name, handler := range o.v3 {
		work.Go(func() error {
			downloader := openapiv3.NewDownloader()
			list, status, err := downloader.OpenAPIV3Root(handler)
			if err != nil || status != http.StatusOK {
				return fmt.Errorf("build OpenAPI document of %s: status %d: %w", name, status, err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			all[name] = list.Paths[name]
			return nil
		})
	}
	return all, work.Wait()
}

// withHashes puts the hashes into the list that next, the aggregator, answers with.
func (o *openAPI) withHashes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != openAPIV3 || r.Method != http.MethodGet || byAPIServer(r) {
			next.ServeHTTP(w, r)
			return
		}
		answer := responsewriter.NewInMemoryResponseWriter()
		next.ServeHTTP(answer, r)
		var merged handler3.OpenAPIV3Discovery
		if err := json.Unmarshal(answer.Data(), &merged); err != nil {
			http.Error(w, string(answer.Data()), answer.RespCode())
			return
		}
		hashes, err := o.hashes()
		if err != nil {
			klog.ErrorS(err, "The list of OpenAPI documents is served without hashes")
		}
		list := openAPIList(merged.Paths)
		for name, entry := range hashes {
			if _, ok := list[name]; ok {
				list[name] = entry
			}
		}
		list.serve(w, r)
	})
}

// byAPIServer says whether the API server asks itself. It does so every five seconds, for mutating
// admission policies, and compares what it gets with what it got: the URLs of documents that never
// change may as well have no hashes.
func byAPIServer(r *http.Request) bool {
	asking, ok := request.UserFrom(r.Context())
	return ok && asking.GetName() == user.APIServerUser
}

func (l openAPIList) serve(w http.ResponseWriter, r *http.Request) {
	text, err := json.Marshal(handler3.OpenAPIV3Discovery{Paths: l})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, openAPIV3, time.Now(), bytes.NewReader(text))
}
