package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kcmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// controllers are the controllers of kube-controller-manager that run here: those for workloads, Nodes,
// namespaces, ServiceAccounts, quotas and garbage collection. The others would have nothing to do without a
// cloud provider, a Pod network or volumes, and each would cost informers.
var controllers = []string{
	names.ClusterRoleAggregationController,
	names.CronJobController,
	names.DaemonSetController,
	names.DeploymentController,
	names.DisruptionController,
	names.EndpointsController,
	names.EndpointSliceController,
	names.GarbageCollectorController,
	names.JobController,
	names.NamespaceController,
	names.NodeLifecycleController,
	names.PersistentVolumeBinderController,
	names.PersistentVolumeClaimProtectionController,
	names.PersistentVolumeProtectionController,
	names.PodGarbageCollectorController,
	names.ReplicaSetController,
	names.ReplicationControllerController,
	names.ResourceQuotaController,
	names.RootCACertificatePublisherController,
	names.ServiceAccountController,
	names.ServiceAccountTokenController,
	names.StatefulSetController,
	names.TaintEvictionController,
	names.TTLAfterFinishedController,
	names.ValidatingAdmissionPolicyStatusController,
}

// runControllerManager runs the controllers until ctx is cancelled. The API server must be healthy when it
// is called.
func runControllerManager(ctx context.Context, kubeconfig string, files *pkiFiles) error {
	opts, err := kcmoptions.NewKubeControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("kube-controller-manager options: %w", err)
	}
	all, off, aliases := kcm.KnownControllers(), kcm.ControllersDisabledByDefault(), kcm.ControllerAliases()
	if err := parseFlags(opts.Flags(all, off, aliases), []string{
		"--kubeconfig=" + kubeconfig,
		"--controllers=" + strings.Join(controllers, ","),
		"--leader-elect=false",
		"--secure-port=0",
		"--service-account-private-key-file=" + files.serviceAccount.key,
		"--root-ca-file=" + files.ca.cert,
		// All controllers share this limit. At the default of 20 a second, a thousand Pods take a minute.
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--allocate-node-cidrs=false",
		"--profiling=false",
	}); err != nil {
		return fmt.Errorf("kube-controller-manager flags: %w", err)
	}
	config, err := opts.Config(ctx, all, off, aliases)
	if err != nil {
		return fmt.Errorf("kube-controller-manager config: %w", err)
	}
	return kcm.Run(ctx, config.Complete())
}

// runScheduler runs the scheduler until ctx is cancelled.
func runScheduler(ctx context.Context, kubeconfig string) error {
	opts := scheduleroptions.NewOptions()
	if err := parseFlags(*opts.Flags, []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--profiling=false",
	}); err != nil {
		return fmt.Errorf("kube-scheduler flags: %w", err)
	}
	config, sched, err := scheduler.Setup(ctx, opts)
	if err != nil {
		return fmt.Errorf("kube-scheduler config: %w", err)
	}
	return scheduler.Run(ctx, config, sched)
}

// parseFlags sets a component's options from command-line flags. The components' own cobra commands cannot
// be used: each installs signal handlers and global flags, which a process can have only once.
func parseFlags(sets cliflag.NamedFlagSets, args []string) error {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	return all.Parse(args)
}
