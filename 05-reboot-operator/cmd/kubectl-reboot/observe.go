package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/reboot/drain"
	"example.com/controllers/reboot/protocol"
	"example.com/controllers/reboot/status"
)

// observer reads what status and why show. What the user may not read is missing, and a warning says so.
type observer struct {
	*plugin
	client   kubernetes.Interface
	flags    *controllerFlags
	flagSet  *pflag.FlagSet // sets flags
	warnings io.Writer
	warned   map[string]bool

	settings *protocol.Settings // nil if there is no ledger, or it may not be read
	view     status.View
}

// newObserver returns an observer that takes the flags of the controller from its ledger, except those that the user has set.
func newObserver(p *plugin, client kubernetes.Interface, flags *controllerFlags, flagSet *pflag.FlagSet, warnings io.Writer) *observer {
	return &observer{plugin: p, client: client, flags: flags, flagSet: flagSet, warnings: warnings, warned: map[string]bool{}}
}

// warn prints a warning once.
func (o *observer) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !o.warned[text] {
		o.warned[text] = true
		fmt.Fprintln(o.warnings, "Warning:", text)
	}
}

// observe reads the ledger, all Nodes, and the Pods that forbid reboots. Only the Nodes are indispensable.
func (o *observer) observe(ctx context.Context) error {
	settings, err := o.findLedger(ctx, o.client)
	if err != nil {
		o.warn("%v; cannot tell whether reboots are paused, nor what limits the controller has", err)
	}
	list, err := o.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}) // after the ledger: see Settings.Slots
	if err != nil {
		return fmt.Errorf("list the Nodes: %w", err)
	}
	nodes := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	o.view.Nodes = nodes
	if err := o.setSettings(settings, list.ResourceVersion); err != nil {
		return err
	}
	o.view.Remaining = map[string]string{}
	var blocking []corev1.Pod
	for _, selector := range o.flags.options.BlockingPods {
		pods, err := o.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			o.warn("cannot tell which Pods forbid reboots: %v", err)
			continue
		}
		blocking = append(blocking, pods.Items...)
	}
	o.setBlockers(blocking)
	return o.observeAgents(ctx)
}

// observeAgents finds out on which Nodes an agent runs, if the controller takes that into account.
func (o *observer) observeAgents(ctx context.Context) error {
	o.view.Agents = nil
	if o.flags.options.AgentPods == nil || o.settings == nil {
		return nil
	}
	o.view.AgentPods = fmt.Sprintf("--namespace %s -l %q", o.agentNamespace(), o.flags.agentPods)
	pods, err := o.client.CoreV1().Pods(o.agentNamespace()).List(ctx, metav1.ListOptions{LabelSelector: o.flags.agentPods})
	if err != nil {
		o.warn("cannot tell on which Nodes an agent runs: %v", err)
		return nil
	}
	var agents []*corev1.Pod
	for i := range pods.Items {
		agents = append(agents, &pods.Items[i])
	}
	o.view.Agents = drain.Running(agents)
	return nil
}

// setSettings takes over what the ledger says. The Nodes must have been read after it.
func (o *observer) setSettings(settings *protocol.Settings, nodesVersion string) error {
	o.settings = settings
	o.view.Pauses, o.view.Slots, o.view.Ledger = nil, nil, ""
	if settings != nil {
		o.view.Pauses, o.view.Ledger = settings.Pauses, protocol.LedgerID(settings.Namespace, settings.Name)
		o.view.Slots = settings.Slots(o.view.Nodes, nodesVersion)
		if settings.Warning != "" {
			o.warn("ConfigMap %s/%s: %s", settings.Namespace, settings.Name, settings.Warning)
		}
		o.setFlags(settings.Flags)
	}
	if err := o.flags.parsePolicy(); err != nil {
		return err
	}
	o.view.Policy, o.view.Timeouts = nil, status.Timeouts{}
	if o.knowsFlags() || o.overridden() {
		o.view.Policy = &o.flags.options.Policy
	}
	if o.knowsFlags() {
		o.view.Timeouts = status.Timeouts{
			Drain: o.flags.options.DrainTimeout, Agent: o.flags.options.AgentTimeout, Reboot: o.flags.options.RebootTimeout,
		}
	}
	return nil
}

// knowsFlags reports whether the controller has published its flags.
func (o *observer) knowsFlags() bool { return o.settings != nil && o.settings.Flags != nil }

// overridden reports whether the user has set a flag of the controller.
func (o *observer) overridden() bool {
	set := false
	o.flagSet.VisitAll(func(f *pflag.Flag) { set = set || f.Changed })
	return set
}

// setFlags sets those of the controller's flags that the user has not set.
func (o *observer) setFlags(published map[string]string) {
	o.flagSet.VisitAll(func(f *pflag.Flag) {
		value, ok := published[f.Name]
		if !ok || f.Changed {
			return
		}
		if err := setFlag(f, value); err != nil {
			o.warn("the controller's --%s, which is %q, is not understood here: %v", f.Name, value, err)
		}
	})
}

// flagValue returns the value of a flag as setFlag takes it.
func flagValue(f *pflag.Flag) string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), separator(f))
	}
	return f.Value.String()
}

func setFlag(f *pflag.Flag, value string) error {
	if single, ok := f.Value.(*onceValue); ok {
		return single.Value.Set(value)
	}
	list, ok := f.Value.(pflag.SliceValue)
	if !ok {
		return f.Value.Set(value)
	}
	if value == "" {
		return list.Replace(nil)
	}
	return list.Replace(strings.Split(value, separator(f)))
}

// separator is what separates the elements of a list in the ledger. Those that the command line separates by commas have none;
// a selector may have some.
func separator(f *pflag.Flag) string {
	if f.Value.Type() == "stringSlice" {
		return ","
	}
	return "\n"
}

// agentNamespace returns the namespace of the agents' Pods.
func (o *observer) agentNamespace() string {
	return cmp.Or(o.flags.options.AgentNamespace, o.settings.Namespace)
}

func (o *observer) setBlockers(pods []corev1.Pod) {
	var all []*corev1.Pod
	for i := range pods {
		all = append(all, &pods[i])
	}
	o.view.Blockers = drain.Names(drain.Blockers(all))
}

// observeDrains finds out what the drains of the selected Nodes wait for.
func (o *observer) observeDrains(ctx context.Context, selected func(*corev1.Node) bool) {
	for _, node := range o.view.Nodes {
		if selected(node) && protocol.PhaseOf(node) == protocol.Draining {
			o.observeDrain(ctx, node.Name)
		}
	}
}

func (o *observer) observeDrain(ctx context.Context, node string) {
	remaining, err := status.Remaining(ctx, o.client, node, o.flags.options.Rules)
	switch {
	case err == nil:
		o.view.Remaining[node] = remaining
	case ctx.Err() == nil:
		delete(o.view.Remaining, node)
		o.warn("cannot tell which Pods are left: %v", err)
	}
}

// statuses returns the status of the selected Nodes.
func (o *observer) statuses(selected func(*corev1.Node) bool) []status.NodeStatus {
	o.view.Now = o.now()
	names := map[string]bool{}
	for _, node := range o.view.Nodes {
		names[node.Name] = selected(node)
	}
	return slices.DeleteFunc(o.view.Status(), func(s status.NodeStatus) bool { return !names[s.Name] })
}

// pausedLine says that reboots are paused; "" if they are not.
func (o *observer) pausedLine() string {
	if o.settings == nil || len(o.settings.Pauses) == 0 {
		return ""
	}
	return fmt.Sprintf("ConfigMap %s/%s: %s.", o.settings.Namespace, o.settings.Name, protocol.Describe(o.settings.Pauses))
}

// published are the flags of the controller that say when a Node is rebooted. The controller writes them into its ledger.
func (f *controllerFlags) published() *pflag.FlagSet {
	cmd := &cobra.Command{}
	f.addPolicyFlags(cmd)
	o, flags := &f.options, cmd.Flags()
	flags.StringVar(&o.OwnNode, "own-node", "", "`name` of the Node that the controller runs on, which goes last")
	flags.StringVar(&f.agentPods, "agent-pods", "", "label `selector` of the agents' Pods")
	flags.StringVar(&o.AgentNamespace, "agent-namespace", "", "`namespace` of the agents' Pods")
	flags.DurationVar(&o.DrainTimeout, "drain-timeout", 0, "how long a drain may take before it is given up")
	flags.DurationVar(&o.AgentTimeout, "agent-timeout", 0, "how long the agent may take to act on a drained Node before the attempt is given up")
	flags.DurationVar(&o.RebootTimeout, "reboot-timeout", 0, "how long a reboot may take before a Warning")
	flags.BoolVar(&o.DeleteUnmanagedPods, "delete-unmanaged-pods", false, "also evict Pods that no controller owns")
	return flags
}

// publishedValues returns the values of those flags, as a command has them.
func publishedValues(flags *pflag.FlagSet) map[string]string {
	values := map[string]string{}
	(&controllerFlags{}).published().VisitAll(func(f *pflag.Flag) {
		if f = flags.Lookup(f.Name); f != nil {
			values[f.Name] = flagValue(f)
		}
	})
	return values
}

// parsePolicy completes what decides whether a Node is admitted.
func (f *controllerFlags) parsePolicy() (err error) {
	if f.options.Policy, err = f.policy(); err != nil {
		return err
	}
	f.options.BlockingPods, f.options.AgentPods = nil, nil
	for _, text := range f.blockingPods {
		selector, err := labels.Parse(text)
		if err != nil {
			return fmt.Errorf("--blocking-pods: %w", err)
		}
		if !selector.Empty() {
			f.options.BlockingPods = append(f.options.BlockingPods, selector)
		}
	}
	if f.agentPods != "" {
		selector, err := labels.Parse(f.agentPods)
		if err != nil {
			return fmt.Errorf("--agent-pods: %w", err)
		}
		if selector.Empty() {
			return errors.New("--agent-pods is blank, which would take every Pod for an agent; leave it out if you want no such check")
		}
		f.options.AgentPods = selector
	}
	return nil
}
