package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"

	"example.com/controllers/reboot/protocol"
	"example.com/controllers/reboot/status"
)

func whyCommand(p *plugin) *cobra.Command {
	flags := &controllerFlags{}
	flagSet := flags.published()
	cmd := &cobra.Command{
		Use:   "why NODE",
		Short: "Explain why a Node is not rebooting now",
		Long: "Explain why a Node is not rebooting now, and what must happen before it does." +
			"\n\nThe controller publishes its flags in its ledger. Flags given here take precedence, to find out what other limits would change.",
		Example: "  kubectl reboot why n1\n  kubectl reboot why n1 --max-unavailable 20%",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("\"%s\" is about one Node: %s NODE", cmd.CommandPath(), cmd.CommandPath())
			}
			nodes := &selection{}
			if err := nodes.parseNames(cmd, args); err != nil {
				return err
			}
			client, err := p.connect(p.config)
			if err != nil {
				return err
			}
			o := newObserver(p, client, flags, flagSet, cmd.ErrOrStderr())
			if err := flags.parsePolicy(); err != nil {
				return err
			}
			if err := o.observe(cmd.Context()); err != nil {
				return err
			}
			o.observeDrains(cmd.Context(), nodes.matches)
			return o.explain(cmd, nodes.names[0])
		},
	}
	cmd.Flags().AddFlagSet(flagSet)
	p.addLedgerFlag(cmd.Flags())
	return cmd
}

// explain prints why a Node is not rebooting, a sentence on each line.
func (o *observer) explain(cmd *cobra.Command, name string) error {
	o.view.Now = o.now()
	sentences, ok := o.view.Explain(name)
	if !ok {
		return fmt.Errorf("node %q not found", name)
	}
	node := o.view.Nodes[slices.IndexFunc(o.view.Nodes, func(node *corev1.Node) bool { return node.Name == name })]
	if event := o.lastEvent(cmd.Context(), node); event != "" {
		sentences = append(sentences, event)
	}
	phase := protocol.PhaseOf(node)
	if phase != protocol.Idle && phase != protocol.InProgress { // the agent completes a reboot alone
		sentences = append(sentences, o.controllerProblems(cmd.Context(), phase)...)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(sentences, "\n"))
	return err
}

// admissionRefused is the reason of the Event that says that the API server did not let the controller cordon a Node.
const admissionRefused = "AdmissionRefused"

// eventReasons are the reasons of the Events that say why a Node in a phase is not rebooted.
var eventReasons = map[protocol.Phase][]string{
	protocol.Needed:     {"DrainTimeout", "AgentTimeout", admissionRefused},
	protocol.Draining:   {"DrainWaiting", "EvictionFailed"},
	protocol.InProgress: {"RebootFailed"},
}

// lastEvent returns what the last Event said that is about the current attempt, or about the one that failed; "" if there is
// none.
func (o *observer) lastEvent(ctx context.Context, node *corev1.Node) string {
	phase := protocol.PhaseOf(node)
	reasons := eventReasons[phase]
	if _, known := o.view.Remaining[node.Name]; known || len(reasons) == 0 {
		return ""
	}
	if _, failed := node.Annotations[protocol.FailuresAnnotation]; phase == protocol.Needed && !failed {
		reasons = []string{admissionRefused}
	}
	ended, _ := time.Parse(time.RFC3339, node.Annotations[protocol.LastAttemptAnnotation]) // the zero time if there was no attempt
	// Events about objects without a namespace are in this one.
	list, err := o.client.EventsV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("regarding.name", node.Name).String(),
	})
	if err != nil {
		o.warn("cannot tell what the last Event says: %v", err)
		return ""
	}
	var last *eventsv1.Event
	for i, event := range list.Items {
		if event.Regarding.Kind == "Node" && event.Regarding.Name == node.Name && slices.Contains(reasons, event.Reason) &&
			(event.Reason != admissionRefused || seen(&event).After(ended)) &&
			(last == nil || seen(&event).After(seen(last))) {
			last = &list.Items[i]
		}
	}
	if last == nil {
		return ""
	}
	return fmt.Sprintf("%s, %s ago: %s", last.Reason, duration.HumanDuration(max(0, o.view.Now.Sub(seen(last)))), last.Note)
}

// seen returns when an Event last happened.
func seen(event *eventsv1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	return event.EventTime.Time
}

// controllerProblems says what is known to be wrong with the controller, and what is not known about it.
func (o *observer) controllerProblems(ctx context.Context, phase protocol.Phase) (problems []string) {
	if o.settings == nil && len(o.warned) == 0 {
		problems = append(problems, fmt.Sprintf("There is no ledger %s: no controller has run, or it has another --ledger or --namespace.", o.ledger))
	}
	if o.settings == nil {
		return problems
	}
	lease, err := o.client.CoordinationV1().Leases(o.settings.Namespace).Get(ctx, leaseName(o.settings.Name), metav1.GetOptions{})
	switch {
	case err == nil:
		if problem := status.ControllerProblem(lease, o.view.Now); problem != "" {
			problems = append(problems, problem)
		}
	case apierrors.IsNotFound(err): // --lease-duration 0
	default:
		o.warn("cannot tell whether a controller is running: %v", err)
	}
	if phase == protocol.Needed && !o.knowsFlags() && !o.overridden() {
		problems = append(problems, "The controller has not published its limits in the ledger; to take them into account, repeat its flags, such as --max-unavailable.")
	}
	return problems
}
