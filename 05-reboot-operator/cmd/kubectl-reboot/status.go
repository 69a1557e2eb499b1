package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"example.com/controllers/reboot/protocol"
	"example.com/controllers/reboot/status"
)

// statusOptions are the flags of the status command.
type statusOptions struct {
	*plugin
	nodes  selection
	output string
	watch  bool
}

func statusCommand(p *plugin) *cobra.Command {
	o := &statusOptions{plugin: p}
	cmd := &cobra.Command{
		Use:   "status [NODE... | --selector SELECTOR]",
		Short: "Show how far the reboots of Nodes have got",
		Long: "Show how far the reboots of Nodes have got: first the Nodes that are unavailable for a reboot, then those that wait, the next one first, and then all others." +
			"\n\nSINCE says when a Node entered its phase and, if it is Idle, when its last attempt ended. \"kubectl reboot why\" says more about one Node.",
		Example: "  kubectl reboot status --watch\n  kubectl reboot status --selector pool=web --output json",
		RunE:    o.run,
	}
	o.nodes.addFlags(cmd.Flags(), false)
	p.addLedgerFlag(cmd.Flags())
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "`format`: wide, json, yaml, jsonpath=..., or go-template=...; default: a table")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "then print a row whenever a Node's changes, until interrupted")
	return cmd
}

func (s *statusOptions) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	if err := s.nodes.parseNames(cmd, args); err != nil {
		return err
	}
	out, err := s.printer(cmd.OutOrStdout())
	if err != nil {
		return err
	}
	client, err := s.connect(s.config)
	if err != nil {
		return err
	}
	flags := &controllerFlags{}
	o := newObserver(s.plugin, client, flags, flags.published(), cmd.ErrOrStderr())
	if err := o.observe(ctx); err != nil {
		return err
	}
	o.observeDrains(ctx, s.nodes.matches)
	if line := o.pausedLine(); line != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), line)
	}
	statuses := o.statuses(s.nodes.matches)
	if err := out.print(statuses, o, s.watch); err != nil {
		return err
	}
	if missing := s.missing(statuses); len(missing) > 0 {
		return errors.Join(missing...)
	}
	if s.watch {
		return s.follow(ctx, o, out, statuses)
	}
	switch {
	case len(statuses) > 0:
	case s.nodes.selector != "":
		return fmt.Errorf("no Node matches --selector %s", s.nodes.selector)
	default:
		fmt.Fprintln(cmd.ErrOrStderr(), "The cluster has no Nodes.")
	}
	return nil
}

// missing returns an error for each Node that is named and does not exist.
func (s *statusOptions) missing(statuses []status.NodeStatus) (errs []error) {
	found := map[string]bool{}
	for _, status := range statuses {
		found[status.Name] = true
	}
	for _, name := range s.nodes.names {
		if !found[name] {
			errs = append(errs, fmt.Errorf("node %q not found", name))
		}
	}
	return errs
}

// printer prints statuses in the chosen format.
type printer struct {
	resources printers.ResourcePrinter
	table     bool
	wide      bool
	w         io.Writer
	flush     func() error
}

// printer returns the printer for --output. The errors list the formats.
func (s *statusOptions) printer(w io.Writer) (*printer, error) {
	if s.output == "" || s.output == "wide" {
		columns := printers.GetNewTabWriter(w)
		wide := s.output == "wide"
		return &printer{resources: printers.NewTablePrinter(printers.PrintOptions{Wide: wide}), table: true, wide: wide, w: columns, flush: columns.Flush}, nil
	}
	p, err := genericclioptions.NewJSONYamlPrintFlags().ToPrinter(s.output)
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		p, err = genericclioptions.NewKubeTemplatePrintFlags().ToPrinter(s.output)
	}
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("--output is %q; it must be jsonpath=..., go-template=..., wide, json or yaml", s.output)
	}
	if err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	return &printer{resources: p, w: w, flush: func() error { return nil }}, nil
}

// print prints statuses: in a table, which has no header if it has no rows; as a list; or, one by one, as documents of their own.
func (p *printer) print(statuses []status.NodeStatus, o *observer, oneByOne bool) error {
	if p.table {
		return errors.Join(p.resources.PrintObj(p.tableOf(statuses, o.view.Now), p.w), p.flush())
	}
	if !oneByOne {
		list := struct {
			Paused *bool               `json:"paused,omitempty"` // nil if that is not known
			Items  []status.NodeStatus `json:"items"`
		}{Items: statuses}
		if o.settings != nil {
			list.Paused = new(len(o.settings.Pauses) > 0)
		}
		return p.printAs("NodeRebootStatusList", &list)
	}
	for i := range statuses {
		if err := p.printAs("NodeRebootStatus", &statuses[i]); err != nil {
			return err
		}
	}
	return nil
}

// printAs prints a value in the form of a Kubernetes object.
func (p *printer) printAs(kind string, value any) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion(strings.TrimSuffix(protocol.Prefix, "/") + "/v1")
	object.SetKind(kind)
	return p.resources.PrintObj(object, p.w)
}

// none stands for an empty cell, as in kubectl's tables.
const none = "<none>"

// tableOf returns a table with a row for each status.
func (p *printer) tableOf(statuses []status.NodeStatus, now time.Time) *metav1.Table {
	const wide = 1 // priority of columns that only -o wide shows
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Node"}, {Name: "Phase"}, {Name: "Since"}, {Name: "Boot-Before"}, {Name: "Boot-ID"}, {Name: "Waiting For"},
		{Name: "Ready", Priority: wide}, {Name: "Cordoned", Priority: wide}, {Name: "Failures", Priority: wide}, {Name: "Reason", Priority: wide},
	}}
	for _, s := range statuses {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{
			s.Name, string(s.Phase), ago(s.Since, s.Phase, now), orNone(status.ShortBootID(s.BootIDBefore)), orNone(status.ShortBootID(s.BootID)), orNone(s.WaitingFor),
			fmt.Sprint(s.Ready), fmt.Sprint(s.Unschedulable), fmt.Sprint(s.Failures), orNone(s.Why),
		}})
	}
	return table
}

// rowKey returns what a status looks like, without how long ago things were.
func (p *printer) rowKey(s status.NodeStatus) string {
	s.QueuePosition = 0 // or each admission would print all the Nodes that wait
	if p.table && !p.wide {
		s.Ready, s.Unschedulable, s.Failures, s.Why, s.LastAttempt, s.RetryAfter, s.Decision = false, false, 0, "", nil, nil, ""
	}
	since := ""
	if s.Since != nil {
		since = s.Since.String()
		s.Since = nil
	}
	return fmt.Sprintf("%+v %s %s %s", s, since, timeText(s.LastAttempt), timeText(s.RetryAfter))
}

func timeText(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return t.String()
}

func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}

// ago says how long a Node has been in a phase.
func ago(t *metav1.Time, phase protocol.Phase, now time.Time) string {
	switch {
	case t != nil:
		return duration.HumanDuration(max(0, now.Sub(t.Time))) + " ago" // the clocks may differ
	case phase == protocol.Idle || phase == deleted:
		return none
	}
	return "<unknown>"
}

// follow prints a row whenever a status changes, until ctx is cancelled.
func (s *statusOptions) follow(ctx context.Context, o *observer, out *printer, printed []status.NodeStatus) error {
	keys := map[string]string{}
	for _, status := range printed {
		keys[status.Name] = out.rowKey(status)
	}
	return o.watch(ctx, s.nodes.matches, func() error {
		var changed []status.NodeStatus
		current := o.statuses(s.nodes.matches)
		names := map[string]bool{}
		for _, status := range current {
			names[status.Name] = true
			if key := out.rowKey(status); keys[status.Name] != key {
				keys[status.Name] = key
				changed = append(changed, status)
			}
		}
		for name := range keys {
			if !names[name] {
				delete(keys, name)
				changed = append(changed, status.NodeStatus{Name: name, Phase: deleted})
			}
		}
		if len(changed) == 0 {
			return nil
		}
		return out.print(changed, o, true)
	})
}

// deleted is what stands for the phase of a Node that does not exist any more, or is no longer selected.
const deleted protocol.Phase = "Deleted"
