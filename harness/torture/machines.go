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
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/machine"
	"example.com/controllers/harness/machine/host"
)

// MachineAction changes a simulated machine, as "workshop node" does. The step goes on when the machine is on or off as
// asked, and the programs on it have been started or killed.
type MachineAction struct {
	Name string `json:"name"`
	// Do is add, remove, on, off, ready, not-ready, reboot, or set-reboot for what happens when the machine is told to
	// reboot later on. Reboots by a step are not counted in [machine.RebootsAnnotation], so that a rule can tell how
	// often programs have rebooted the machine.
	Do string `json:"do"`
	// Behavior and BootTime are for reboot and set-reboot; see package machine.
	Behavior machine.Behavior `json:"behavior,omitempty"`
	BootTime metav1.Duration  `json:"bootTime,omitempty"`
}

// rebootVariable stands for a command that reboots the program's own machine.
const rebootVariable = "{reboot}"

// hasMachines reports whether the machines of the cluster go on and off in a run, so that programs run on them.
func (s *Scenario) hasMachines() bool {
	for _, program := range s.programs() {
		if program.EachNode {
			return true
		}
	}
	return len(s.machineActions()) > 0
}

func (s *Scenario) machineActions() (all []*MachineAction) {
	for _, step := range slices.Concat(s.Setup, s.Steps) {
		for _, action := range step.Do {
			if action.Machine != nil {
				all = append(all, action.Machine)
			}
		}
	}
	return all
}

func (s *Scenario) checkMachines() error {
	for _, a := range s.machineActions() {
		known := []string{"add", "remove", "on", "off", "ready", "not-ready", "reboot", "set-reboot"}
		isReboot := a.Do == "reboot" || a.Do == "set-reboot"
		switch {
		case !s.isCluster():
			return errors.New("machine: other runs use the same machines; it needs scope: cluster")
		case a.Name == "":
			return errors.New("machine: name is required")
		case !slices.Contains(known, a.Do):
			return fmt.Errorf("machine: do is %q; it must be one of %s", a.Do, strings.Join(known, ", "))
		case !isReboot && (a.Behavior != "" || a.BootTime.Duration != 0):
			return fmt.Errorf("machine: behavior and bootTime are for reboot and set-reboot, not for %s", a.Do)
		case a.Behavior != "" && !slices.Contains(machine.Behaviors, a.Behavior):
			return fmt.Errorf("machine: behavior is %q; it must be one of %q", a.Behavior, machine.Behaviors)
		case a.BootTime.Duration < 0:
			return errors.New("machine: bootTime must not be negative")
		}
	}
	for name, program := range s.programs() {
		if program.rebootsMachine(program.Args) && (!program.EachNode || !s.isCluster()) {
			return fmt.Errorf("program %s: %s is for programs with eachNode, and needs scope: cluster", name, rebootVariable)
		}
	}
	return nil
}

// rebootsMachine reports whether the program, with this command, is given the command that reboots its machine.
func (c Controller) rebootsMachine(command []string) bool {
	given := slices.AppendSeq(slices.Clone(command), maps.Values(c.Env))
	return slices.ContainsFunc(given, func(text string) bool { return strings.Contains(text, rebootVariable) })
}

// isOnMachine reports whether the instances of a program run on machines.
func (s *Scenario) isOnMachine(target string) bool {
	program, _, _ := strings.Cut(target, "-")
	return s.programs()[program].EachNode
}

// machines is what a run knows of its machines and of the programs on them.
type machines struct {
	*processes
	ctx    context.Context // ends with the run
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	follows bool // programs run on them; not so in setup
	all     map[string]machineState
	changed chan struct{}     // closed and replaced at each change
	over    map[string]func() // ends the hold-up of a machine that is rebooting
}

// machineState is a machine whose programs have been started or killed accordingly. The zero value is a machine that has
// not been seen yet, or has been removed.
type machineState struct {
	uid   types.UID
	boots int
	on    bool
}

func stateOf(node *corev1.Node) machineState {
	return machineState{node.UID, machine.Boots(node), machine.IsOn(node)}
}

func (m *machines) set(name string, state machineState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[name] = state
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *machines) get(name string) (state machineState, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[name], m.changed
}

// isFollowed reports whether the programs on the machines are started and killed with them.
func (m *machines) isFollowed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.follows
}

func newMachines(ctx context.Context, ps *processes) *machines {
	m := &machines{processes: ps, all: map[string]machineState{}, changed: make(chan struct{}), over: map[string]func(){}}
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return m
}

// areRebooting reports whether machines are off, or their programs have not been in contact yet, in a reboot that ends.
func (m *machines) areRebooting() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.over) > 0
}

// follow starts the programs on each machine whenever it goes on, and kills them when it goes off, until the end of
// the run. It returns when the programs on those that are on have been started.
func (m *machines) follow(ctx context.Context) error {
	client := m.controlPlane.clients
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: machine.Selector})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	m.mu.Lock()
	m.follows = true
	m.mu.Unlock()
	m.work.Go(func() {
		if err := host.Follow(m.ctx, client, "", m.switchedOn, m.switchedOff); err != nil {
			m.cannotGoOn(err)
		}
	})
	for _, node := range nodes.Items {
		if err := m.await(ctx, node.Name, func(state machineState) bool { return state.on }); err != nil {
			return err
		}
	}
	return nil
}

// stop ends follow. The programs keep running.
func (m *machines) stop() {
	m.cancel()
	m.work.Wait()
}

// switchedOn starts the programs on a machine that has been switched on.
func (m *machines) switchedOn(node *corev1.Node) {
	programs := m.on(node.Name)
	for _, p := range programs {
		if err := m.authenticate(p, node); err != nil {
			m.cannotGoOn(err)
			return
		}
		p.switchOn()
		if err := m.startUnlessDown(p); err != nil {
			m.cannotGoOn(err)
			return
		}
	}
	m.set(node.Name, stateOf(node))
	m.work.Go(func() { // it is back when its programs are
		const limit = 10 * time.Second // some programs have nothing to ask for
		_ = wait.PollUntilContextTimeout(m.ctx, pollInterval, limit, true, func(context.Context) (bool, error) {
			return !slices.ContainsFunc(programs, func(p *program) bool { silent, _ := m.isSilent(p); return silent }), nil
		})
		m.mu.Lock()
		defer m.mu.Unlock()
		if over := m.over[node.Name]; over != nil && m.all[node.Name].on {
			over()
			delete(m.over, node.Name)
		}
	})
}

// switchedOff kills the programs on a machine whose power has gone off, or that has been removed. If it is to come back by
// itself, that holds up the programs.
func (m *machines) switchedOff(node *corev1.Node) {
	for _, p := range m.on(node.Name) {
		p.switchOff()
	}
	if reboot, err := machine.RebootOf(node); err == nil && reboot != nil && reboot.Behavior != machine.Hang {
		m.mu.Lock()
		if m.over[node.Name] == nil {
			m.over[node.Name] = m.holder(node.Name)(history.MachineRebooted)
		}
		m.mu.Unlock()
	}
	state := stateOf(node)
	state.on = false // it may have been removed
	m.set(node.Name, state)
}

// authenticate gives a program a token of its account that is bound to its Node, as that of a Pod on the Node is.
func (m *machines) authenticate(p *program, node *corev1.Node) error {
	account := cmp.Or(p.Account, m.scenario.Account)
	if account == "" {
		return nil
	}
	namespace, name := m.qualify(account)
	var failed error
	// A fault may have killed the control plane.
	err := wait.PollUntilContextTimeout(m.ctx, 4*pollInterval, time.Minute, true, func(ctx context.Context) (bool, error) {
		config, err := m.controlPlane.cluster.NodeServiceAccountConfig(ctx, namespace, name, node)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the Node has been removed
			return true, nil
		}
		if err == nil {
			config, err = p.proxy.ConfigFor(config)
		}
		if err == nil {
			err = cluster.WriteKubeconfig(p.kubeconfig, config, m.namespace)
		}
		failed = err
		return err == nil, nil
	})
	if err != nil && m.ctx.Err() == nil {
		return fmt.Errorf("bind the token of %s to its node: %w", p.name, failed)
	}
	return nil
}

// await waits until a machine is in a state, and the programs on it have been started or killed.
func (m *machines) await(ctx context.Context, name string, is func(machineState) bool) error {
	const limit = time.Minute
	for begin := time.Now(); ; {
		var state machineState
		var changed <-chan struct{}
		if m.isFollowed() {
			state, changed = m.get(name)
		} else { // there are no programs yet
			node, err := m.controlPlane.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if err == nil {
				state = stateOf(node)
			}
		}
		if is(state) {
			return nil
		}
		if m.elapsed(begin) > limit {
			return fmt.Errorf("machine %s has not become what it should be within %s", name, limit)
		}
		if err := m.sleep(ctx, changed, 4*pollInterval); err != nil {
			return err
		}
	}
}

// change takes a step's action on a machine.
func (m *machines) change(ctx context.Context, a MachineAction) ([]applied, error) {
	client := m.controlPlane.clients
	options := machine.RebootOptions{Behavior: a.Behavior, BootTime: a.BootTime.Duration, Spontaneous: true}
	before, err := client.CoreV1().Nodes().Get(ctx, a.Name, metav1.GetOptions{})
	if err != nil && a.Do != "add" {
		return nil, fmt.Errorf("%s machine: %w", a.Do, err)
	}
	is := func(machineState) bool { return true }
	isOn := func(state machineState) bool { return state.on }
	isOff := func(state machineState) bool { return !state.on }
	switch a.Do {
	case "add":
		err, is = machine.Add(ctx, client, a.Name), isOn
	case "remove":
		err, is = machine.Remove(ctx, client, a.Name), isOff
	case "on":
		if !machine.IsOn(before) {
			// Otherwise, programs that have not been killed yet would keep running after the machine has booted.
			err = m.await(ctx, a.Name, func(state machineState) bool { return !state.on || state.boots > machine.Boots(before) })
		}
		if err == nil {
			err = machine.SetPower(ctx, client, a.Name, true)
		}
		is = isOn
	case "off":
		err, is = machine.SetPower(ctx, client, a.Name, false), isOff
	case "ready", "not-ready":
		err = machine.SetReady(ctx, client, a.Name, a.Do == "ready")
	case "set-reboot":
		err = machine.SetReboots(ctx, client, a.Name, options)
	case "reboot":
		switch cmp.Or(a.Behavior, machine.Behavior(before.Annotations[machine.RebootAnnotation])) {
		case machine.Ignore:
		case machine.Hang:
			is = isOff
		default:
			is = func(state machineState) bool { return state.on && state.boots > machine.Boots(before) }
		}
		err = machine.Reboot(ctx, client, a.Name, options)
	}
	if err != nil {
		return nil, err
	}
	if err := m.await(ctx, a.Name, is); err != nil {
		return nil, err
	}
	if a.Do == "remove" {
		old := &unstructured.Unstructured{}
		old.SetName(before.Name)
		old.SetUID(before.UID)
		return nil, m.awaitDeletion(ctx, "nodes", old)
	}
	node, err := client.CoreV1().Nodes().Get(ctx, a.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s machine: %w", a.Do, err)
	}
	return []applied{{"nodes", node.ResourceVersion}}, nil
}

// faultBootTime is how long a machine is off that a fault reboots, unless the fault says so.
const faultBootTime = 2 * time.Second

// fails returns what the proxy of a program calls to make a machine fail: the one that the program runs on, or else
// the one whose Node the request is for. See [apiproxy.Options]. It does nothing to a machine that is off or rebooting.
func (m *machines) fails(p *program) func(context.Context, history.InjectionKind, time.Duration, history.Request) (own, done bool) {
	return func(_ context.Context, kind history.InjectionKind, offFor time.Duration, q history.Request) (own, done bool) {
		name := p.node
		if name == "" && q.Group == "" && q.Resource == "nodes" {
			name = q.Name
		}
		if name == "" {
			return false, false
		}
		own = name == p.node
		options := machine.RebootOptions{Behavior: machine.PowerCut, BootTime: cmp.Or(offFor, faultBootTime), Spontaneous: true}
		if kind == history.MachineRebooted {
			options.Behavior = machine.Normal
		}
		ctx := m.ctx // that of the request ends when the program does
		before, _ := m.get(name)
		if !before.on {
			return own, false
		}
		node, err := m.controlPlane.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			isRebooting := node.Annotations[machine.RebootingAnnotation] != "" // Reboot leaves it alone
			err = machine.Reboot(ctx, m.controlPlane.clients, name, options)
			done = err == nil && !isRebooting
		}
		if err == nil {
			err = wait.PollUntilContextTimeout(ctx, pollInterval/10, time.Minute, true, func(context.Context) (bool, error) {
				now, _ := m.get(name)
				return now != before, nil
			})
		}
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			m.cannotGoOn(fmt.Errorf("make machine %s fail: %w", name, err))
		}
		return own, done
	}
}

// rebootCommand returns a command that reboots a machine. It goes to the API server itself, as an administrator.
func (w *world) rebootCommand(node string) string {
	return strings.Join([]string{w.workshop, "node", "reboot", node, "--kubeconfig", w.controlPlane.cluster.Kubeconfig}, " ")
}

// buildWorkshop builds the program of rebootCommand, if a command needs it.
func (s *subject) buildWorkshop(ctx context.Context, o Options) error {
	needed := false
	for name, program := range o.Scenario.programs() {
		needed = needed || program.rebootsMachine(s.commands[name])
	}
	if !needed {
		return nil
	}
	path, err := gobuild.Prebuilt(gobuild.Workshop("").Name)
	if err == nil && path == "" {
		var root string
		if root, err = cluster.Root(ctx); err == nil {
			path, err = gobuild.Build(ctx, gobuild.Workshop(filepath.Join(root, "harness")), o.Progress)
		}
	}
	if err != nil {
		return err
	}
	pinned, err := pin([]string{path}, s.scratch)
	if err == nil {
		s.workshop = pinned[0]
	}
	return err
}
