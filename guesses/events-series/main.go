// Events-series records ten Events about a ConfigMap with client-go's tools/events, and prints what it writes.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"example.com/controllers/guesses/internal/client"
)

func main() {
	differ := flag.Bool("differ", false, "give each Event a note of its own")
	flag.Parse()
	ctx := context.Background()
	config := client.Config()
	writes := client.Writes(config)
	clientset := kubernetes.NewForConfigOrDie(config)
	configMap, err := clientset.CoreV1().ConfigMaps(client.Namespace()).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clientset.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		log.Fatal(err)
	}
	recorder := broadcaster.NewRecorder(scheme.Scheme, "guess")
	for call := range 10 {
		attempt := 1
		if *differ {
			attempt += call
		}
		recorder.Eventf(configMap, nil, corev1.EventTypeWarning, "SyncFailed", "Sync", "attempt %d failed", attempt)
		if call == 0 {
			fmt.Println(<-writes)
		}
	}
	for {
		select {
		case write := <-writes:
			fmt.Println(write)
		case <-time.After(2 * time.Second):
			return
		}
	}
}
