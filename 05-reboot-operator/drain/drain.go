// Package drain empties Nodes: it evicts Pods, a step at a time, and says what a drain is waiting for.
package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/drain"
)

const (
	evictionRetry   = 5 * time.Second // between two evictions of the same Pod
	terminationPoll = time.Second     // between two checks of Pods that are terminating
	// skipTerminating is how long a drain waits for a Pod after its time to terminate. While a machine is off, no kubelet
	// reports that its Pods have terminated.
	skipTerminating = time.Minute
)

// Rules say which Pods a drain evicts, and which keep it from doing so.
type Rules struct {
	// OwnPod is the Pod that the controller runs in, as namespace/name, which it does not evict; "" if unknown.
	OwnPod string
	// BlockingPods select Pods, in all namespaces, whose Nodes are not rebooted while they run. A Pod that one of them selects
	// blocks.
	BlockingPods []labels.Selector
	// DeleteUnmanagedPods also evicts Pods that no controller owns and would create again. Without it, such a Pod keeps its
	// Node from being drained.
	DeleteUnmanagedPods bool
}

// Drainer evicts the Pods of Nodes; which ones, the code of "kubectl drain" says. kubectl blocks in a loop until a Node is
// empty, and starts over if it is restarted. Drainer does one step of that loop and returns; the controller repeats it.
type Drainer struct {
	client kubernetes.Interface
	rules  Rules

	mu      sync.Mutex
	evicted map[types.UID]attempt // the last attempt for each Pod, for evictionRetry
}

// attempt is an attempt to evict a Pod.
type attempt struct {
	at     time.Time
	reason string // why the Pod is still there, in a sentence
}

// Wait is something that a drain waits for.
type Wait struct {
	Pod *corev1.Pod // nil if it is about several Pods
	// Action is what cannot be done, as the action of an Event.
	Action string
	// Refused says that it may stay like this until somebody does something. Otherwise the Pod is terminating.
	Refused bool
	Why     string // a sentence
}

// Text returns all that a drain waits for, what may stay like this first.
func Text(waits []Wait) string {
	var texts []string
	for _, wait := range waits {
		texts = append(texts, wait.Why)
	}
	return strings.Join(texts, "; ")
}

// New returns a Drainer that makes no request before Step is called.
func New(client kubernetes.Interface, rules Rules) *Drainer {
	return &Drainer{client: client, rules: rules, evicted: map[types.UID]attempt{}}
}

// Helper returns kubectl's settings for a drain, for the choice of the Pods.
func Helper(ctx context.Context, client kubernetes.Interface, rules Rules) *drain.Helper {
	return &drain.Helper{
		Ctx: ctx, Client: client, Force: rules.DeleteUnmanagedPods,
		IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		SkipWaitForDeleteTimeoutSeconds: int(skipTerminating.Seconds()),
		Out:                             io.Discard, ErrOut: io.Discard,
	}
}

// Step evicts the Pods that are still on a Node. It returns what the drain is waiting for, and when to call it again; nothing
// if there is nothing left to wait for. An error is worth a retry. In a dry run, nothing is evicted.
func (d *Drainer) Step(ctx context.Context, node string, dryRun bool) (waits []Wait, again time.Duration, err error) {
	switch blocker, err := BlockerOn(ctx, d.client, node, d.rules); {
	case err != nil:
		return nil, 0, err
	case blocker != nil:
		return []Wait{{blocker, "Drain", true, "Pod " + blocker.Namespace + "/" + blocker.Name + " blocks the reboot"}}, evictionRetry, nil
	}
	helper := Helper(ctx, d.client, d.rules)
	helper.AdditionalFilters = append(helper.AdditionalFilters, func(pod corev1.Pod) drain.PodDeleteStatus {
		// If no other Node can take our own Pod, nobody would be left to end the drain. It is stopped with the machine.
		if pod.Namespace+"/"+pod.Name == d.rules.OwnPod {
			return drain.MakePodDeleteStatusSkip()
		}
		return drain.MakePodDeleteStatusOkay()
	})
	list, errs := helper.GetPodsForDeletion(node)
	if list == nil {
		return nil, 0, fmt.Errorf("list the Pods of Node %s: %w", node, errors.Join(errs...))
	}
	if len(errs) > 0 { // Pods that must not be evicted
		return []Wait{{nil, "Drain", true, Undrainable(errs)}}, evictionRetry, nil
	}
	errs = nil
	again = terminationPoll
	for _, pod := range list.Pods() {
		reason, refused, err := d.evict(ctx, pod, dryRun)
		switch {
		case err != nil: // the other Pods are still tried
			errs = append(errs, err)
		case refused:
			again = evictionRetry
			waits = append(waits, Wait{&pod, action(reason), true, reason})
		case reason != "":
			waits = append(waits, Wait{&pod, "Evict", false, reason})
		}
	}
	if len(errs) > 0 {
		return nil, 0, errors.Join(errs...)
	}
	slices.SortFunc(waits, func(a, b Wait) int {
		if a.Refused != b.Refused {
			return map[bool]int{true: -1, false: 1}[a.Refused]
		}
		return strings.Compare(a.Why, b.Why)
	})
	return waits, again, nil
}

// Undrainable says why a drain does not evict some Pods, from what kubectl says. kubectl's advice is its own flag.
func Undrainable(errs []error) string {
	var texts []string
	for _, err := range errs {
		text := err.Error()
		if pods, ok := strings.CutPrefix(text, unmanaged); ok {
			text = fmt.Sprintf("no controller owns Pods that would be evicted, so nobody would create them again: %s; delete them, or run the controller with --delete-unmanaged-pods", pods)
		} else if found := orphaned.FindStringSubmatch(text); found != nil {
			text = fmt.Sprintf("the DaemonSet %q does not exist, so nobody would create its Pods again: %s; delete them, or run the controller with --delete-unmanaged-pods", found[1], found[2])
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// unmanaged is how kubectl begins to say that Pods have no controller.
const unmanaged = "cannot delete Pods that declare no controller (use --force to override): "

// orphaned is how it says that the DaemonSet of Pods does not exist: the name, and the Pods.
var orphaned = regexp.MustCompile(`^cannot delete daemonsets\.apps "(.*)" not found: (.*)$`)

// twoBudgets is why a Pod is not evicted whatever its budgets allow.
const twoBudgets = "more than one PodDisruptionBudget selects it"

// action tells the two kinds of refusals apart, so that the Event of the second one is not counted as the first one.
func action(reason string) string {
	if strings.Contains(reason, twoBudgets) {
		return "EvictUnderTwoBudgets"
	}
	return "Evict"
}

// evict evicts a Pod, unless that was tried a moment ago. The reason says why the Pod is still there; "" if it is gone.
func (d *Drainer) evict(ctx context.Context, pod corev1.Pod, dryRun bool) (reason string, refused bool, err error) {
	name := pod.Namespace + "/" + pod.Name
	if pod.DeletionTimestamp != nil {
		return "Pod " + name + " is terminating", false, nil
	}
	if reason, tried := d.triedJustNow(pod.UID); tried {
		return reason, true, nil
	}
	// kubectl evicts whatever has the Pod's name. Since the list, a StatefulSet may have created it again on another Node.
	options := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	err = d.client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: options,
	})
	switch {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case apierrors.IsConflict(err):
		return "Pod " + name + " has changed", false, nil // or has been replaced: the next list tells
	case apierrors.IsTooManyRequests(err):
		reason, refused, err = fmt.Sprintf("Pod %s cannot be evicted: %s", name, refusal(err)), true, nil
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "more than one PodDisruptionBudget"): // it stays so
		reason, refused, err = fmt.Sprintf("Pod %s cannot be evicted: %s; change one of their selectors", name, twoBudgets), true, nil
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		reason, err = "Pod "+name+" is in a namespace that is being deleted", nil
	case err != nil:
		return "", false, fmt.Errorf("evict Pod %s: %w", name, err)
	case dryRun:
		return "Pod " + name + " has not been evicted", false, nil
	default:
		reason = "Pod " + name + " is terminating"
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.evicted[pod.UID] = attempt{time.Now(), reason}
	return reason, refused, nil
}

// EvictOnce keeps a client from sleeping when an eviction is refused: client-go sends a request again, and again, if the
// response says when, which it does while the status of a PodDisruptionBudget lags behind. It is for [rest.Config.Wrap].
func EvictOnce(next http.RoundTripper) http.RoundTripper { return evictOnce{next} }

type evictOnce struct{ http.RoundTripper }

func (o evictOnce) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.RoundTripper.RoundTrip(request)
	if err == nil && strings.HasSuffix(request.URL.Path, "/eviction") {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// refusal returns why an eviction was refused, with the PodDisruptionBudget's name.
func refusal(err error) string {
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return cause.Message
	}
	return err.Error()
}

// triedJustNow returns how the last attempt to evict a Pod went, if it is too early for another one.
func (d *Drainer) triedJustNow(pod types.UID) (reason string, tried bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.evicted, func(_ types.UID, last attempt) bool { return time.Since(last.at) >= evictionRetry })
	last, tried := d.evicted[pod]
	return last.reason, tried
}
