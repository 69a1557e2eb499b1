// Events-long-note records an Event for each argument, with a note of so many bytes.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"example.com/controllers/guesses/internal/client"
)

func main() {
	ctx := context.Background()
	klog.SetLogger(klog.Logger{}) // the broadcaster logs the whole Event that is refused
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
	for _, argument := range os.Args[1:] {
		size, err := strconv.Atoi(argument)
		if err != nil {
			log.Fatal(err)
		}
		recorder.Eventf(configMap, nil, corev1.EventTypeWarning, "Size"+argument, "Sync", "%s", strings.Repeat("x", size))
		fmt.Printf("%d bytes: %s\n", size, <-writes)
	}
}
