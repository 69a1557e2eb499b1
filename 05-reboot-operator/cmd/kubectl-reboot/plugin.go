package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/reboot/protocol"
)

// plugin is what the administrator's commands share.
type plugin struct {
	config  *genericclioptions.ConfigFlags
	connect func(*genericclioptions.ConfigFlags) (kubernetes.Interface, error)
	now     func() time.Time
	ledger  string // name of the ConfigMap
}

// pluginCommands returns the commands for an administrator.
func pluginCommands(connect func(*genericclioptions.ConfigFlags) (kubernetes.Interface, error), now func() time.Time) []*cobra.Command {
	commands := []func(*plugin) *cobra.Command{statusCommand, whyCommand, requestCommand, cancelCommand, pauseCommand, resumeCommand}
	var all []*cobra.Command
	for _, command := range commands {
		p := &plugin{config: genericclioptions.NewConfigFlags(true), connect: connect, now: now}
		cmd := command(p)
		p.config.AddFlags(cmd.Flags())
		once(cmd.Flags())
		all = append(all, cmd)
	}
	return all
}

// connect returns a client for the cluster that kubectl would use.
func connect(flags *genericclioptions.ConfigFlags) (kubernetes.Interface, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the API server's priority and fairness protects it
	return kubernetes.NewForConfig(config)
}

func (p *plugin) addLedgerFlag(flags *pflag.FlagSet) {
	flags.StringVar(&p.ledger, "ledger", defaultLedger, "`name` of the controller's ConfigMap; without --namespace, it is looked for in the current namespace and then in all others")
}

// selection says which Nodes a command is about: those that are named, those with certain labels, or all.
type selection struct {
	names    []string
	selector string
	all      bool
}

// addFlags adds the flags. A command that changes Nodes has --all, and without it does not take all of them.
func (s *selection) addFlags(flags *pflag.FlagSet, changes bool) {
	flags.StringVarP(&s.selector, "selector", "l", "", "label `selector` of the Nodes, such as pool=web,zone!=a")
	if changes {
		flags.BoolVar(&s.all, "all", false, "select all Nodes")
	}
}

// parse checks the arguments of a command that changes Nodes.
func (s *selection) parse(cmd *cobra.Command, args []string) error {
	if err := s.parseNames(cmd, args); err != nil {
		return err
	}
	switch {
	case s.all && (len(args) > 0 || cmd.Flags().Changed("selector")):
		return errors.New("--all excludes names of Nodes and --selector")
	case !s.all && cmd.Flags().Changed("selector") && strings.TrimSpace(s.selector) == "":
		return errors.New("--selector is empty, which would select all Nodes; use --all if you mean that")
	case !s.all && len(args) == 0 && s.selector == "":
		return fmt.Errorf("no Node is selected; name one, as in \"%s NODE\", or use --selector or --all", cmd.CommandPath())
	}
	return nil
}

// parseNames checks the arguments of a command that takes all Nodes if none is selected. A name may have the form in which
// "kubectl get -o name" prints it.
func (s *selection) parseNames(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.Flags().Changed("selector") {
		return errors.New("names of Nodes and --selector exclude each other")
	}
	for _, arg := range args {
		name := strings.TrimPrefix(strings.TrimPrefix(arg, "nodes/"), "node/")
		if name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("%q is not the name of a Node", arg)
		}
		if !slices.Contains(s.names, name) {
			s.names = append(s.names, name)
		}
	}
	if _, err := labels.Parse(s.selector); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	return nil
}

// matches reports whether a Node is selected. No names and no selector select all.
func (s *selection) matches(node *corev1.Node) bool {
	selector, err := labels.Parse(s.selector)
	return err == nil && selector.Matches(labels.Set(node.Labels)) && (len(s.names) == 0 || slices.Contains(s.names, node.Name))
}

// resolve returns the names of the selected Nodes, and asks the API server if they are selected by label.
func (s *selection) resolve(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	if len(s.names) > 0 {
		return s.names, nil
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: s.selector})
	if err != nil {
		return nil, fmt.Errorf("list the Nodes: %w", err)
	}
	var names []string
	for _, node := range list.Items {
		names = append(names, node.Name)
	}
	if len(names) == 0 && s.selector != "" {
		return nil, fmt.Errorf("no Node matches --selector %s", s.selector)
	}
	if len(names) == 0 {
		return nil, errors.New("the cluster has no Nodes")
	}
	slices.Sort(names)
	return names, nil
}

// findLedger returns the ledger; nil if there is none. Without --namespace it is the one in the current namespace, or else the
// only one in the cluster. One that no controller has used does not count if there is another: somebody paused reboots in the
// wrong namespace, or before the controller was installed.
func (p *plugin) findLedger(ctx context.Context, client kubernetes.Interface) (*protocol.Settings, error) {
	namespace, explicit, err := p.namespace()
	if err != nil {
		return nil, err
	}
	var current *protocol.Settings
	configMap, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, p.ledger, metav1.GetOptions{})
	switch {
	case err == nil:
		if current = protocol.SettingsOf(configMap); explicit || current.Used() {
			return current, nil
		}
	case explicit && apierrors.IsNotFound(err):
		return nil, nil
	case explicit || !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	list, err := client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, p.ledger).String(),
	})
	if apierrors.IsForbidden(err) && current != nil {
		return current, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the ledger %s in all namespaces (--namespace names one): %w", p.ledger, err)
	}
	var found []*protocol.Settings
	for i := range list.Items {
		if list.Items[i].Name == p.ledger {
			found = append(found, protocol.SettingsOf(&list.Items[i]))
		}
	}
	if slices.ContainsFunc(found, (*protocol.Settings).Used) {
		found = slices.DeleteFunc(found, func(s *protocol.Settings) bool { return !s.Used() })
	} else if current != nil {
		return current, nil
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	}
	var namespaces []string
	for _, settings := range found {
		namespaces = append(namespaces, settings.Namespace)
	}
	slices.Sort(namespaces)
	return nil, fmt.Errorf("there is a ledger %s in each of the namespaces %s; choose one with --namespace", p.ledger, strings.Join(namespaces, ", "))
}

// namespace returns the namespace in which to look for the ledger, and whether the user named it.
func (p *plugin) namespace() (namespace string, explicit bool, err error) {
	if named := *p.config.Namespace; named != "" {
		return named, true, nil
	}
	namespace, _, err = p.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", false, fmt.Errorf("find out the current namespace: %w", err)
	}
	return namespace, false, nil
}

// notFound makes the error about a Node that does not exist, as kubectl words it.
func notFound(err error, node string) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("node %q not found", node)
	}
	return err
}
