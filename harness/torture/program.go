package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/history"
)

// instance is one process of a program: its only one, a replica, or the one on a Node.
type instance struct {
	name    string // unique in the run: "agent", "controller-2", "agent-node-0"
	program string // by which the scenario knows it
	replica int    // from 1
	node    string // or ""
	Controller
}

// program is an instance while it runs, and the proxy that it reaches the API server by.
type program struct {
	instance
	*process
	label   string // of the program in recordings: its name; "" for the only one
	number  int    // unique among the proxies of the run
	proxy   *apiproxy.Proxy
	contact contact // its latest start
	exits   int     // how often it was allowed to end by itself; guarded by run.mu
	isDown  bool    // a step has ended it; guarded by run.mu

	kubeconfig string // path
}

func (s *Scenario) checkPrograms() error {
	switch {
	case s.Controller != nil && len(s.Programs) > 0:
		return errors.New("give controller or programs, not both")
	case s.Scope != "" && s.Scope != "namespace" && s.Scope != "cluster":
		return fmt.Errorf("scope is %q; it must be namespace or cluster", s.Scope)
	case s.Nodes < 0 || s.Nodes > 0 && !s.isCluster():
		return errors.New("nodes must be 1 or more, and is for scope cluster")
	}
	for name, program := range s.programs() {
		switch {
		case !identifier.MatchString(name):
			return fmt.Errorf("program %q: its name may have a-z and 0-9 only", name)
		case len(s.Programs) > 0 && (program.Module == "" || program.Package == ""):
			return fmt.Errorf("program %s: module and package are required", name)
		case program.Replicas < 0 || program.Replicas > 1 && program.EachNode:
			return fmt.Errorf("program %s: replicas must be 1 or more, and not together with eachNode", name)
		}
	}
	return nil
}

// isInstance reports whether a name stands for a program or for one of its instances.
func isInstance(name, program string) bool {
	return name == program || strings.HasPrefix(name, program+"-")
}

// instances returns what is to be started, sorted by name.
func (s *Scenario) instances(ctx context.Context, client kubernetes.Interface) ([]instance, error) {
	var all []instance
	programs := s.programs()
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		program := programs[name]
		one := instance{name: name, program: name, replica: 1, Controller: program}
		switch {
		case program.EachNode:
			nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list nodes: %w", err)
			}
			names := map[string]bool{}
			for _, node := range nodes.Items {
				names[node.Name] = true
			}
			for _, a := range s.machineActions() {
				names[a.Name] = true // it may be added later
			}
			for _, node := range slices.Sorted(maps.Keys(names)) {
				one.name, one.node = name+"-"+node, node
				all = append(all, one)
			}
		case program.Replicas > 1:
			for replica := range program.Replicas {
				one.name, one.replica = fmt.Sprintf("%s-%d", name, replica+1), replica+1
				all = append(all, one)
			}
		default:
			all = append(all, one)
		}
	}
	return all, nil
}

// dirVariable stands for the directory of the scenario's file.
const dirVariable = "{dir}"

// replacer replaces what is written in braces in the arguments and the Env of an instance. See [Controller].
func (s *Scenario) replacer(one instance, kubeconfig, namespace, reboot, server string) *strings.Replacer {
	return strings.NewReplacer("{kubeconfig}", kubeconfig, "{server}", server, "{namespace}", namespace, "{replica}", fmt.Sprint(one.replica),
		"{node}", one.node, dirVariable, filepath.Dir(s.path), rebootVariable, reboot)
}

// launchProgram prepares an instance, and starts the proxy that it reaches the API server by. number tells the recordings of the
// proxies apart.
func (r *run) launchProgram(ctx context.Context, one instance, number int) (p *program, err error) {
	upstream, err := r.upstream(ctx, cmp.Or(one.Account, r.scenario.Account))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(r.scratch, fmt.Sprintf("%s.%d.%s", r.namespace, r.number, one.name))
	env, err := environ.Isolated(file+".home", r.scenario.Env...)
	if err != nil {
		return nil, err
	}
	kubeconfig := file + ".kubeconfig"
	p = &program{instance: one, number: number, kubeconfig: kubeconfig}
	p.process = &process{
		env:     append(env, "KUBECONFIG="+kubeconfig, "KUBE_CACHE_MUTATION_DETECTOR=true"),
		ended:   func(how exit) { r.fail(r.died(p, how)) },
		mayExit: r.mayExit(p), starting: func() { r.noteStart(p) }, unslowed: r.unslowed,
	}
	p.process.off.Store(one.node != "") // until followMachines starts it
	if len(r.scenario.programs()) > 1 || one.name != one.program {
		p.label = one.name
	}
	p.process.note = func(state history.ProcessState) {
		r.recording.Record(history.Record{Process: &history.Process{Time: time.Now(), Program: p.label, State: state}})
	}
	// The proxy outlives the program, whose last requests belong to the recording.
	proxy, err := apiproxy.Start(context.WithoutCancel(ctx), r.proxyOptions(p, upstream, number))
	if err != nil {
		return nil, err
	}
	p.proxy = proxy
	defer func() {
		if err != nil {
			err = errors.Join(err, proxy.Stop())
		}
	}()
	if err := cluster.WriteKubeconfig(kubeconfig, proxy.Config(), r.namespace); err != nil {
		return nil, err
	}
	replace := r.scenario.replacer(one, kubeconfig, r.namespace, r.rebootCommand(one.node), proxy.URL())
	for _, word := range r.commands[one.program] {
		if word, err = withPorts(replace.Replace(word)); err != nil {
			return nil, err
		}
		p.process.command = append(p.process.command, word)
	}
	for key, value := range one.Env {
		if value, err = withPorts(replace.Replace(value)); err != nil {
			return nil, err
		}
		p.process.env = append(p.process.env, key+"="+value)
	}
	for _, o := range r.outside {
		for key, value := range o.Env {
			p.process.env = append(p.process.env, key+"="+strings.ReplaceAll(value, "{url}", o.proxy.URL()))
		}
	}
	return p, nil
}

// portVariable stands for a free port.
const portVariable = "{port}"

// The ports that programs are given. The kernel takes those of outgoing connections from above, by default.
const firstPort, portCount = 20_000, 10_000

// lastPort is the port that was given last, counted from firstPort. It begins anywhere, as another torture may run.
var lastPort atomic.Int64

func init() { lastPort.Store(rand.Int64N(portCount)) }

// withPorts replaces each {port} by another port that no program listens on.
func withPorts(text string) (string, error) {
	for strings.Contains(text, portVariable) {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		text = strings.Replace(text, portVariable, fmt.Sprint(port), 1)
	}
	return text, nil
}

func freePort() (port int64, err error) {
	for range portCount {
		port = firstPort + lastPort.Add(1)%portCount
		var listener net.Listener
		if listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("find a port for %s: %w", portVariable, err)
}

// armed is a fault of a plan, in force. All proxies that it is for share it.
type armed struct {
	program string // as in [apiproxy.Match]
	*apiproxy.Armed
}

// arm puts the faults of a plan in force.
func arm(plan Plan) (all []armed) {
	for _, f := range plan.Faults {
		program := f.Program
		f.Program = "" // a proxy knows no programs
		all = append(all, armed{program, apiproxy.Arm(f)})
	}
	return all
}

// faultsOf returns the faults that are for a program.
func faultsOf(all []armed, one instance) (faults []*apiproxy.Armed) {
	for _, f := range all {
		if f.program == "" || f.program == one.program || f.program == one.name {
			faults = append(faults, f.Armed)
		}
	}
	return faults
}

// target returns the program at which a fault is aimed that is for a request of an instance: all replicas, as another one
// may send the request next time, but only one of the instances that each have a Node.
func (s *Scenario) target(label string) string {
	if program, _, _ := strings.Cut(label, "-"); s.programs()[program].Replicas > 1 {
		return program
	}
	return label
}

// byTarget returns a recording in which the program of each request is the one at which a fault is aimed.
func (s *Scenario) byTarget(h *history.History) *history.History {
	aimed := &history.History{Requests: slices.Clone(h.Requests), Events: h.Events}
	for i, q := range aimed.Requests {
		aimed.Requests[i].Program = s.target(q.Program)
	}
	return aimed
}

// proxyOf returns the number of the proxy that gave a request its number.
func proxyOf(request int64) int { return int(request >> proxyBits) }

// proxyBits are the bits of the number of a request that tell the requests of one proxy apart.
const proxyBits = 32

// end tells the program to stop, waits for that, and says what was wrong with it. status is as in [Scenario.StopsWith].
func (p *program) end(status int) *Failure {
	how, ran := p.stop()
	if !ran {
		return nil
	}
	return how.afterSIGTERM(status).of(p.label)
}
