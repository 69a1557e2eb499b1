package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

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
	proxy   *apiproxy.Proxy
	contact contact // its latest start
	exits   int     // how often it was allowed to end by itself; guarded by run.mu
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
			for _, node := range nodes.Items {
				one.name, one.node = name+"-"+node.Name, node.Name
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

// launchProgram starts an instance and the proxy that it reaches the API server by. number tells the recordings of the
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
	replace := strings.NewReplacer("{kubeconfig}", kubeconfig, "{namespace}", r.namespace, "{replica}", fmt.Sprint(one.replica), "{node}", one.node)
	p = &program{instance: one}
	p.process = &process{
		env:     append(env, "KUBECONFIG="+kubeconfig, "KUBE_CACHE_MUTATION_DETECTOR=true"),
		died:    r.died,
		mayExit: r.mayExit(p), starting: func() { r.noteStart(p) },
	}
	if len(r.scenario.programs()) > 1 || one.name != one.program {
		p.process.label = one.name
	}
	for _, word := range r.commands[one.program] {
		p.process.command = append(p.process.command, replace.Replace(word))
	}
	for key, value := range one.Env {
		p.process.env = append(p.process.env, key+"="+replace.Replace(value))
	}
	for _, o := range r.outside {
		for key, value := range o.Env {
			p.process.env = append(p.process.env, key+"="+strings.ReplaceAll(value, "{url}", o.proxy.URL()))
		}
	}
	// The proxy outlives the program, whose last requests belong to the recording.
	if p.proxy, err = apiproxy.Start(context.WithoutCancel(ctx), r.proxyOptions(p, upstream, number)); err != nil {
		return nil, err
	}
	if err := cluster.WriteKubeconfig(kubeconfig, p.proxy.Config(), r.namespace); err != nil {
		return nil, errors.Join(err, p.proxy.Stop())
	}
	return p, nil
}

// faultsOf returns the faults that are for a program.
func faultsOf(plan Plan, one instance) []apiproxy.Fault {
	var faults []apiproxy.Fault
	for _, f := range plan.Faults {
		if f.Program == "" || f.Program == one.program || f.Program == one.name {
			f.Program = ""
			faults = append(faults, f)
		}
	}
	return faults
}

// recorder returns what a proxy calls to record: it notes the program, and makes the numbers of requests unique in the run.
func (r *run) recorder(program string, number int) func(history.Record) {
	offset := int64(number) << 32
	return func(one history.Record) {
		if one.Request != nil {
			q := *one.Request
			q.ID, q.Program = q.ID+offset, program
			one.Request = &q
		}
		if one.Event != nil {
			e := *one.Event
			e.Request += offset
			one.Event = &e
		}
		r.recording.Record(one)
	}
}
