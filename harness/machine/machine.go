// Package machine adds simulated machines to a cluster, breaks them and removes them.
//
//   - A machine that is added becomes a Ready Node, and Pods bound to it become Running.
//   - A machine that is set not ready still has a kubelet, which reports Ready=False immediately.
//   - A machine that is powered off has no kubelet: its Lease expires, and the node lifecycle controller
//     sets its Ready condition to Unknown, as it does for a real one.
//   - A machine that is switched on again, or reboots, has a new boot ID. The boot ID is written before the
//     power is on.
//   - A reboot that was asked for is carried out once, whatever happens to the process that asked for it.
//   - Nodes that are not simulated machines are never changed.
//
// A machine is nothing but its Node object. The control plane's program simulates its kubelet, with KWOK, and
// carries out its reboots. The functions here only write to the Node, so they work from any process that has a
// client. Package host runs processes on machines.
package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

const (
	// PowerLabel marks a Node as a simulated machine. It is "on" while the machine's kubelet is simulated,
	// "off" otherwise. It is a label, so that a watch with [Selector] reports a machine that is powered off
	// as deleted.
	PowerLabel = "machine.controllers.example.com/power"
	// ReadyAnnotation is "false" while the machine's kubelet reports Ready=False, and absent otherwise.
	ReadyAnnotation = "machine.controllers.example.com/ready"
	// HoldAnnotation is an annotation of Pods, with any value. While a Pod that is being deleted has it, its containers
	// have not stopped yet.
	HoldAnnotation = "machine.controllers.example.com/hold"

	powerOn, powerOff = "on", "off"
)

// Selector selects the machines that are powered on: those whose kubelets are simulated.
const Selector = PowerLabel + "=" + powerOn

// Name returns the name of the i-th machine of a cluster, counted from 0: "node-0".
func Name(i int) string { return fmt.Sprintf("node-%d", i) }

// Node returns the Node that a machine's kubelet would register: 4 CPUs, 16 GiB, 110 Pods, a new boot ID, and an
// address that nothing listens on. version is the kubelet's, such as "v1.37.1".
func Node(name, version string) *corev1.Node {
	machineID := uuid.NewUUID()
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("4"),
		corev1.ResourceMemory:           resource.MustParse("16Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
				// A kubelet sets these too. The node lifecycle controller adds those that are missing, with two requests for each Node.
				"beta.kubernetes.io/os":   "linux",
				"beta.kubernetes.io/arch": "amd64",
				PowerLabel:                powerOn,
			},
			Annotations: map[string]string{BootsAnnotation: "1"},
		},
		Status: corev1.NodeStatus{
			Capacity:    resources,
			Allocatable: resources,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: address(machineID)},
				{Type: corev1.NodeHostName, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				Architecture:            "amd64",
				BootID:                  string(uuid.NewUUID()),
				MachineID:               string(machineID),
				SystemUUID:              string(uuid.NewUUID()),
				ContainerRuntimeVersion: "simulated://1",
				KernelVersion:           "simulated",
				KubeletVersion:          version,
				OperatingSystem:         "linux",
				OSImage:                 "Simulated machine",
			},
		},
	}
}

// address returns an address for a machine, in 100.64.0.0/10, which is neither the Pods' network nor that of the
// Services. Two of thousands of machines may get the same.
func address(machineID types.UID) string {
	hash := fnv.New32a()
	hash.Write([]byte(machineID))
	n := hash.Sum32()
	return fmt.Sprintf("100.%d.%d.%d", 64+(n>>16)&63, (n>>8)&255, n&255)
}

// Add creates the Node of a new machine, which is powered on and becomes Ready a moment later. It returns an
// AlreadyExists error if there is a Node of that name.
func Add(ctx context.Context, client kubernetes.Interface, name string) error {
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("add node %s: %w", name, err)
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, Node(name, version.GitVersion), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("add node %s: %w", name, err)
	}
	return nil
}

// Remove deletes the machine's Node. The Pod garbage collector deletes the Pods that were bound to it, about
// a minute later.
func Remove(ctx context.Context, client kubernetes.Interface, name string) error {
	if err := mustBeMachine(ctx, client, name); err != nil {
		return fmt.Errorf("remove node %s: %w", name, err)
	}
	if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("remove node %s: %w", name, err)
	}
	return nil
}

// SetReady makes the machine's kubelet report Ready=True or Ready=False.
func SetReady(ctx context.Context, client kubernetes.Interface, name string, ready bool) error {
	var value any // nil becomes null, which removes the annotation
	if !ready {
		value = "false"
	}
	return patchMetadata(ctx, client, name, "annotations", ReadyAnnotation, value)
}

// SetPower powers the machine on or off. The kubelet of a machine that is off no longer renews the Node's
// Lease, so the node lifecycle controller sets its Ready condition to Unknown after about 50 s. A machine that
// is switched on boots, with a new boot ID, and is no longer rebooting. Nor is one that is switched off.
func SetPower(ctx context.Context, client kubernetes.Interface, name string, on bool) error {
	return change(ctx, client, name, func(node *corev1.Node) error {
		switch {
		case on == IsOn(node) && (on || node.Annotations[RebootingAnnotation] == ""):
			return nil
		case on:
			return Boot(ctx, client, node)
		}
		_, err := patchNode(ctx, client, node, map[string]any{
			"labels":      map[string]any{PowerLabel: powerOff},
			"annotations": map[string]any{RebootingAnnotation: nil},
		})
		return err
	})
}

// IsOn reports whether the Node is a machine that is powered on.
func IsOn(node *corev1.Node) bool { return node.Labels[PowerLabel] == powerOn }

// change gets the machine's Node and calls update, again if that fails with a conflict.
func change(ctx context.Context, client kubernetes.Interface, name string, update func(*corev1.Node) error) error {
	// The machine's kubelet and the node controllers write to the Node as well, but seldom.
	backoff := wait.Backoff{Steps: 20, Duration: 5 * time.Millisecond, Factor: 1.5, Jitter: 0.5}
	err := retry.RetryOnConflict(backoff, func() error {
		node, err := get(ctx, client, name)
		if err != nil {
			return err
		}
		return update(node)
	})
	if err != nil {
		return fmt.Errorf("change node %s: %w", name, err)
	}
	return nil
}

// patchNode changes the Node's metadata, unless the Node has changed meanwhile.
func patchNode(ctx context.Context, client kubernetes.Interface, node *corev1.Node, metadata map[string]any) (*corev1.Node, error) {
	metadata["resourceVersion"] = node.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	return client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

// patchMetadata sets one of the machine's labels or annotations. field is the JSON name of the map.
func patchMetadata(ctx context.Context, client kubernetes.Interface, name, field, key string, value any) error {
	if err := mustBeMachine(ctx, client, name); err != nil {
		return fmt.Errorf("change node %s: %w", name, err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: map[string]any{key: value}}})
	if err != nil {
		return fmt.Errorf("change node %s: %w", name, err)
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change node %s: %w", name, err)
	}
	return nil
}

// mustBeMachine returns an error unless the Node of that name is a simulated machine.
func mustBeMachine(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := get(ctx, client, name)
	return err
}

// get returns the Node of that name, or an error if it is not a simulated machine.
func get(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Node, error) {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if _, simulated := node.Labels[PowerLabel]; !simulated {
		return nil, fmt.Errorf("it is not a simulated machine (it has no label %s), and only those may be changed", PowerLabel)
	}
	return node, nil
}
