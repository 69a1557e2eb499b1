// Package nodetest makes Nodes and Pods for tests.
package nodetest

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
)

// Monday is an arbitrary time in whole seconds, which is the resolution of the times in annotations.
var Monday = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// Property is something that tells one Node from another.
type Property func(*corev1.Node)

// New returns a Node that is Ready and has no annotations.
func New(name string, properties ...Property) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}}
	Ready(corev1.ConditionTrue)(node)
	for _, set := range properties {
		set(node)
	}
	return node
}

// Ready sets the Ready condition, beside another one.
func Ready(status corev1.ConditionStatus) Property {
	return func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: status},
		}
	}
}

// Annotation adds an annotation.
func Annotation(annotation, value string) Property {
	return func(node *corev1.Node) { metav1.SetMetaDataAnnotation(&node.ObjectMeta, annotation, value) }
}

// Label adds a label.
func Label(label, value string) Property {
	return func(node *corev1.Node) { metav1.SetMetaDataLabel(&node.ObjectMeta, label, value) }
}

// All has several properties.
func All(properties ...Property) Property {
	return func(node *corev1.Node) {
		for _, set := range properties {
			set(node)
		}
	}
}

// Without removes conditions.
func Without(conditions ...corev1.NodeConditionType) Property {
	return func(node *corev1.Node) {
		node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return slices.Contains(conditions, c.Type)
		})
	}
}

// The Nodes of each phase, as far as the annotations tell.
var (
	NotReady     = Ready(corev1.ConditionFalse)
	UnknownReady = Ready(corev1.ConditionUnknown)
	Needed       = ours("reboot-needed", "")
	Draining     = All(Needed, admitted)
	Approved     = All(ours("reboot-now", ""), admitted)
	InProgress   = All(ours("reboot-in-progress", "boot-1"), admitted)
	Cancelled    = admitted
	Deleted      = Property(func(node *corev1.Node) { node.DeletionTimestamp = new(metav1.NewTime(Monday)) })

	admitted = ours("admitted", Monday.Format(time.RFC3339))
)

// LastAttempt says how long before [Monday] the last attempt ended.
func LastAttempt(before time.Duration) Property {
	return ours("last-attempt", Monday.Add(-before).Format(time.RFC3339))
}

// ZoneLabel is the label that [Zone] sets.
const ZoneLabel = "topology.kubernetes.io/zone"

// Zone puts the Node into a zone.
func Zone(name string) Property { return Label(ZoneLabel, name) }

// Apply returns a Node after a change. A nil value removes an annotation, and a nil unschedulable leaves the Node as it is.
func Apply(node *corev1.Node, annotations map[string]*string, unschedulable *bool) *corev1.Node {
	node = node.DeepCopy()
	for annotation, value := range annotations {
		if value == nil {
			delete(node.Annotations, annotation)
		} else {
			Annotation(annotation, *value)(node)
		}
	}
	if unschedulable != nil {
		node.Spec.Unschedulable = *unschedulable
	}
	return node
}

// CountWrites counts the requests that may have changed something.
func CountWrites(actions []clienttesting.Action) (n int) {
	for _, action := range actions {
		switch action.GetVerb() {
		case "create", "update", "patch", "delete":
			n++
		}
	}
	return n
}

// NewPod returns a running Pod of a ReplicaSet on a Node.
func NewPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name + "@" + node), Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet", Name: "shop", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// prefix is that of the annotations; package protocol cannot be imported here, because its own tests import this package.
const prefix = "reboot.controllers.example.com/"

// WithAnnotations returns a ready Node with annotations "name=value", of which the prefix is left out.
func WithAnnotations(name string, annotations ...string) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: "boot-" + name},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, annotation := range annotations {
		key, value, _ := strings.Cut(annotation, "=")
		node.Annotations[prefix+key] = value
	}
	return node
}

// ours sets one of the operator's annotations.
func ours(name, value string) Property { return Annotation(prefix+name, value) }
