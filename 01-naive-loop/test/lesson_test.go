package test

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/suite"
	naiveloop "example.com/controllers/naive-loop"
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
		Manifests: "../manifests", Account: "naive-loop", Frontend: "../frontend.yaml",
		Start: func(ctx context.Context, config *rest.Config, namespace string) {
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Error(err)
				return
			}
			controller := naiveloop.Controller{Client: client, Namespace: namespace, NodeName: "node-0", Interval: 100 * time.Millisecond}
			controller.Run(ctx)
		},
	})
}

// The ServiceAccount has the permissions that the controller needs, and no others.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	env := clustertest.New(t)
	env.Install("../manifests")
	env.RequireRights("naive-loop", clustertest.Rights{
		May: []string{"list pods", "delete pods", "get configmaps/frontend-config", "get nodes", "list nodes"},
		MayNot: []string{
			"get configmaps/another", "list configmaps", "update configmaps/frontend-config",
			"create pods", "deletecollection pods", "get secrets", "update nodes",
			"delete pods --namespace=kube-system", "delete deployments",
		},
	})
}

func TestProgram(t *testing.T) {
	t.Parallel()
	program := clustertest.BuildProgram(t, "..", "./cmd/naive-loop")
	clustertest.RequireRefusals(t, program, map[string]clustertest.Refusal{
		"no namespace": {Args: nil, Want: "--namespace is required: the namespace whose Pods may be deleted"},
		"an argument":  {Args: []string{"--namespace=x", "y"}, Want: `unexpected argument "y"`},
		"no interval":  {Args: []string{"--namespace=x", "--interval=0s"}, Want: "--interval is 0s; it must be more than 0"},
	})
	t.Run("exits with status 0 on SIGTERM", func(t *testing.T) {
		env := clustertest.New(t)
		run := clustertest.StartProgram(t, program, "--namespace", env.Namespace, "--kubeconfig", env.Cluster.Kubeconfig, "--interval=1h")
		run.AwaitLog("Current state")
		run.Signal(syscall.SIGTERM)
		require.NoError(t, run.Wait())
	})
}
