package test

import (
	"context"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/suite"
	"example.com/controllers/informer"
	"example.com/controllers/naive-loop/test/conformance"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

func TestREADME(t *testing.T) {
	suite.Once(t)
	t.Parallel()
	clustertest.PlayLesson(t, "..")
}

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Subject{
		Manifests: "../manifests", Account: "informer", Frontend: "../frontend.yaml",
		Start: func(ctx context.Context, config *rest.Config, namespace string) {
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Error(err)
				return
			}
			controller := informer.Controller{Client: client, Namespace: namespace}
			if err := controller.Run(ctx); err != nil {
				t.Error(err)
			}
		},
		// The controller is edge-triggered: it loses changes during downtime, and deletions that fail.
		KnownFailures: []string{
			"acts on a change made while it was down",
			"replaces each Pod once after a burst of changes",
			"retries a deletion that failed",
		},
	})
}

// The ServiceAccount has the permissions that the controller needs, and no others.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	env := clustertest.New(t)
	env.Install("../manifests")
	env.RequireRights("informer", clustertest.Rights{
		May: []string{
			"list pods", "watch pods", "delete pods", "list configmaps/frontend-config", "watch configmaps/frontend-config",
		},
		MayNot: []string{
			"list configmaps", "watch configmaps", "watch configmaps/another", "update configmaps/frontend-config",
			"create pods", "deletecollection pods", "get secrets", "list nodes", "create events.events.k8s.io",
			"delete pods --namespace=kube-system", "list namespaces", "delete deployments",
		},
	})
}

func TestProgram(t *testing.T) {
	t.Parallel()
	program := clustertest.BuildProgram(t, "..", "./cmd/informer")
	env := clustertest.New(t)
	clustertest.RequireRefusals(t, program, map[string]clustertest.Refusal{
		"no namespace":      {Args: nil, Want: "--namespace is required: the namespace whose Pods may be deleted"},
		"an argument":       {Args: []string{"--namespace=x", "y"}, Want: `unexpected argument "y"`},
		"a negative resync": {Args: []string{"--namespace=x", "--resync=-1s"}, Want: "--resync is -1s; it must not be negative"},
		"no such namespace": {Args: []string{"--namespace=nowhere", "--kubeconfig=" + env.Cluster.Kubeconfig}, Want: `there is no namespace "nowhere" on https://`},
	})
	t.Run("exits with status 0 on SIGTERM", func(t *testing.T) {
		run := clustertest.StartProgram(t, program, "--namespace", env.Namespace, "--kubeconfig", env.Cluster.Kubeconfig)
		run.AwaitLog("Caches synced")
		run.Signal(syscall.SIGTERM)
		require.NoError(t, run.Wait())
		require.Contains(t, run.Log(), "Stopped")
	})
}
