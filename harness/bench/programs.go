package main

import (
	"context"
	"os"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
)

// programs holds the paths of the binaries that are measured.
type programs struct{ controlPlane, apiServer, etcd string }

// build builds the programs that are not in the cache, so that no boot includes a build: the control plane and, if withEnvtest is
// true, those that envtest starts.
func build(ctx context.Context, withEnvtest bool) (programs, error) {
	root, err := cluster.Root(ctx)
	if err != nil {
		return programs{}, err
	}
	controlPlane := cluster.Program(root)

	// From the same modules with the same flags, so that the difference is only in how they are combined.
	apiServer := controlPlane
	apiServer.Name, apiServer.Package = "kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"
	apiServer.Sources, apiServer.ExtraPackages = []string{"go.mod", "go.sum"}, nil
	etcd := apiServer
	etcd.Name, etcd.Package = "etcd", "go.etcd.io/etcd/server/v3"

	var built programs
	for _, program := range []struct {
		gobuild.Program
		path   *string
		needed bool
	}{
		{controlPlane, &built.controlPlane, true},
		{apiServer, &built.apiServer, withEnvtest},
		{etcd, &built.etcd, withEnvtest},
	} {
		if !program.needed {
			continue
		}
		if *program.path, err = gobuild.Build(ctx, program.Program, os.Stderr); err != nil {
			return programs{}, err
		}
	}
	return built, nil
}
