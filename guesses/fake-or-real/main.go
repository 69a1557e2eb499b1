// Fake-or-real makes the same calls to client-go's fake clientset and to the API server. Its argument names the calls.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"example.com/controllers/guesses/internal/client"
)

func main() {
	ctx := context.Background()
	call := map[string]func(context.Context, typedcorev1.ConfigMapInterface) (string, error){
		"stale-update": staleUpdate, "delete": deletions, "watch": watchSelected, "generate-name": generateName,
	}[os.Args[1]]
	for _, side := range []struct {
		name      string
		clientset kubernetes.Interface
	}{
		{"fake", fake.NewClientset()},
		{"real", kubernetes.NewForConfigOrDie(client.Config())},
	} {
		result, err := call(ctx, side.clientset.CoreV1().ConfigMaps(client.Namespace()))
		if err != nil {
			log.Fatalf("%s: %v", side.name, err)
		}
		fmt.Printf("%s: %s\n", side.name, result)
	}
}

func staleUpdate(ctx context.Context, configMaps typedcorev1.ConfigMapInterface) (string, error) {
	created, err := configMaps.Create(ctx, named("web", nil), metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	theirs, ours := created.DeepCopy(), created.DeepCopy()
	theirs.Data = map[string]string{"color": "blue"}
	if _, err := configMaps.Update(ctx, theirs, metav1.UpdateOptions{}); err != nil {
		return "", err
	}
	ours.Data = map[string]string{"size": "small"}
	_, conflict := configMaps.Update(ctx, ours, metav1.UpdateOptions{})
	stored, err := configMaps.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("conflict %t, data %v", apierrors.IsConflict(conflict), stored.Data), nil
}

func deletions(ctx context.Context, configMaps typedcorev1.ConfigMapInterface) (string, error) {
	kept := named("finalized", nil)
	kept.Finalizers = []string{"example.com/cleanup"}
	for _, configMap := range []*corev1.ConfigMap{named("dry", nil), kept} {
		if _, err := configMaps.Create(ctx, configMap, metav1.CreateOptions{}); err != nil {
			return "", err
		}
	}
	if err := configMaps.Delete(ctx, "dry", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		return "", err
	}
	if err := configMaps.Delete(ctx, "finalized", metav1.DeleteOptions{}); err != nil {
		return "", err
	}
	_, dry := configMaps.Get(ctx, "dry", metav1.GetOptions{})
	_, finalized := configMaps.Get(ctx, "finalized", metav1.GetOptions{})
	return fmt.Sprintf("dry run: gone %t, finalizer: gone %t", apierrors.IsNotFound(dry), apierrors.IsNotFound(finalized)), nil
}

func watchSelected(ctx context.Context, configMaps typedcorev1.ConfigMapInterface) (string, error) {
	watcher, err := configMaps.Watch(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return "", err
	}
	defer watcher.Stop()
	for _, app := range []string{"other", "web"} {
		if _, err := configMaps.Create(ctx, named(app, map[string]string{"app": app}), metav1.CreateOptions{}); err != nil {
			return "", err
		}
	}
	var events []string
	for event := range watcher.ResultChan() {
		name := event.Object.(*corev1.ConfigMap).Name
		events = append(events, fmt.Sprint(event.Type, " ", name))
		if name == "web" { // the last one
			break
		}
	}
	return strings.Join(events, ", "), nil
}

func generateName(ctx context.Context, configMaps typedcorev1.ConfigMapInterface) (string, error) {
	var names []string
	for range 2 {
		configMap, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Sprintf("%q, then %v", names, err), nil
		}
		names = append(names, configMap.Name)
	}
	return fmt.Sprintf("%q", names), nil
}

func named(name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}
