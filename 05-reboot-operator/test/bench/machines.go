package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"example.com/controllers/harness/machine"
	"example.com/controllers/reboot/agent"
)

const (
	// The node lifecycle controller sets a Node's Ready condition to Unknown 50 seconds after its last sign of life.
	renewInterval = 30 * time.Second
	leaseDuration = 60 // seconds
)

// simulated is a machine: its kubelet, and the agent that runs on it. renew, postAgain and isUp may be called while run
// runs; the agent calls Read and Reboot.
type simulated struct {
	name     string
	bootTime time.Duration
	kubelet  kubernetes.Interface // shared by all machines
	agent    kubernetes.Interface // of a ServiceAccount token that is bound to the Node

	posting sync.Mutex // held while the kubelet reports the Node's status

	mu     sync.Mutex
	bootID string
	off    chan struct{} // closed when the machine goes down; another one after each boot
	isOff  bool          // true if and only if off is closed
}

// Read implements [agent.BootIDSource].
func (s *simulated) Read(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bootID, nil
}

// Reboot implements [agent.Rebooter]. It returns before the agent is stopped, as systemd-logind does.
func (s *simulated) Reboot(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isOff {
		s.isOff = true
		close(s.off)
	}
	return nil
}

// boot gives the machine a new boot ID. The channel is closed when the machine goes down again.
func (s *simulated) boot() (off <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bootID, s.off, s.isOff = string(uuid.NewUUID()), make(chan struct{}), false
	return s.off
}

func (s *simulated) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.isOff
}

// register creates the Node of a machine that has booted, and its Lease.
func (s *simulated) register(ctx context.Context, images int) error {
	node := machine.Node(s.name, "v1.37.1")
	delete(node.Labels, machine.PowerLabel) // otherwise the control plane's program would simulate the kubelet
	node.Annotations = nil
	node.Status.NodeInfo.BootID = s.bootID
	node.Status.Conditions = conditions(true)
	for i := range images {
		repository := fmt.Sprintf("registry.example.com/a-team/an-application-%d", i)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", repository, i), repository + ":v1.2.3"},
			SizeBytes: 100_000_000,
		})
	}
	if err := s.renew(ctx); err != nil {
		return err
	}
	_, err := s.kubelet.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return err
}

// renew creates or renews the Node's Lease.
func (s *simulated) renew(ctx context.Context) error {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &s.name, LeaseDurationSeconds: new(int32(leaseDuration)), RenewTime: new(metav1.NowMicro()),
		},
	}
	patch, err := json.Marshal(lease)
	if err != nil {
		return err
	}
	leases := s.kubelet.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	_, err = leases.Patch(ctx, s.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	return err
}

func conditions(ready bool) []corev1.NodeCondition {
	c := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}
	if !ready {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "KubeletNotReady", "node is shutting down"
	}
	return []corev1.NodeCondition{c}
}

// postAgain reports that the machine is Ready, if it is up: the node lifecycle controller has set the condition to Unknown.
func (s *simulated) postAgain(ctx context.Context) error {
	s.posting.Lock()
	defer s.posting.Unlock()
	if !s.isUp() {
		return nil
	}
	return s.postLocked(ctx, true)
}

// post reports the machine's state, as its kubelet does when it shuts down and when it has started.
func (s *simulated) post(ctx context.Context, ready bool) error {
	s.posting.Lock()
	defer s.posting.Unlock()
	return s.postLocked(ctx, ready)
}

func (s *simulated) postLocked(ctx context.Context, ready bool) error {
	bootID, err := s.Read(ctx)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"conditions": conditions(ready), "nodeInfo": map[string]any{"bootID": bootID},
	}})
	if err != nil {
		return err
	}
	if _, err = s.kubelet.CoreV1().Nodes().Patch(ctx, s.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("report the status of Node %s: %w", s.name, err)
	}
	return nil
}

// run plays a registered machine until ctx is cancelled: an agent runs until it reboots the machine, and another one after
// that.
func (s *simulated) run(ctx context.Context) error {
	s.mu.Lock()
	var off <-chan struct{} = s.off
	s.mu.Unlock()
	for {
		down, err := s.runAgent(ctx, off)
		if err != nil || !down {
			return err
		}
		begin := time.Now()
		if err := s.post(ctx, false); err != nil {
			return ignoreCancelled(ctx, err)
		}
		select {
		case <-time.After(s.bootTime - time.Since(begin)):
		case <-ctx.Done():
			return nil
		}
		off = s.boot()
		if err := s.post(ctx, true); err != nil {
			return ignoreCancelled(ctx, err)
		}
	}
}

// runAgent runs an agent until the machine goes down, or ctx is cancelled.
func (s *simulated) runAgent(ctx context.Context, off <-chan struct{}) (down bool, err error) {
	agent, err := agent.New(ctx, s.agent, agent.Options{
		NodeName: s.name, BootID: s, Rebooter: s,
		RebootRetry: 2 * time.Minute, Backoff: time.Second, MaxBackoff: time.Minute, // the program's defaults
	})
	if err != nil {
		return false, err
	}
	agentCtx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(agentCtx) }()
	select {
	case <-off:
	case <-ctx.Done():
	case err := <-ended:
		if ctx.Err() != nil {
			return false, nil
		}
		return false, fmt.Errorf("the agent of Node %s ended: %w", s.name, err)
	}
	stop()
	return ctx.Err() == nil, <-ended
}

func ignoreCancelled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// renewLeases renews the Leases of all machines that are up, spread over the interval, until ctx is cancelled. On an overloaded
// computer, the Leases expire nevertheless; then the kubelets report again.
func renewLeases(ctx context.Context, machines []*simulated, nodes *observer) error {
	group, ctx := errgroup.WithContext(ctx)
	const renewers = 32
	for first := range renewers {
		group.Go(func() error {
			for {
				begin := time.Now()
				for i := first; i < len(machines); i += renewers {
					select {
					case <-time.After(time.Until(begin.Add(renewInterval * time.Duration(i) / time.Duration(len(machines))))):
					case <-ctx.Done():
						return nil
					}
					if !machines[i].isUp() {
						continue
					}
					if err := machines[i].renew(ctx); err != nil && ctx.Err() == nil {
						return fmt.Errorf("renew the Lease of Node %s: %w", machines[i].name, err)
					}
					if !nodes.isUnknown(machines[i].name) {
						continue
					}
					if err := machines[i].postAgain(ctx); err != nil && ctx.Err() == nil {
						return err
					}
				}
				select {
				case <-time.After(time.Until(begin.Add(renewInterval))):
				case <-ctx.Done():
					return nil
				}
			}
		})
	}
	return group.Wait()
}
