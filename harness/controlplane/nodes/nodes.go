// Package nodes simulates the kubelets of simulated machines (package machine). For every machine that is
// powered on, it
//
//   - renews the Node's Lease,
//   - reports the Node's conditions,
//   - reports the Pods that are bound to the Node as Running and, if they are a Job's, as Succeeded,
//   - deletes the Pods that are to be deleted, when their containers have stopped.
//
// It also carries out the machines' reboots.
//
// KWOK does everything except the Leases and the reboots. The Stages define what it reports and when. The status of Pods, which
// a Stage cannot say in a few lines, is made here, with the kubelet's own functions.
package nodes

import (
	"context"
	_ "embed"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/client/clientset/versioned"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	"sigs.k8s.io/kwok/pkg/utils/client"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"

	"example.com/controllers/harness/machine"
)

//go:embed stages/node-ready.yaml
var nodeReady string

//go:embed stages/node-not-ready.yaml
var nodeNotReady string

//go:embed stages/pod-report.yaml
var podReport string

//go:embed stages/pod-delete.yaml
var podDelete string

// Run simulates the kubelets of all machines of a cluster, including those that are added later, until ctx is
// cancelled. Namespace kube-node-lease must exist.
func Run(ctx context.Context, kubeconfig string) error {
	stages, err := stages()
	if err != nil {
		return err
	}
	clients, err := client.NewClientset("", kubeconfig)
	if err != nil {
		return fmt.Errorf("make clients for the simulated kubelets: %w", err)
	}
	restConfig, err := clients.ToRESTConfig()
	if err != nil {
		return fmt.Errorf("make clients for the simulated kubelets: %w", err)
	}
	dynamicClient, err := clients.ToDynamicClient()
	if err != nil {
		return fmt.Errorf("make clients for the simulated kubelets: %w", err)
	}
	mapper, err := clients.ToRESTMapper()
	if err != nil {
		return fmt.Errorf("make clients for the simulated kubelets: %w", err)
	}
	restClient, err := rest.RESTClientFor(restConfig)
	if err != nil {
		return fmt.Errorf("make clients for the simulated kubelets: %w", err)
	}
	typedConfig := rest.CopyConfig(restConfig)
	typedConfig.ContentType = runtime.ContentTypeProtobuf
	typedClient, err := kubernetes.NewForConfig(typedConfig)
	if err != nil {
		return fmt.Errorf("make clients for the simulated kubelets: %w", err)
	}
	kubelets := kubeletClient{typedClient}
	stageClient, err := versioned.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make clients for the simulated kubelets: %w", err)
	}
	controller, err := controllers.NewController(controllers.Config{
		ID:                           "workshop",
		Clock:                        clock.RealClock{},
		DynamicClient:                dynamicClient,
		RESTClient:                   restClient,
		RESTMapper:                   mapper,
		ImpersonatingDynamicClient:   clients.ToImpersonatingDynamicClient(),
		ImpersonatingTypedClient:     clients.ToImpersonatingTypedClient(),
		TypedClient:                  kubelets,
		TypedKwokClient:              stageClient,
		LocalStages:                  stages,
		FuncMap:                      gotpl.FuncMap{"StatusPatch": templateStatusPatch},
		ManageNodesWithLabelSelector: machine.Selector,
		CIDR:                         "10.244.0.0/16",
		NodePlayStageParallelism:     4,
		PodPlayStageParallelism:      4,
		PodsOnNodeSyncParallelism:    4,
	})
	if err != nil {
		return fmt.Errorf("make the simulated kubelets: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(kubelets, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = machine.PowerLabel }))
	leases, err := newLeaseController(kubelets, factory.Core().V1().Nodes())
	if err != nil {
		return err
	}
	reboots, err := newRebootController(kubelets, factory.Core().V1().Nodes())
	if err != nil {
		return err
	}
	if err := controller.Start(ctx); err != nil {
		return fmt.Errorf("start the simulated kubelets: %w", err)
	}
	factory.StartWithContext(ctx)
	var running sync.WaitGroup
	running.Go(func() { leases.run(ctx) })
	running.Go(func() { reboots.run(ctx) })
	running.Wait()
	return nil
}

// stages returns the Stages of Nodes and of Pods.
func stages() (map[internalversion.StageResourceRef][]*internalversion.Stage, error) {
	all := map[internalversion.StageResourceRef][]*internalversion.Stage{}
	for _, text := range []string{nodeReady, nodeNotReady, podReport, podDelete} {
		stage, err := config.UnmarshalWithType[*internalversion.Stage](text)
		if err != nil {
			return nil, fmt.Errorf("read stage: %w", err)
		}
		all[stage.Spec.ResourceRef] = append(all[stage.Spec.ResourceRef], stage)
	}
	return all, nil
}
