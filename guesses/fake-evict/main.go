// Fake-evict evicts a Pod through client-go's fake clientset and through the API server.
package main

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"example.com/controllers/guesses/internal/client"
)

func main() {
	ctx := context.Background()
	evict(ctx, "fake", fake.NewClientset())
	evict(ctx, "real", kubernetes.NewForConfigOrDie(client.Config()))
}

func evict(ctx context.Context, name string, clientset kubernetes.Interface) {
	pods := clientset.CoreV1().Pods(client.Namespace())
	if _, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: client.Namespace()},
		Spec: corev1.PodSpec{
			SchedulerName: "none", // the API server deletes a Pod without a Node at once
			Containers:    []corev1.Container{{Name: "web", Image: "web"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	evicted := pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	_, err := pods.Get(ctx, "web", metav1.GetOptions{})
	fmt.Printf("%s: error %v, the Pod is gone: %t\n", name, evicted, apierrors.IsNotFound(err))
}
