package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/controllers/secretsync"
)

// connector returns clients for a cluster.
type connector func(clientcmd.ClientConfig) (kubernetes.Interface, metadata.Interface, error)

func connect(loader clientcmd.ClientConfig) (kubernetes.Interface, metadata.Interface, error) {
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, nil, err
	}
	return clients(config, &fence{})
}

// plugin is what the commands for users share.
type plugin struct {
	scopeFlags
	loader  clientcmd.ClientConfig // of the kubeconfig that kubectl would use
	connect connector
	output  string
}

// addClusterFlags adds the flags with which kubectl chooses a cluster. Those of package genericclioptions are the same and a
// few more, but its printers use text/template, with which the linker keeps every method of every client: in the controller,
// which is the same program, that is 30 MB more of memory.
func (p *plugin) addClusterFlags(flags *pflag.FlagSet) {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	flags.StringVar(&rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "`path` of a kubeconfig")
	clientcmd.BindOverrideFlags(overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	p.loader = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// pluginCommands returns the commands for users.
func pluginCommands(connect connector) []*cobra.Command {
	var all []*cobra.Command
	for _, command := range []func(*plugin) *cobra.Command{statusCommand, planCommand} {
		p := &plugin{connect: connect}
		cmd := command(p)
		cmd.Args = cobra.NoArgs
		p.addClusterFlags(cmd.Flags())
		p.addFlags(cmd.Flags(), "", "default: the current namespace")
		cmd.Flags().StringVarP(&p.output, "output", "o", "", "`format`: json; default: a table")
		all = append(all, cmd)
	}
	return all
}

func statusCommand(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show how many namespaces have an up-to-date copy of each source",
		Long: "Show for each shared Secret how many namespaces should have a copy, how many have one that is up to date, and how many cannot have one, and why." +
			"\n\nIt compares the cluster itself, and needs no controller.",
		Example: "  kubectl secretsync status\n  kubectl secretsync status --source-namespace shared -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, sources, err := p.plan(cmd)
			if err != nil {
				return err
			}
			statuses := secretsync.Summarize(plan, sources)
			if p.output == "json" {
				return printJSON(cmd.OutOrStdout(), statuses)
			}
			if len(statuses) == 0 {
				p.printNothingShared(cmd)
				return nil
			}
			rows := [][]string{{"SOURCE", "WANTED", "UP-TO-DATE", "REFUSED", "WHY"}}
			for _, status := range statuses {
				rows = append(rows, []string{status.Source, fmt.Sprint(status.Wanted), fmt.Sprint(status.Current), fmt.Sprint(len(status.Refused)), why(status.Refused)})
			}
			return printTable(cmd.OutOrStdout(), rows)
		},
	}
}

// printNothingShared explains an empty result.
func (p *plugin) printNothingShared(cmd *cobra.Command) {
	fmt.Fprintf(cmd.ErrOrStderr(), "No Secret of namespace %s has the label %s=true.\n", p.sourceNamespace, secretsync.SharedLabel)
}

// why names each reason once, with the first namespaces that it holds for.
func why(refused []secretsync.RefusedCopy) string {
	namespaces := map[secretsync.Reason][]string{}
	var reasons []secretsync.Reason
	for _, one := range refused {
		if namespaces[one.Reason] == nil {
			reasons = append(reasons, one.Reason)
		}
		namespaces[one.Reason] = append(namespaces[one.Reason], one.Namespace)
	}
	slices.Sort(reasons)
	var parts []string
	for _, reason := range reasons {
		names, more := namespaces[reason], ""
		if len(names) > 3 {
			names, more = names[:3], fmt.Sprintf(" and %d more", len(names)-3)
		}
		parts = append(parts, fmt.Sprintf("%s in %s%s", reason, strings.Join(names, ", "), more))
	}
	if len(parts) == 0 {
		return "<none>"
	}
	return strings.Join(parts, "; ")
}

// change is one line of a plan.
type change struct {
	Action    string `json:"action"` // create, update, recreate, delete or refuse
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Source    string `json:"source,omitempty"`
	Why       string `json:"why"`
}

func planCommand(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "plan",
		Short: "Show what the controller would change, and change nothing",
		Long:  "Show which copies the controller would create, update or delete if it ran now, and which it would refuse. It writes nothing.",
		Example: "  kubectl secretsync plan --source-namespace shared\n" +
			"  kubectl secretsync plan --namespace-selector team=web  # before the controller gets this selector",
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, sources, err := p.plan(cmd)
			if err != nil {
				return err
			}
			changes := changesOf(plan)
			if p.output == "json" {
				return printJSON(cmd.OutOrStdout(), changes)
			}
			switch {
			case len(changes) == 0 && len(sources) == 0:
				p.printNothingShared(cmd)
				return nil
			case len(changes) == 0:
				fmt.Fprintln(cmd.ErrOrStderr(), "All copies are up to date.")
				return nil
			}
			rows := [][]string{{"ACTION", "NAMESPACE", "NAME", "SOURCE", "WHY"}}
			for _, c := range changes {
				source := c.Source
				if source == "" {
					source = "<none>"
				}
				rows = append(rows, []string{c.Action, c.Namespace, c.Name, source, c.Why})
			}
			return printTable(cmd.OutOrStdout(), rows)
		},
	}
}

// changesOf returns what is to be done, and what is refused.
func changesOf(plan []secretsync.Planned) []change {
	changes := []change{} // "[]" in JSON, if there are none
	for _, planned := range plan {
		if planned.Action != secretsync.None {
			c := change{Action: string(planned.Action), Namespace: planned.Key.Namespace, Name: planned.Key.Name, Why: planned.Why}
			if planned.Source != nil {
				c.Source = planned.Source.Name
			}
			changes = append(changes, c)
		}
		for _, refusal := range planned.Refusals {
			changes = append(changes, change{"refuse", planned.Key.Namespace, planned.Key.Name, refusal.Source.Name, refusal.Message})
		}
	}
	return changes
}

// plan reads the cluster. A source namespace that does not exist is an error, because its name may be mistyped; but if it has
// been deleted, and left copies, the controller deletes them, and the plan shows that.
func (p *plugin) plan(cmd *cobra.Command) ([]secretsync.Planned, []*secretsync.Source, error) {
	if p.output != "" && p.output != "json" {
		return nil, nil, fmt.Errorf("--output is %q; it must be json", p.output)
	}
	scope, err := p.scope()
	if err != nil {
		return nil, nil, err
	}
	if p.sourceNamespace == "" {
		namespace, _, err := p.loader.Namespace()
		if err != nil {
			return nil, nil, fmt.Errorf("find out the current namespace: %w", err)
		}
		p.sourceNamespace, scope.SourceNamespace = namespace, namespace
	}
	client, metadataClient, err := p.connect(p.loader)
	if err != nil {
		return nil, nil, err
	}
	exists, err := secretsync.SourceNamespaceExists(cmd.Context(), client, scope)
	if err != nil {
		return nil, nil, err
	}
	plan, sources, err := secretsync.Plan(cmd.Context(), client, metadataClient, scope)
	switch {
	case err != nil:
		return nil, nil, err
	case !exists && len(changesOf(plan)) == 0:
		return nil, nil, fmt.Errorf("the source namespace %q does not exist, and there are no copies to delete; name the namespace whose Secrets are shared with --source-namespace", scope.SourceNamespace)
	case !exists:
		fmt.Fprintf(cmd.ErrOrStderr(), "The source namespace %s does not exist, so the controller would delete its copies.\n", scope.SourceNamespace)
	}
	return plan, sources, nil
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func printTable(w io.Writer, rows [][]string) error {
	columns := tabwriter.NewWriter(w, 6, 4, 3, ' ', 0) // as kubectl's
	for _, row := range rows {
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	return columns.Flush()
}
