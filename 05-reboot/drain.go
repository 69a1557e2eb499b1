package reboot

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/drain"
)

const (
	evictionRetry   = 5 * time.Second // between two evictions of the same Pod
	terminationPoll = time.Second     // between two looks at Pods that terminate
)

// drainer evicts the Pods of Nodes, with the code of "kubectl drain". It does not wait: what kubectl does in a loop that
// blocks, and that a restart would forget, is here one step, which the controller repeats.
type drainer struct {
	client kubernetes.Interface
	// deleteUnmanaged also evicts Pods that nothing will create again.
	deleteUnmanaged bool
	// ownPod is the Pod that this process runs in, as namespace/name; "" if unknown. It is not evicted: if no other Node can
	// take it, nobody would be left to end the drain. It is stopped with the machine.
	ownPod string

	mu      sync.Mutex
	evicted map[types.UID]time.Time // when each Pod was last asked to go
}

func newDrainer(client kubernetes.Interface, deleteUnmanaged bool, ownPod string) *drainer {
	return &drainer{client: client, deleteUnmanaged: deleteUnmanaged, ownPod: ownPod, evicted: map[types.UID]time.Time{}}
}

// step evicts the Pods that are still on a Node. It returns what the drain is waiting for, in a sentence, and when to call
// it again; "" if there is nothing left to wait for. The error is one that repetition may cure.
func (d *drainer) step(ctx context.Context, node string) (waiting string, again time.Duration, err error) {
	helper := &drain.Helper{
		Ctx: ctx, Client: d.client, Force: d.deleteUnmanaged,
		GracePeriodSeconds:  -1, // each Pod's own
		IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		// Nobody reports the end of a Pod on a machine that is off.
		SkipWaitForDeleteTimeoutSeconds: 60,
		AdditionalFilters: []drain.PodFilter{func(pod corev1.Pod) drain.PodDeleteStatus {
			if pod.Namespace+"/"+pod.Name == d.ownPod {
				return drain.MakePodDeleteStatusSkip()
			}
			return drain.MakePodDeleteStatusOkay()
		}},
		Out: io.Discard, ErrOut: io.Discard,
	}
	list, errs := helper.GetPodsForDeletion(node)
	if list == nil {
		return "", 0, fmt.Errorf("list the Pods of Node %s: %w", node, utilerrors.NewAggregate(errs))
	}
	if len(errs) > 0 { // Pods that must not be evicted
		return utilerrors.NewAggregate(errs).Error(), evictionRetry, nil
	}
	again = terminationPoll
	var reasons []string
	for _, pod := range list.Pods() {
		reason, refused, err := d.evict(helper, pod)
		if err != nil {
			return "", 0, err
		}
		if refused {
			again = evictionRetry
		}
		if reason != "" {
			reasons = append(reasons, reason)
		}
	}
	slices.Sort(reasons)
	return strings.Join(reasons, "; "), again, nil
}

// evict evicts a Pod, unless that was tried a moment ago. The reason says what the Pod is waiting for; "" if it is gone.
func (d *drainer) evict(helper *drain.Helper, pod corev1.Pod) (reason string, refused bool, err error) {
	name := pod.Namespace + "/" + pod.Name
	if pod.DeletionTimestamp != nil {
		return "Pod " + name + " is terminating", false, nil
	}
	if !d.mayEvict(pod.UID) {
		return "Pod " + name + " has not been evicted yet", true, nil
	}
	err = helper.EvictPod(pod, policyv1.SchemeGroupVersion)
	switch {
	case apierrors.IsNotFound(err):
		return "", false, nil
	case apierrors.IsTooManyRequests(err):
		return fmt.Sprintf("Pod %s cannot be evicted: %s", name, refusal(err)), true, nil
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "Pod " + name + " is in a namespace that is being deleted", false, nil
	case err != nil:
		return "", false, fmt.Errorf("evict Pod %s: %w", name, err)
	}
	return "Pod " + name + " is terminating", false, nil
}

// refusal returns why an eviction was refused, with the PodDisruptionBudget's name.
func refusal(err error) string {
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return cause.Message
	}
	return err.Error()
}

// mayEvict reports whether it is long enough ago that the Pod was asked to go, and notes that it is now.
func (d *drainer) mayEvict(pod types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for uid, at := range d.evicted {
		if now.Sub(at) >= evictionRetry {
			delete(d.evicted, uid)
		}
	}
	if _, recent := d.evicted[pod]; recent {
		return false
	}
	d.evicted[pod] = now
	return true
}
