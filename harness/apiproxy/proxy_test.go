package apiproxy_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

func compress(text string) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return out.String()
}

func noise(n int) string {
	random := rand.NewChaCha8(sha256.Sum256([]byte("noise")))
	data := make([]byte, n)
	_, _ = random.Read(data)
	return string(data)
}

const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"u-1","resourceVersion":"7"}}` + "\n"

func TestBodiesPassUntouched(t *testing.T) {
	const json = "application/json"
	for name, c := range map[string]struct {
		status                   int
		contentType, encoding    string
		body                     string
		hasLength, flushesInside bool
	}{
		"JSON":                       {200, json, "", pod, true, false},
		"JSON in pieces":             {200, json, "", pod, false, true},
		"JSON that is none":          {200, json, "", noise(5000), true, false},
		"JSON, cut off":              {200, json, "", pod[:40], true, false},
		"JSON, large":                {200, json, "", `{"kind":"PodList","items":["` + strings.Repeat("x", 3<<20) + `"],"metadata":{}}`, false, false},
		"gzip":                       {200, json, "gzip", compress(pod), true, false},
		"gzip in pieces":             {200, json, "gzip", compress(pod), false, true},
		"gzip that is none":          {200, json, "gzip", noise(5000), false, true},
		"gzip, large":                {200, json, "gzip", compress(noise(3 << 20)), false, false},
		"protobuf that is none":      {200, "application/vnd.kubernetes.protobuf", "", "k8s\x00" + noise(5000), true, false},
		"protobuf that is too short": {200, "application/vnd.kubernetes.protobuf", "", "k8", true, false},
		"an encoding of its own":     {200, json, "br", noise(500), true, false},
		"text":                       {200, "text/plain", "", "{ log line\n", false, true},
		"no type":                    {200, "", "", "<html>", true, false},
		"nothing":                    {200, json, "", "", true, false},
		"created":                    {201, json, "", pod, true, false},
		"no content":                 {204, "", "", "", false, false},
		"not modified":               {304, "", "", "", false, false},
		"not found":                  {404, json, "", `{"kind":"Status"}`, true, false},
		"server error":               {500, "text/plain", "", "oh no", true, false},
	} {
		for _, protocol := range []string{"h2", "http/1.1"} {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
					header := w.Header()
					header.Add("Warning", `299 - "one"`)
					header.Add("Warning", `299 - "two"`)
					header.Set("Audit-Id", "42")
					header["Content-Type"] = nil
					if c.contentType != "" {
						header.Set("Content-Type", c.contentType)
					}
					if c.encoding != "" {
						header.Set("Content-Encoding", c.encoding)
					}
					if c.hasLength {
						header.Set("Content-Length", fmt.Sprint(len(c.body)))
					}
					w.WriteHeader(c.status)
					if !c.flushesInside {
						_, _ = io.WriteString(w, c.body)
						return
					}
					for piece := range slices.Chunk([]byte(c.body), 7) {
						_, _ = w.Write(piece)
						w.(http.Flusher).Flush()
					}
				})
				const path = "/api/v1/namespaces/shop/pods/a"
				want, wantBody := do(t, client(t, w.upstream, protocol), w.upstream.Host, "GET", path, "")
				got, gotBody := do(t, client(t, w.Config(), protocol), w.URL(), "GET", path, "")
				require.Equal(t, want.Status, got.Status)
				require.Equal(t, want.Proto, got.Proto)
				want.Header.Del("Date")
				got.Header.Del("Date")
				require.Equal(t, want.Header, got.Header)
				require.Equal(t, want.ContentLength, got.ContentLength)
				require.True(t, wantBody == gotBody, "the bodies differ")
				eventually(t, "recorded", func() bool { return len(w.memory.History().Requests) == 1 })
				require.EqualValues(t, len(c.body), w.only().Received)
				require.Equal(t, c.status, w.only().Status)
			})
		}
	}
}

func TestRequestsPassUntouched(t *testing.T) {
	type request struct {
		method, uri, host, body string
		length                  int64
		header                  http.Header
	}
	var got request
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = request{r.Method, r.RequestURI, r.Host, string(body), r.ContentLength, r.Header.Clone()}
	})
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
	}{
		"get":             {"GET", "/version", "", nil},
		"no agent":        {"GET", "/version", "", []string{"User-Agent", ""}},
		"compressed":      {"GET", "/version", "", []string{"Accept-Encoding", "gzip"}},
		"escapes":         {"GET", "/api/v1/namespaces/a%2Fb/pods?labelSelector=a%3Db,c&watch=0&x=;&&", "", nil},
		"post":            {"POST", "/api/v1/pods", noise(1 << 20), []string{"Content-Type", "application/json"}},
		"two of a header": {"PATCH", "/api/v1/pods/a", "{}", []string{"Accept", "a", "Accept", "b"}},
		"impersonation":   {"DELETE", "/api/v1/pods/a", "{}", []string{"Impersonate-User", "jane", "Impersonate-Group", "a", "Impersonate-Group", "b"}},
		"head":            {"HEAD", "/readyz", "", nil},
		"options":         {"OPTIONS", "/", "", nil},
	} {
		for _, protocol := range []string{"h2", "http/1.1"} {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				do(t, client(t, w.upstream, protocol), w.upstream.Host, c.method, c.path, c.body, c.headers...)
				want := got
				do(t, client(t, w.Config(), protocol), w.URL(), c.method, c.path, c.body, c.headers...)
				require.True(t, want.body == got.body, "the bodies differ")
				want.body, got.body = "", ""
				require.Equal(t, want, got)
			})
		}
	}
}

// A ServiceAccount's token as far as the proxy looks at it.
func serviceAccountToken(user string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"`+user+`"}`)) + ".c2ln"
}

func TestCredentials(t *testing.T) {
	var mu sync.Mutex
	var authorization, user string
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		authorization, user = r.Header.Get("Authorization"), r.Header.Get("Impersonate-User")
	})
	const account = "system:serviceaccount:shop:frontend"
	asAccount := rest.CopyConfig(w.upstream)
	asAccount.BearerToken = serviceAccountToken(account)
	viaProxy, err := w.ConfigFor(asAccount)
	require.NoError(t, err)
	asJane := rest.CopyConfig(w.upstream)
	asJane.Impersonate.UserName = "jane"
	janeViaProxy, err := w.ConfigFor(asJane)
	require.NoError(t, err)
	require.NotEqual(t, w.Config().BearerToken, viaProxy.BearerToken)

	nobody := rest.AnonymousClientConfig(w.Config())
	for name, c := range map[string]struct {
		config              *rest.Config
		headers             []string
		authorization, user string
		who                 string
	}{
		"ours":                      {w.Config(), nil, "Bearer upstream-secret", "", ""},
		"ours, as somebody":         {w.Config(), []string{"Impersonate-User", "joe"}, "Bearer upstream-secret", "joe", "joe"},
		"another identity":          {viaProxy, nil, "Bearer " + asAccount.BearerToken, "", account},
		"an identity that is jane":  {janeViaProxy, nil, "Bearer upstream-secret", "jane", "jane"},
		"jane, as somebody else":    {janeViaProxy, []string{"Impersonate-User", "joe"}, "Bearer upstream-secret", "joe", "joe"},
		"none":                      {nobody, nil, "", "", ""},
		"its own":                   {nobody, []string{"Authorization", "Bearer other"}, "Bearer other", "", ""},
		"its own account":           {nobody, []string{"Authorization", "Bearer " + asAccount.BearerToken}, "Bearer " + asAccount.BearerToken, "", account},
		"basic":                     {nobody, []string{"Authorization", "Basic Zm9vOmJhcg=="}, "Basic Zm9vOmJhcg==", "", ""},
		"our token in another way":  {nobody, []string{"Authorization", "Basic " + w.Config().BearerToken}, "Basic " + w.Config().BearerToken, "", ""},
		"half of our token":         {nobody, []string{"Authorization", "Bearer " + w.Config().BearerToken[:32]}, "Bearer " + w.Config().BearerToken[:32], "", ""},
		"a claim to be no account":  {nobody, []string{"Authorization", "Bearer " + serviceAccountToken("admin")}, "Bearer " + serviceAccountToken("admin"), "", ""},
		"none, but to be somebody":  {nobody, []string{"Impersonate-User", "joe"}, "", "joe", "joe"},
		"ours, in lower case":       {nobody, []string{"Authorization", "bearer  " + w.Config().BearerToken}, "Bearer upstream-secret", "", ""},
		"a token that looks like a": {nobody, []string{"Authorization", "Bearer a.%%%.c"}, "Bearer a.%%%.c", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			do(t, client(t, c.config), w.URL(), "GET", "/version", "", c.headers...)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, c.authorization, authorization)
			require.Equal(t, c.user, user)
			requests := w.memory.History().Requests
			require.Equal(t, c.who, requests[len(requests)-1].Who)
		})
	}
	var recording bytes.Buffer
	for _, r := range w.memory.History().Requests {
		require.NoError(t, history.Write(&recording, history.Record{Request: &r}))
	}
	for _, secret := range []string{"upstream-secret", w.Config().BearerToken, viaProxy.BearerToken, asAccount.BearerToken, "Zm9vOmJhcg"} {
		require.NotContains(t, recording.String(), secret)
	}
}

func TestClientThatDoesNotTrustUs(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	config := w.Config()
	config.CAData = w.upstream.CAData
	_, err := client(t, config).Get(w.URL())
	require.ErrorContains(t, err, "certificate")
}

func TestURIHasNoSecrets(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	for path, want := range map[string]string{
		"/api/v1/namespaces/a/pods/b/exec?command=sh&command=s3cret&container=c": "/api/v1/namespaces/a/pods/b/exec?command=&command=&container=c",
		"/api/v1/namespaces/a/pods/b/exec?comm%61nd=s3cret":                      "/api/v1/namespaces/a/pods/b/exec?command=",
		"/api/v1/namespaces/a/pods/b/exec?%zz=s3cret":                            "/api/v1/namespaces/a/pods/b/exec?command=",
		"/api/v1/namespaces/a/services/b/proxy/login?token=s3cret":               "/api/v1/namespaces/a/services/b/proxy/login",
		"/api/v1/pods?limit=5": "/api/v1/pods?limit=5",
		"/v2.0/networks?name=a&api_key=s3cret&X-Amz-Signature=s3cret": "/v2.0/networks?name=a&api_key=&X-Amz-Signature=",
	} {
		w.do("GET", path, "")
		requests := w.memory.History().Requests
		require.Equal(t, want, requests[len(requests)-1].URI)
	}
}

func TestVerbsAreThoseOfTheAuditLog(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	for request, want := range map[string]string{
		"GET /version":                 "get /version ",
		"POST /version":                "post /version ",
		"GET /api/v1":                  "get /api/v1 ",
		"GET /api/v1/nodes":            "list nodes ",
		"GET /api/v1/nodes/a":          "get nodes a",
		"GET /api/v1/nodes?watch=true": "watch nodes ",
		"GET /api/v1/nodes?watch=1&fieldSelector=metadata.name%3Da":      "watch nodes a",
		"GET /api/v1/watch/nodes":                                        "watch nodes ",
		"GET /apis/apps/v1/namespaces/shop/deployments/frontend":         "get deployments.apps shop/frontend",
		"PUT /apis/apps/v1/namespaces/shop/deployments/frontend/status":  "update deployments.apps/status shop/frontend",
		"PATCH /api/v1/namespaces/shop":                                  "patch namespaces shop",
		"DELETE /api/v1/namespaces/shop/pods/a":                          "delete pods shop/a",
		"DELETE /api/v1/namespaces/shop/pods":                            "deletecollection pods shop",
		"POST /api/v1/namespaces/shop/pods":                              "create pods shop",
		"POST /api/v1/namespaces/shop/pods/a/eviction":                   "create pods/eviction shop/a",
		"GET /apis/example.com/v1/namespaces/shop/colors/red/some/thing": "get colors.example.com/some shop/red",
	} {
		method, path, _ := strings.Cut(request, " ")
		w.do(method, path, "")
		requests := w.memory.History().Requests
		last := requests[len(requests)-1]
		require.Equal(t, want, last.Verb+" "+last.What()+" "+last.Object(), request)
	}
}

// The client gets each part of an object of known length when it comes, and a request that it has the answer to is recorded.
func TestPartsOfAnObjectDoNotWait(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			more := make(chan struct{})
			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", fmt.Sprint(len(pod)))
				_, _ = io.WriteString(w, pod[:20])
				w.(http.Flusher).Flush()
				<-more
				_, _ = io.WriteString(w, pod[20:])
			})
			response, err := client(t, w.Config(), protocol).Get(w.URL() + "/api/v1/namespaces/shop/pods/a")
			require.NoError(t, err)
			defer response.Body.Close()
			part := make([]byte, 20)
			_, err = io.ReadFull(response.Body, part)
			require.NoError(t, err)
			close(more)
			rest, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, pod, string(part)+string(rest))
			require.False(t, w.only().Failed())
			require.EqualValues(t, len(pod), w.only().Received)
		})
	}
}

func TestClientGoesAway(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"before the answer": func(http.ResponseWriter) {},
		"within the answer": func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"within an object of known length": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, pod)
			w.(http.Flusher).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			began, gone := make(chan struct{}), make(chan struct{})
			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
				begin(w)
				close(began)
				<-r.Context().Done()
				close(gone)
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-began; cancel() }()
			request, err := http.NewRequestWithContext(ctx, "GET", w.URL()+"/api/v1/pods", nil)
			require.NoError(t, err)
			response, err := client(t, w.Config()).Do(request)
			if err == nil {
				_, err = io.ReadAll(response.Body)
				response.Body.Close()
			}
			require.ErrorIs(t, err, context.Canceled)
			<-gone // the API server knows
			eventually(t, "recorded", func() bool { return len(w.memory.History().Requests) == 1 })
			require.Equal(t, "the client went away", w.only().Error)
			require.True(t, w.only().GaveUp)
			require.True(t, w.only().Failed())
		})
	}
}

func TestAPIServerGoesAway(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		begin  func(http.ResponseWriter)
		status int
	}{
		"before the answer": {"/api/v1/pods", func(http.ResponseWriter) {}, 0},
		"within an answer of known length": {"/api/v1/pods", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, pod)
			w.(http.Flusher).Flush()
		}, 200},
		"within an answer of unknown length": {"/api/v1/pods", func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, pod)
			w.(http.Flusher).Flush()
		}, 200},
		"within a watch": {"/api/v1/pods?watch=true", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, added("1")+added("2")[:20])
			w.(http.Flusher).Flush()
		}, 200},
	} {
		for _, protocol := range []string{"h2", "http/1.1"} {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
					c.begin(w)
					panic(http.ErrAbortHandler)
				})
				response, err := client(t, w.Config(), protocol).Get(w.URL() + c.path)
				if c.status == 0 {
					require.Error(t, err)
				} else {
					require.NoError(t, err)
					_, err = io.ReadAll(response.Body)
					response.Body.Close()
					require.Error(t, err, "it must not look like the end")
				}
				eventually(t, "recorded", func() bool {
					h := w.memory.History()
					return len(h.Requests) == 1 && !h.Requests[0].Open
				})
				require.Equal(t, c.status, w.only().Status)
				require.NotEmpty(t, w.only().Error)
				require.False(t, w.only().GaveUp)
				require.True(t, w.only().Failed())
			})
		}
	}
}

func TestAPIServerIsDownForAWhile(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "first") })
	c := client(t, w.Config())
	_, body := do(t, c, w.URL(), "GET", "/version", "")
	require.Equal(t, "first", body)

	address := w.server.Listener.Addr().String()
	certificates := w.server.TLS.Certificates
	w.server.CloseClientConnections()
	w.server.Close()
	var err error
	eventually(t, "it is known to be down", func() bool {
		_, err = c.Get(w.URL() + "/version")
		require.Error(t, err, "no answer may be made up")
		requests := w.memory.History().Requests
		last := requests[len(requests)-1]
		require.Zero(t, last.Status)
		require.NotEmpty(t, last.Error)
		return strings.Contains(last.Error, "connection refused") // and not that the old connection broke
	})

	again := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "second")
	}))
	again.Listener.Close()
	eventually(t, "the port is free", func() bool { // another process may have it for the moment
		again.Listener, err = net.Listen("tcp", address)
		return err == nil
	})
	again.EnableHTTP2 = true
	again.TLS = w.server.TLS.Clone()
	again.TLS.Certificates = certificates
	again.StartTLS()
	t.Cleanup(again.Close)
	_, body = do(t, c, w.URL(), "GET", "/version", "")
	require.Equal(t, "second", body)
}

// The headers of a connection are the business of its two ends.
func TestHeadersOfTheConnectionStay(t *testing.T) {
	var got http.Header
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		w.Header().Set("Connection", "X-Theirs")
		w.Header().Set("X-Theirs", "1")
		w.Header().Set("Keep-Alive", "timeout=5")
	})
	response, _ := do(t, client(t, w.Config(), "http/1.1"), w.URL(), "GET", "/version", "",
		"Connection", "X-Ours", "X-Ours", "1", "Keep-Alive", "5", "Te", "trailers", "X-Other", "1")
	require.Equal(t, "1", got.Get("X-Other"))
	for _, name := range []string{"Connection", "X-Ours", "Keep-Alive", "Te"} {
		require.Empty(t, got.Get(name), name)
	}
	require.Empty(t, response.Header.Get("Keep-Alive"))
}

func TestPathInFrontOfTheAPI(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })
	config := rest.CopyConfig(w.upstream)
	config.Host += "/k8s/clusters/c-1"
	p, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: config})
	require.NoError(t, err)
	defer p.Stop()
	_, body := do(t, client(t, p.Config()), p.URL(), "GET", "/api/v1/namespaces/a%2Fb?x=y", "")
	require.Equal(t, "/k8s/clusters/c-1/api/v1/namespaces/a%2Fb?x=y", body)
}

func TestPlainHTTPUpstream(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "encodings: "+r.Header.Get("Accept-Encoding"))
	}))
	defer server.Close()
	p, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: &rest.Config{Host: server.URL}})
	require.NoError(t, err)
	defer p.Stop()
	_, body := do(t, client(t, p.Config()), p.URL(), "GET", "/version", "")
	require.Equal(t, "encodings: ", body, "nothing may be added")
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An API server that does not allow a request says so before it reads the object.
func TestRefusedBeforeTheBodyIsRead(t *testing.T) {
	var memory history.Memory
	p, err := apiproxy.Start(t.Context(), apiproxy.Options{
		Record: memory.Record,
		Upstream: &rest.Config{Host: "http://localhost", WrapTransport: func(http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				_ = r.Body.Close()
				return &http.Response{StatusCode: http.StatusForbidden, ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody}, nil
			})
		}},
	})
	require.NoError(t, err)
	defer p.Stop()
	response, _ := do(t, client(t, p.Config()), p.URL(), "POST", "/api/v1/namespaces/shop/pods", pod)
	require.Equal(t, http.StatusForbidden, response.StatusCode)
	eventually(t, "recorded", func() bool { return len(memory.History().Requests) == 1 })
	require.Equal(t, "shop/a", memory.History().Requests[0].Object())
}

// Many at once, so that the race detector has something to look at.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, pod)
	})
	var wg sync.WaitGroup
	c := client(t, w.Config())
	const clients, each = 8, 25
	for range clients {
		wg.Go(func() {
			for range each {
				do(t, c, w.URL(), "PUT", "/api/v1/namespaces/shop/pods/a", pod)
			}
		})
	}
	wg.Wait()
	requests := w.memory.History().Requests
	require.Len(t, requests, clients*each)
	ids := map[int64]bool{}
	for _, r := range requests {
		require.Equal(t, "7", r.RVAfter)
		require.True(t, r.NoOp)
		ids[r.ID] = true
	}
	require.Len(t, ids, clients*each)
}

func TestNamespaceOfAClientThatAsksForAll(t *testing.T) {
	upstream := newWorld(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.RequestURI()) })
	p, err := apiproxy.Start(t.Context(), apiproxy.Options{Upstream: upstream.upstream, Namespace: "shop",
		Within: []schema.GroupResource{{Resource: "pods"}, {Group: "apps", Resource: "deployments"}}})
	require.NoError(t, err)
	defer p.Stop()
	for asked, want := range map[string]string{
		"/api/v1/pods?limit=1":                          "/api/v1/namespaces/shop/pods?limit=1",
		"/api/v1/pods?watch=1":                          "/api/v1/namespaces/shop/pods?watch=1",
		"/api/v1/pods?fieldSelector=metadata.name%3Da":  "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Da",
		"/apis/apps/v1/deployments":                     "/apis/apps/v1/namespaces/shop/deployments",
		"/apis/batch/v1/deployments":                    "/apis/batch/v1/deployments",
		"/api/v1/nodes":                                 "/api/v1/nodes",
		"/api/v1/namespaces":                            "/api/v1/namespaces?fieldSelector=metadata.name%3Dshop",
		"/api/v1/namespaces?watch=1":                    "/api/v1/namespaces?fieldSelector=metadata.name%3Dshop&watch=1",
		"/api/v1/namespaces?fieldSelector=a%3Db":        "/api/v1/namespaces?fieldSelector=a%3Db",
		"/api/v1/namespaces/mall":                       "/api/v1/namespaces/mall",
		"/api/v1/namespaces/mall/pods":                  "/api/v1/namespaces/mall/pods",
		"/api/v1/namespaces/mall/pods/a":                "/api/v1/namespaces/mall/pods/a",
		"/apis/apps/v1/namespaces/mall/deployments?a=b": "/apis/apps/v1/namespaces/mall/deployments?a=b",
	} {
		_, got := do(t, client(t, p.Config()), p.URL(), "GET", asked, "")
		require.Equal(t, want, got)
	}
}
