// Record-spam records 100 Events about one object with client-go's tools/record.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"example.com/controllers/guesses/internal/client"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config := client.Config()
	config.QPS = -1
	writes := client.Writes(config)
	clientset := kubernetes.NewForConfigOrDie(config)
	configMap, err := clientset.CoreV1().ConfigMaps(client.Namespace()).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clientset.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "guess"})
	for i := range 100 {
		recorder.Eventf(configMap, corev1.EventTypeNormal, "Synced", "revision %d", i)
	}
	for count := 0; ; count++ {
		select {
		case <-writes:
		case <-time.After(2 * time.Second):
			fmt.Println("100 calls,", count, "writes")
			return
		}
	}
}
