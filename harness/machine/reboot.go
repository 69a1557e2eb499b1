package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
)

const (
	// RebootAnnotation is the [Behavior] of reboots that do not name one.
	RebootAnnotation = "machine.controllers.example.com/reboot"
	// BootTimeAnnotation is the boot time, such as "30s", of reboots that do not name one.
	BootTimeAnnotation = "machine.controllers.example.com/boot-time"
	// RebootingAnnotation is a [Rebooting] in JSON while the machine is rebooting, and absent otherwise.
	RebootingAnnotation = "machine.controllers.example.com/rebooting"
	// BootsAnnotation counts how often the machine has booted: "1" for a new machine. It is increased in the same
	// write that switches the machine on.
	BootsAnnotation = "machine.controllers.example.com/boots"
	// RebootsAnnotation counts the reboots that were asked for and that the machine has accepted; it is absent before
	// the first.
	RebootsAnnotation = "machine.controllers.example.com/reboots"
)

// Behavior is what a machine does when it is told to reboot.
type Behavior string

// The behaviors of a reboot.
const (
	// Normal is a reboot as it should be: the kubelet reports Ready=False, the power goes off, and after the boot
	// time the machine is on again, with a new boot ID.
	Normal Behavior = "normal"
	// Hang is a machine that shuts down and stays off, until it is switched on.
	Hang Behavior = "hang"
	// SameBootID is a reboot after which the Node still has the old boot ID.
	SameBootID Behavior = "same-boot-id"
	// Fast is a reboot without a boot time, during which the Node stays Ready.
	Fast Behavior = "fast"
	// PowerCut is a machine that loses its power without notice, and boots after the boot time. The Node stays Ready
	// unless that takes longer than the grace period of its Lease.
	PowerCut Behavior = "power-cut"
	// Ignore is a machine that accepts the command and does nothing.
	Ignore Behavior = "ignore"
)

// Behaviors has all of them.
var Behaviors = []Behavior{Normal, Hang, SameBootID, Fast, PowerCut, Ignore}

// ReportsShutdown reports whether the kubelet sets Ready=False before the power goes off.
func (b Behavior) ReportsShutdown() bool { return b != Fast && b != PowerCut }

// DefaultBootTime is the time between power off and power on in a reboot.
const DefaultBootTime = 3 * time.Second

// RebootOptions says what a reboot is like.
type RebootOptions struct {
	// Behavior is what the machine does. Default: the value of [RebootAnnotation], or else Normal.
	Behavior Behavior
	// BootTime is the time between power off and power on. Default: the value of [BootTimeAnnotation], or else
	// [DefaultBootTime].
	BootTime time.Duration
	// Spontaneous says that nobody has asked for the reboot, so that [RebootsAnnotation] does not count it.
	Spontaneous bool
}

// Rebooting is the state of a reboot in progress.
type Rebooting struct {
	Behavior Behavior        `json:"behavior"`
	BootTime metav1.Duration `json:"bootTime"`
	// BootID is the boot ID that the machine will have.
	BootID string `json:"bootID"`
	// OffSince is when the power went off; nil while it is on.
	OffSince *metav1.MicroTime `json:"offSince,omitempty"`
}

// Reboot tells the machine to reboot, and returns as soon as that is written to its Node. The control plane's
// program carries it out. If the machine is already rebooting, Reboot does nothing.
func Reboot(ctx context.Context, client kubernetes.Interface, name string, o RebootOptions) error {
	return change(ctx, client, name, func(node *corev1.Node) error {
		if node.Annotations[RebootingAnnotation] != "" {
			return nil
		}
		if !IsOn(node) {
			return errors.New("it is switched off, so it cannot reboot")
		}
		reboot, err := newReboot(node, o)
		if err != nil || reboot.Behavior == Ignore {
			return err
		}
		text, err := json.Marshal(reboot)
		if err != nil {
			return err
		}
		annotations := map[string]any{RebootingAnnotation: string(text)}
		if !o.Spontaneous {
			annotations[RebootsAnnotation] = strconv.Itoa(Reboots(node) + 1)
		}
		_, err = patchNode(ctx, client, node, map[string]any{"annotations": annotations})
		return err
	})
}

// newReboot returns the reboot that the options and the Node's annotations ask for.
func newReboot(node *corev1.Node, o RebootOptions) (*Rebooting, error) {
	reboot := &Rebooting{Behavior: o.Behavior, BootTime: metav1.Duration{Duration: o.BootTime}, BootID: string(uuid.NewUUID())}
	if reboot.Behavior == "" {
		reboot.Behavior = Behavior(node.Annotations[RebootAnnotation])
	}
	if reboot.Behavior == "" {
		reboot.Behavior = Normal
	}
	if err := reboot.Behavior.check(); err != nil {
		return nil, err
	}
	if text := node.Annotations[BootTimeAnnotation]; text != "" && o.BootTime == 0 {
		bootTime, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", BootTimeAnnotation, err)
		}
		reboot.BootTime.Duration = bootTime
	}
	if err := checkBootTime(reboot.BootTime.Duration); err != nil {
		return nil, err
	}
	switch {
	case reboot.Behavior == Fast:
		reboot.BootTime.Duration = 0
	case reboot.BootTime.Duration == 0:
		reboot.BootTime.Duration = DefaultBootTime
	}
	if reboot.Behavior == SameBootID {
		reboot.BootID = node.Status.NodeInfo.BootID
	}
	return reboot, nil
}

func (b Behavior) check() error {
	if !slices.Contains(Behaviors, b) {
		return fmt.Errorf("a reboot cannot be %q; it is one of %q", b, Behaviors)
	}
	return nil
}

func checkBootTime(bootTime time.Duration) error {
	if bootTime < 0 {
		return fmt.Errorf("the boot time is %s; it must not be negative", bootTime)
	}
	return nil
}

// SetReboots sets what later reboots of the machine are like, if they do not say so themselves. Zero values of
// the options remove the annotations.
func SetReboots(ctx context.Context, client kubernetes.Interface, name string, o RebootOptions) error {
	annotations := map[string]any{RebootAnnotation: nil, BootTimeAnnotation: nil}
	if err := checkBootTime(o.BootTime); err != nil {
		return fmt.Errorf("change node %s: %w", name, err)
	}
	if o.Behavior != "" {
		if err := o.Behavior.check(); err != nil {
			return fmt.Errorf("change node %s: %w", name, err)
		}
		annotations[RebootAnnotation] = o.Behavior
	}
	if o.BootTime != 0 {
		annotations[BootTimeAnnotation] = o.BootTime.String()
	}
	return change(ctx, client, name, func(node *corev1.Node) error {
		_, err := patchNode(ctx, client, node, map[string]any{"annotations": annotations})
		return err
	})
}

// RebootOf returns the reboot that is in progress on the machine, or nil if there is none.
func RebootOf(node *corev1.Node) (*Rebooting, error) {
	text := node.Annotations[RebootingAnnotation]
	if text == "" {
		return nil, nil
	}
	var reboot Rebooting
	if err := json.Unmarshal([]byte(text), &reboot); err != nil {
		return nil, fmt.Errorf("read annotation %s of node %s: %w", RebootingAnnotation, node.Name, err)
	}
	return &reboot, nil
}

// CutPower switches the power off in a reboot. The error is a conflict if the Node has changed meanwhile.
func CutPower(ctx context.Context, client kubernetes.Interface, node *corev1.Node, reboot *Rebooting) error {
	now := metav1.NowMicro()
	reboot.OffSince = &now
	text, err := json.Marshal(reboot)
	if err != nil {
		return err
	}
	_, err = patchNode(ctx, client, node, map[string]any{
		"labels":      map[string]any{PowerLabel: powerOff},
		"annotations": map[string]any{RebootingAnnotation: string(text)},
	})
	return err
}

// Boot switches on a machine that is off. It writes the boot ID first, so that whatever starts on the machine can
// read the new one. The error is a conflict if the Node has changed meanwhile.
func Boot(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	bootID := string(uuid.NewUUID())
	reboot, err := RebootOf(node)
	if err != nil {
		return err
	}
	if reboot != nil {
		bootID = reboot.BootID
	}
	if node.Status.NodeInfo.BootID != bootID {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": node.ResourceVersion},
			"status":   map[string]any{"nodeInfo": map[string]any{"bootID": bootID}},
		})
		if err != nil {
			return err
		}
		node, err = client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			return err
		}
	}
	_, err = patchNode(ctx, client, node, map[string]any{
		"labels":      map[string]any{PowerLabel: powerOn},
		"annotations": map[string]any{BootsAnnotation: strconv.Itoa(Boots(node) + 1), RebootingAnnotation: nil},
	})
	return err
}

// Boots returns how often the machine has booted.
func Boots(node *corev1.Node) int { return count(node, BootsAnnotation) }

// Reboots returns how many reboots were asked for and accepted.
func Reboots(node *corev1.Node) int { return count(node, RebootsAnnotation) }

func count(node *corev1.Node, annotation string) int {
	n, _ := strconv.Atoi(node.Annotations[annotation]) // 0 if there is none
	return n
}
