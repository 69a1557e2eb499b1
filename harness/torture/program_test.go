package torture

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

const severalPrograms = `
resources: [pods]
converged: [{rule: 'true'}]
scope: cluster
nodes: 2
programs:
  controller: {module: ., package: ./cmd/controller, replicas: 2}
  agent: {module: ., package: ./cmd/agent, eachNode: true, account: agents/agent, env: {NODE_NAME: "{node}"}}
`

func TestInstances(t *testing.T) {
	s, err := read(t, severalPrograms)
	require.NoError(t, err)
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	all, err := s.instances(t.Context(), fake.NewClientset(node("node-0"), node("node-1")))
	require.NoError(t, err)
	var names []string
	for _, one := range all {
		names = append(names, one.name)
	}
	require.Equal(t, []string{"agent-node-0", "agent-node-1", "controller-1", "controller-2"}, names)
	require.Equal(t, "node-1", all[1].node)
	require.Equal(t, "agents/agent", all[1].Account)
	require.Equal(t, 2, all[3].replica)
	require.Equal(t, "controller", all[3].program)

	single, err := read(t, "resources: [pods]\nconverged: [{rule: 'true'}]")
	require.NoError(t, err)
	all, err = single.instances(t.Context(), fake.NewClientset())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "controller", all[0].name)
}

// A program finds files beside the scenario, wherever torture is started.
func TestReplacer(t *testing.T) {
	s, err := read(t, severalPrograms)
	require.NoError(t, err)
	s.path = "/scenarios/web.yaml"
	replace := s.replacer(instance{replica: 2, node: "node-1"}, "/tmp/kubeconfig", "shop", "", "https://127.0.0.1:7")
	require.Equal(t, "/scenarios/policy.yaml /tmp/kubeconfig https://127.0.0.1:7 shop 2 node-1",
		replace.Replace("{dir}/policy.yaml {kubeconfig} {server} {namespace} {replica} {node}"))
}

func TestProgramsThatAreWrong(t *testing.T) {
	const least = "resources: [pods]\nconverged: [{rule: 'true'}]\n"
	for text, want := range map[string]string{
		"controller: {module: ., package: .}\nprograms: {a: {module: ., package: .}}": "give controller or programs, not both",
		"scope: world":              `scope is "world"; it must be namespace or cluster`,
		"nodes: 3":                  "nodes must be 1 or more, and is for scope cluster",
		"scope: cluster\nnodes: -1": "nodes must be 1 or more",
		"programs: {A-b: {module: ., package: .}}":                                      `program "A-b": its name may have a-z and 0-9 only`,
		"programs: {a: {package: .}}":                                                   "program a: module and package are required",
		"programs: {a: {module: ., package: ., replicas: -1}}":                          "program a: replicas must be 1 or more",
		"programs: {a: {module: ., package: ., replicas: 2, eachNode: true}}":           "not together with eachNode",
		"programs: {a: {module: ., package: .}}\nsteps: [{name: x, do: [{stop: b}]}]":   `there is no program "b"; there is a`,
		"programs: {a: {module: ., package: .}}\nsteps: [{name: x, do: [{kill: b-1}]}]": `there is no program "b-1"; there is a`,
		"mayDiffer: {names: [lock-*]}":                                                  `mayDiffer.names: "lock-*" is not of the form RESOURCE: NAME`,
	} {
		_, err := read(t, least+text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := read(t, least+"programs: {a: {module: ., package: ., replicas: 2}}\nsteps: [{name: x, do: [{stop: a}, {start: a-2}]}]")
	require.NoError(t, err)
}

func TestFaultsOfPrograms(t *testing.T) {
	fault := func(text string) apiproxy.Fault {
		f, err := apiproxy.ParseFault(text)
		require.NoError(t, err)
		return f
	}
	all := arm(Plan{Faults: []apiproxy.Fault{
		fault("verb=get,delay=1s"), fault("verb=list,program=agent,delay=1s"), fault("verb=watch,program=agent-node-1,delay=1s"),
	}})
	verbs := func(name string) (verbs []string) {
		for _, f := range faultsOf(all, instance{name: name, program: "agent"}) {
			require.Empty(t, f.Program, "a proxy knows no names")
			verbs = append(verbs, f.Verb)
		}
		return verbs
	}
	require.Equal(t, []string{"get", "list"}, verbs("agent-node-0"))
	require.Equal(t, []string{"get", "list", "watch"}, verbs("agent-node-1"))
	require.Len(t, faultsOf(all, instance{name: "controller", program: "controller"}), 1)
	one, two := instance{name: "agent-node-0", program: "agent"}, instance{name: "agent-node-1", program: "agent"}
	require.Same(t, faultsOf(all, one)[1], faultsOf(all, two)[1], "requests of all instances are numbered together")
}

// The recordings of several proxies are one: requests have numbers of their own, and events keep their watch.
func TestRecorder(t *testing.T) {
	r := newProcesses(&world{subject: &subject{scenario: &Scenario{}}})
	for number, program := range []string{"agent", "controller"} {
		record := r.recorder(program, number)
		record(history.Record{Request: &history.Request{ID: 1, Verb: "watch", Resource: "pods"}})
		record(history.Record{Event: &history.Event{Request: 1, Resource: "pods", Name: program}})
	}
	h := r.recording.History()
	require.Len(t, h.Requests, 2)
	require.Equal(t, "controller", h.Requests[1].Program)
	require.Equal(t, []int{0, 1}, []int{proxyOf(h.Requests[0].ID), proxyOf(h.Requests[1].ID)})
	for i, e := range h.Events {
		require.Equal(t, h.Requests[i].ID, e.Request)
		require.Equal(t, h.Requests[i].Program, e.Name)
	}
}

// A resource that only some replicas have been sent events of is not one that all must watch.
func TestWatchedIn(t *testing.T) {
	r := replicas()
	event := func(proxy int, resource string) history.Event {
		return history.Event{Request: int64(proxy)<<proxyBits + 1, Resource: resource}
	}
	h := &history.History{Events: []history.Event{event(1, "pods"), event(2, "pods"), event(1, "nodes"), event(3, "nodes")}}
	require.Equal(t, map[watching]bool{{"controller", "pods"}: true, {"agent", "nodes"}: true}, r.watchedIn(h))

	request := func(proxy int, verb, resource string, status int) history.Request {
		return history.Request{ID: int64(proxy)<<proxyBits + 1, Verb: verb, Resource: resource, Status: status}
	}
	h = &history.History{Requests: []history.Request{
		request(1, "watch", "pods", 200), request(2, "watch", "pods", 200), request(1, "watch", "nodes", 200), request(3, "watch", "nodes", 200),
		request(3, "list", "pods", 200), request(3, "watch", "secrets", 403),
	}}
	require.Equal(t, map[watching]bool{{"controller", "pods"}: true, {"agent", "nodes"}: true}, r.openedIn(h))
}

// Each {port} is a port that no other program has, in this run or another.
func TestPorts(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		text, err := withPorts("--metrics=:{port} --probes=127.0.0.1:{port} --verbose")
		require.NoError(t, err)
		parts := regexp.MustCompile(`^--metrics=:(\d+) --probes=127\.0\.0\.1:(\d+) --verbose$`).FindStringSubmatch(text)
		require.Len(t, parts, 3, text)
		for _, port := range parts[1:] {
			require.False(t, seen[port], port)
			seen[port] = true
		}
	}
	text, err := withPorts("--kubeconfig=x")
	require.NoError(t, err)
	require.Equal(t, "--kubeconfig=x", text)
}

// A port that another program has is left out.
func TestPortsThatAreTaken(t *testing.T) {
	next := func() int {
		text, err := withPorts("{port}")
		require.NoError(t, err)
		port, err := strconv.Atoi(text)
		require.NoError(t, err)
		return port
	}
	taken, err := net.Listen("tcp", fmt.Sprintf(":%d", next()+1))
	if err != nil {
		t.Skip("another program has that port")
	}
	defer taken.Close()
	require.NotEqual(t, taken.Addr().(*net.TCPAddr).Port, next())
}
