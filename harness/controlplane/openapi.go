package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	restful "github.com/emicklei/go-restful/v3"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"

	"example.com/controllers/harness/controlplane/openapi"
)

// installOpenAPI lets server, that of the built-in resources, serve their OpenAPI documents, and build each one when a
// client first requests it. kube-apiserver builds all of them before it serves anything, which is a third of the CPU time
// of its start; most clients never request one, and "kubectl apply" requests one of nearly fifty.
//
// config must be the configuration that server was made from, with SkipOpenAPIInstallation.
//
// In the index of the v3 documents, each URL has a hash, so that clients can cache what they get there. kube-apiserver's is
// a hash of the document, which would have to be built first. The built-in documents never change while the server runs, so
// here it is a random string of this server.
func installOpenAPI(server *genericapiserver.GenericAPIServer, config *genericapiserver.Config) {
	resources, paths := server.Handler.GoRestfulContainer, server.Handler.NonGoRestfulMux

	paths.Handle("/openapi/v2", lazy(func(m *mux.PathRecorderMux) {
		routes.OpenAPI{Config: config.OpenAPIConfig}.InstallV2(resources, m)
	}))

	const v3 = "/openapi/v3"
	hash := rand.Text()
	index := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for _, service := range resources.RegisteredWebServices() {
		name := strings.TrimPrefix(service.RootPath(), "/")
		path := v3 + "/" + name
		paths.UnlistedHandle(path, immutable(hash, lazy(func(m *mux.PathRecorderMux) {
			routes.OpenAPI{V3Config: openapi.Own(config.OpenAPIV3Config)}.InstallV3(restful.NewContainer().Add(service), m)
		})))
		index.Paths[name] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: path + "?hash=" + hash}
	}
	paths.Handle(v3, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := json.Marshal(index)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		http.ServeContent(w, r, v3, time.Now(), bytes.NewReader(text))
	}))
}

// useDefinitions lets a server build its OpenAPI v2 document from these definitions, those of the resources that it serves.
// In kube-apiserver, the servers of custom resources and of APIServices each construct all definitions of Kubernetes for it,
// before anything is served.
func useDefinitions(config *genericapiserver.Config, definitions common.GetOpenAPIDefinitions) {
	own := *config.OpenAPIConfig // the other servers have the same
	own.GetDefinitions = definitions
	config.OpenAPIConfig = &own
}

// immutable lets clients cache what next serves, if they request it with the hash. With any other hash but its own, next
// redirects them.
func immutable(hash string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("hash") == hash {
			r = r.Clone(r.Context())
			r.URL.RawQuery = ""
			w.Header().Set("Cache-Control", "public, immutable")
			w.Header().Set("Expires", time.Now().UTC().AddDate(1, 0, 0).Format(http.TimeFormat))
		}
		next.ServeHTTP(w, r)
	})
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
