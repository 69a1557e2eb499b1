package torture

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

const withOutside = `
manifests: [there.yaml]
resources: [networks.samplecrd.k8s.io]
outside:
  cloud: {module: ., package: ./cmd/neutron, version: v2.0, resources: [networks, ports], env: {NEUTRON_URL: "{url}"}}
converged: [{rule: size(networks) == size(cloud_networks) && size(cloud_ports) == 0}]
`

func TestReadOutside(t *testing.T) {
	s, err := read(t, withOutside+`
steps:
- name: drift
  do:
  - request: {to: cloud, method: PUT, resource: networks, body: {network: {name: other}}}
  - request: {to: cloud, method: POST, resource: addresses, each: networks}
  - request: {to: cloud, method: DELETE, resource: ports}
`)
	require.NoError(t, err)
	require.Equal(t, "./cmd/neutron", s.Outside["cloud"].Package)

	step := func(request string) string {
		return withOutside + "steps: [{name: drift, do: [{request: " + request + "}]}]"
	}
	outside := func(text string) string {
		return "manifests: []\nresources: [pods]\nconverged: [{rule: \"true\"}]\noutside: {" + text + "}"
	}
	for want, text := range map[string]string{
		`no program "sky" under outside`:                                 step("{to: sky, method: PUT, resource: networks}"),
		`the method is "PATCH"; it must be POST`:                         step("{to: cloud, method: PATCH, resource: networks}"),
		`name a resource`:                                                step("{to: cloud, method: POST}"),
		`resources of cloud: networks, ports`:                            step("{to: cloud, method: DELETE, resource: subnets}"),
		`each and resource must be among the resources`:                  step("{to: cloud, method: POST, resource: ports, each: subnets}"),
		`each is for POST`:                                               step("{to: cloud, method: PUT, resource: ports, each: networks}"),
		`outside "a_b": its name may have a-z and 0-9 only`:              outside("a_b: {module: ., package: ., version: v1, resources: [x]}"),
		`outside core: a program cannot have the name of the core group`: outside("core: {module: ., package: ., version: v1, resources: [x]}"),
		`outside a: resources is empty; name those whose objects count`:  outside("a: {module: ., package: ., version: v1}"),
		`outside a: module, package and version are required`:            outside("a: {module: ., resources: [x], version: v1}"),
		`outside a: no variable in env has {url} in it`:                  outside("a: {module: ., package: ., version: v1, resources: [x], env: {A: b}}"),
	} {
		_, err := read(t, text)
		require.ErrorContains(t, err, want)
	}
}

// cloud is an API with two networks in it.
func cloud(t *testing.T) (server *httptest.Server, heard *[]string) {
	heard = new([]string)
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*heard = append(*heard, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.Path, r.Header.Get("Who"), body))
		switch r.URL.Path {
		case "/v2.0/networks":
			_, _ = io.WriteString(w, `{"networks": [{"id": "1", "name": "a"}, {"id": "2", "name": "b"}]}`)
		case "/v2.0/nonsense":
			_, _ = io.WriteString(w, `<html>`)
		case "/v2.0/nothing":
			http.Error(w, "there is no such thing", http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	return server, heard
}

func TestOutsideIsListedAndChanged(t *testing.T) {
	server, heard := cloud(t)
	o := &outside{Outside: Outside{Version: "v2.0", Resources: []string{"networks"}, Headers: map[string]string{"Who": "us"}}, name: "cloud", url: server.URL}
	state := oracle.State{}
	require.NoError(t, o.list(t.Context(), state))
	require.Equal(t, []oracle.Object{{"id": "1", "name": "a"}, {"id": "2", "name": "b"}}, state.List("cloud_networks"))

	for want, r := range map[string]*Request{
		`[POST /v2.0/ports us {"port":1}]`: {Method: "POST", Resource: "ports", Body: map[string]any{"port": 1}},
		`[GET /v2.0/networks us  POST /v2.0/ports us {"port":{"of":"1"}} POST /v2.0/ports us {"port":{"of":"2"}}]`: {
			Method: "POST", Resource: "ports", Each: "networks", Body: map[string]any{"port": map[string]any{"of": "{id}"}}},
		`[GET /v2.0/networks us  PUT /v2.0/networks/1 us {"network":true} PUT /v2.0/networks/2 us {"network":true}]`: {
			Method: "PUT", Resource: "networks", Body: map[string]any{"network": true}},
		`[GET /v2.0/networks us  DELETE /v2.0/networks/1 us  DELETE /v2.0/networks/2 us ]`: {Method: "DELETE", Resource: "networks"},
	} {
		*heard = nil
		require.NoError(t, o.send(t.Context(), r))
		require.Equal(t, want, fmt.Sprint(*heard))
	}

	require.ErrorContains(t, o.send(t.Context(), &Request{Method: "POST", Resource: "nothing"}),
		"cloud answers 404 Not Found to POST nothing: there is no such thing")
	o.Resources = []string{"nonsense"}
	require.ErrorContains(t, o.list(t.Context(), state), "cloud: read the answer to GET nonsense: ")
	server.Close()
	require.ErrorContains(t, o.list(t.Context(), state), "cloud: Get ")
}

// A list may come in pages. A program that links a page to itself is not asked for ever.
func TestOutsideThatPages(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next := func(marker string) string {
			return fmt.Sprintf(`[{"rel": "previous", "href": "/x"}, {"rel": "next", "href": "http://elsewhere/v2.0/networks?limit=1&marker=%s"}]`, marker)
		}
		switch marker := r.URL.Query().Get("marker"); marker {
		case "":
			_, _ = fmt.Fprintf(w, `{"networks": [{"id": "1"}], "networks_links": %s}`, next("1"))
		case "1":
			_, _ = fmt.Fprintf(w, `{"networks": [{"id": "2"}], "networks_links": %s}`, next("2"))
		case "2":
			_, _ = fmt.Fprintf(w, `{"networks": [{"id": "3"}], "networks_links": %s}`, next("2"))
		}
	}))
	defer server.Close()
	o := &outside{Outside: Outside{Version: "v2.0", Resources: []string{"networks"}}, name: "cloud", url: server.URL}
	state := oracle.State{}
	require.NoError(t, o.list(t.Context(), state))
	require.Equal(t, []oracle.Object{{"id": "1"}, {"id": "2"}, {"id": "3"}}, state.List("cloud_networks"))
}

// The object that the next page comes after may be deleted meanwhile. Then the list begins again, but not for ever.
func TestOutsideThatLosesAPage(t *testing.T) {
	lost, lists := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("marker") {
		case "":
			lists++
			_, _ = fmt.Fprintf(w, `{"networks": [{"id": "of list %d"}], "networks_links": [{"rel": "next", "href": "/v2.0/networks?marker=1"}]}`, lists)
		case "1":
			if lost != 0 {
				lost--
				http.Error(w, "there is no 1", http.StatusNotFound)
				return
			}
			_, _ = w.Write([]byte(`{"networks": [{"id": "last"}]}`))
		}
	}))
	defer server.Close()
	o := &outside{Outside: Outside{Version: "v2.0", Resources: []string{"networks"}}, name: "cloud", url: server.URL}
	state := oracle.State{}
	lost = 2
	require.NoError(t, o.list(t.Context(), state))
	require.Equal(t, []oracle.Object{{"id": "last"}, {"id": "of list 3"}}, state.List("cloud_networks"))

	lost, lists = -1, 0 // always
	require.EqualError(t, o.list(t.Context(), state), "cloud answers 404 Not Found to GET networks?marker=1: there is no 1")
	require.Equal(t, 10, lists)
}

// starting is a run that can start a program outside, which is a shell's.
func starting(t *testing.T, script string) *run {
	return newRun(&world{controlPlane: &controlPlane{}, subject: &subject{
		scenario:        &Scenario{Outside: map[string]Outside{"cloud": {Version: "v2.0", Resources: []string{"networks"}}}},
		outsideCommands: map[string][]string{"cloud": {"/bin/sh", "-c", script}}, scratch: t.TempDir(),
	}})
}

func TestStartOutside(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	server, _ := cloud(t)
	r := starting(t, "echo "+server.URL+"/; exec sleep 1000")
	r.armed = arm(Plan{Faults: []apiproxy.Fault{
		{Match: apiproxy.Match{Verb: "list"}, Effect: apiproxy.Effect{Refuse: 500}},
		{Match: apiproxy.Match{Group: "cloud", Verb: "list", Resource: "networks"}, Effect: apiproxy.Effect{Refuse: 409}},
	}})
	o, err := r.startOutside(t.Context(), "cloud", 1)
	require.NoError(t, err)
	require.Equal(t, server.URL, o.url)
	response, err := http.Get(o.proxy.URL() + "/v2.0/networks")
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusConflict, response.StatusCode, "only faults that name it are for it")
	require.NoError(t, o.list(t.Context(), oracle.State{}), "we go past the proxy")
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, o.stop())
	require.NotNil(t, o.process.ProcessState)
	requests := r.recording.History().Requests
	require.Len(t, requests, 1)
	require.Greater(t, requests[0].ID, int64(1)<<32)
}

// A program may print more than its URL, and more than fits into a pipe.
func TestOutsideThatGoesOnPrinting(t *testing.T) {
	server, _ := cloud(t)
	printed := filepath.Join(t.TempDir(), "printed")
	o, err := starting(t, "echo "+server.URL+"; head -c 1000000 /dev/zero; touch "+printed+"; exec sleep 1000").startOutside(t.Context(), "cloud", 1)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := os.Stat(printed)
		return err == nil
	}, time.Minute, 10*time.Millisecond, "it is blocked")
	require.NoError(t, o.stop())
}

// A program that does not answer does not keep torture waiting.
func TestOutsideThatDoesNotAnswer(t *testing.T) {
	before := answerLimit
	answerLimit = 50 * time.Millisecond
	t.Cleanup(func() { answerLimit = before })
	for name, begin := range map[string]func(http.ResponseWriter){
		"not at all": func(http.ResponseWriter) {},
		"not to its end": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"networks": [`)
			w.(http.Flusher).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				begin(w)
				<-r.Context().Done()
			}))
			defer server.Close()
			o := &outside{Outside: Outside{Version: "v2.0", Resources: []string{"networks"}}, name: "cloud", url: server.URL}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // if there is no limit
			defer cancel()
			require.ErrorContains(t, o.list(ctx, oracle.State{}), "cloud has not answered GET networks within 50ms; find out what blocks it: ")
			cancel()
			err := o.list(ctx, oracle.State{})
			require.Error(t, err)
			require.NotContains(t, err.Error(), "has not answered", "it was interrupted")
		})
	}
}

func TestStartOutsideRefuses(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "marker")
	for script, want := range map[string]string{
		"echo up": `cloud must print its URL in its first line; it printed "up"`,
		"exit 3":  `cloud must print its URL in its first line; it printed ""`,
		"echo no URL; sleep 1000; touch " + marker: `it printed "no URL"`,
	} {
		_, err := starting(t, script).startOutside(context.Background(), "cloud", 1)
		require.ErrorContains(t, err, want)
	}
	_, err := os.Stat(marker)
	require.ErrorIs(t, err, os.ErrNotExist)
	r := starting(t, "")
	r.outsideCommands["cloud"] = []string{"/nowhere"}
	_, err = r.startOutside(t.Context(), "cloud", 1)
	require.ErrorContains(t, err, "start cloud: ")
}

// A program that was built for us stays while others are built.
func TestPin(t *testing.T) {
	cache, scratch := t.TempDir(), t.TempDir()
	t.Setenv("WORKSHOP_CACHE", cache)
	built := filepath.Join(cache, "controller")
	require.NoError(t, os.WriteFile(built, []byte("#!/bin/sh"), 0o700))
	pinned, err := pin([]string{built, "--flag"}, scratch)
	require.NoError(t, err)
	require.Equal(t, "--flag", pinned[1])
	require.NoError(t, os.Remove(built))
	text, err := os.ReadFile(pinned[0])
	require.NoError(t, err)
	require.Equal(t, "#!/bin/sh", string(text))

	own := []string{"/usr/bin/true"}
	pinned, err = pin(own, scratch)
	require.NoError(t, err)
	require.Equal(t, own, pinned, "what is a person's own stays where it is")
	_, err = pin([]string{built}, scratch)
	require.ErrorContains(t, err, "keep the program")
}

// Nobody knows which names were generated in a resource that is not watched.
func TestClasses(t *testing.T) {
	s := &Scenario{Resources: []string{"pods", "foos.example.com"}, Outside: map[string]Outside{"cloud": {}}}
	recorded := &history.History{Requests: []history.Request{{Group: "cloud", Resource: "networks"}, {Group: "batch", Resource: "jobs"}}}
	of := s.classesIn(recorded, func(resource, name string) string { return resource + "/" + name })
	require.Equal(t, "pods/a", of("pods", "a"))
	require.Equal(t, "foos/a", of("foos", "a"))
	require.Equal(t, "*", of("jobs", "sync-x7k2p"))
	require.Empty(t, of("jobs", ""))
	require.Equal(t, "networks/a", of("networks", "a"))
	require.Equal(t, "*", of("networks", "8761236f-2ed4-4729-b1fd-60d59aa29979"))
}
