package main

import (
	"context"
	"fmt"
	"net"

	extensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
)

// runAPIServer serves the Kubernetes API on listener until ctx is cancelled. extraArgs are kube-apiserver
// flags, which override those set here. etcdReady is closed when etcd can serve; until then, runAPIServer
// prepares everything that does not need it. It closes bootstrapped when the objects exist that a cluster begins with.
func runAPIServer(ctx context.Context, listener net.Listener, files *pkiFiles, extraArgs []string, etcdReady <-chan struct{}, bootstrapped chan<- struct{}) error {
	opts := options.NewServerRunOptions()
	args := append([]string{
		"--etcd-servers=" + etcdClientSocket,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		// Endpoints may not contain a loopback address, so Service "kubernetes" gets none.
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + files.apiServer.cert,
		"--tls-private-key-file=" + files.apiServer.key,
		"--client-ca-file=" + files.ca.cert,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=" + files.serviceAccount.key,
		"--service-account-key-file=" + files.serviceAccount.cert,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--profiling=false",
	}, extraArgs...)
	if err := parseFlags(opts.Flags(), args); err != nil {
		return fmt.Errorf("kube-apiserver flags: %w", err)
	}
	if err := opts.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("kube-apiserver feature gates: %w", err)
	}
	opts.SecureServing.Listener = listener

	completed, err := opts.Complete(ctx)
	if err != nil {
		return fmt.Errorf("kube-apiserver options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("kube-apiserver options: %w", errs[0])
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return fmt.Errorf("kube-apiserver config: %w", err)
	}
	if err := bootstrapWithoutDelay(config.KubeAPIs.ControlPlane.Generic, bootstrapped); err != nil {
		return err
	}
	config.KubeAPIs.ControlPlane.Generic.SkipOpenAPIInstallation = true // installOpenAPI does it
	useDefinitions(&config.ApiExtensions.GenericConfig.Config, extensionsopenapi.GetOpenAPIDefinitions)
	useDefinitions(&config.Aggregator.GenericConfig.Config, aggregatoropenapi.GetOpenAPIDefinitions)
	ready, err := config.Complete()
	if err != nil {
		return fmt.Errorf("kube-apiserver config: %w", err)
	}
	select {
	case <-etcdReady:
	case <-ctx.Done():
		return ctx.Err()
	}
	chain, err := app.CreateServerChain(ready)
	if err != nil {
		return fmt.Errorf("create kube-apiserver: %w", err)
	}
	// The chain is: the aggregator, then the server of the built-in resources, then that of custom resources.
	builtIn, ok := chain.GenericAPIServer.NextDelegate().(*genericapiserver.GenericAPIServer)
	if !ok {
		return fmt.Errorf("create kube-apiserver: the aggregator delegates to a %T", chain.GenericAPIServer.NextDelegate())
	}
	installOpenAPI(builtIn, config.KubeAPIs.ControlPlane.Generic)
	prepared, err := chain.PrepareRun()
	if err != nil {
		return fmt.Errorf("prepare kube-apiserver: %w", err)
	}
	return prepared.Run(ctx)
}

// bootstrapWithoutDelay replaces the two post-start hooks that create the default RBAC objects and priority
// classes. kube-apiserver's own wait a second before they first try, in case etcd is not up yet; here it is,
// and /readyz fails until they are done. Then bootstrapped is closed.
func bootstrapWithoutDelay(config *genericapiserver.Config, bootstrapped chan<- struct{}) error {
	config.DisabledPostStartHooks.Insert(rbacrest.PostStartHookName, schedulingrest.PostStartHookName)
	return config.AddPostStartHook("workshop/bootstrap-objects", func(hook genericapiserver.PostStartHookContext) error {
		client, err := kubernetes.NewForConfig(hook.LoopbackClientConfig)
		if err != nil {
			return err
		}
		if err := bootstrap(hook, client); err != nil {
			return err
		}
		close(bootstrapped)
		return nil
	})
}
