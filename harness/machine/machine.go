// Package machine is the simulated machine: a Node of the cluster with nothing behind it but an API
// object and somebody who plays its kubelet (the control plane's program, with KWOK).
//
//   - A machine that was added becomes a Ready Node, and Pods bound to it become Running.
//   - A machine that is not ready says so itself: its Ready condition turns False at once.
//   - A machine that is switched off says nothing more: its Lease runs out, and the node lifecycle
//     controller turns its Ready condition to Unknown, as it does for a real one.
//
// All of it is said to the API server alone, so it works from any process that has a client.
package machine

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
)

const (
	// PowerLabel is "on" while somebody plays the machine's kubelet. It is a label so that a watch by
	// it ends for a machine that is switched off, as it does for one that is gone.
	PowerLabel = "machine.controllers.example.com/power"
	// ReadyAnnotation is "false" while the machine's kubelet reports that it is not ready.
	ReadyAnnotation = "machine.controllers.example.com/ready"

	powerOn, powerOff = "on", "off"
)

// Selector is the label selector of the Nodes that have a kubelet to be played.
const Selector = PowerLabel + "=" + powerOn

// Name returns the name of the i-th machine of a cluster, counted from 0: "node-0".
func Name(i int) string { return fmt.Sprintf("node-%d", i) }

// Node returns the Node that a machine's kubelet would register: 4 CPUs, 16 GiB, 110 Pods, a boot ID
// of its own. version is the kubelet's, such as "v1.37.1".
func Node(name, version string) *corev1.Node {
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
				PowerLabel:             powerOn,
			},
		},
		Status: corev1.NodeStatus{
			Capacity:    resources,
			Allocatable: resources,
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
			NodeInfo: corev1.NodeSystemInfo{
				Architecture:            "amd64",
				BootID:                  string(uuid.NewUUID()),
				MachineID:               string(uuid.NewUUID()),
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

// Add registers the machine of that name. Its Node becomes Ready a moment later.
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

// Remove takes the machine's Node out of the cluster; the Pods on it are then garbage, as after a
// real machine is gone.
func Remove(ctx context.Context, client kubernetes.Interface, name string) error {
	if err := mustBeMachine(ctx, client, name); err != nil {
		return fmt.Errorf("remove node %s: %w", name, err)
	}
	if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("remove node %s: %w", name, err)
	}
	return nil
}

// SetReady makes the machine's kubelet report that it is ready, or that it is not.
func SetReady(ctx context.Context, client kubernetes.Interface, name string, ready bool) error {
	var value any // null removes the annotation
	if !ready {
		value = "false"
	}
	return mark(ctx, client, name, "annotations", ReadyAnnotation, value)
}

// SetPower switches the machine on or off. Off, it falls silent: its Node turns Unknown when its
// Lease has run out, after about 50 s.
func SetPower(ctx context.Context, client kubernetes.Interface, name string, on bool) error {
	value := powerOff
	if on {
		value = powerOn
	}
	return mark(ctx, client, name, "labels", PowerLabel, value)
}

// mark sets one of the machine's labels or annotations, as field says.
func mark(ctx context.Context, client kubernetes.Interface, name, field, key string, value any) error {
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

// mustBeMachine refuses Nodes that are not simulated: those are somebody's real machines.
func mustBeMachine(ctx context.Context, client kubernetes.Interface, name string) error {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if _, simulated := node.Labels[PowerLabel]; !simulated {
		return fmt.Errorf("it is not a simulated machine (no label %s); the workshop leaves it alone", PowerLabel)
	}
	return nil
}
