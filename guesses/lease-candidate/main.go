// Lease-candidate runs for the Lease "leader" of the question's namespace, leads for a while, and ends as if it were killed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"example.com/controllers/guesses/internal/client"
)

func main() {
	identity := flag.String("identity", "", "identity of this candidate")
	leaseDuration := flag.Duration("lease-duration", 4*time.Second, "LeaseDuration")
	lead := flag.Duration("lead", time.Second, "how long to lead")
	flag.Parse()
	klog.SetLogger(klog.Logger{}) // the page shows only what this program prints

	start := time.Now()
	leaderelection.RunOrDie(context.Background(), leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: client.Namespace(), Name: "leader"},
			Client:     kubernetes.NewForConfigOrDie(client.Config()).CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: *identity},
		},
		LeaseDuration: *leaseDuration,
		RenewDeadline: *leaseDuration / 2,
		RetryPeriod:   *leaseDuration / 6,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				fmt.Printf("%s leads after %.1f s\n", *identity, time.Since(start).Seconds())
				time.Sleep(*lead)
				fmt.Println(*identity, "is killed")
				os.Exit(0)
			},
			OnStoppedLeading: func() { fmt.Println(*identity, "has stopped") },
		},
	})
}
