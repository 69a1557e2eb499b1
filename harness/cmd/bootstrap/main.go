// Command bootstrap builds the workshop's command if its sources have changed, and replaces itself with it. It
// depends on a few small modules only, so that it compiles quickly.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/proc"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: bootstrap HARNESS_DIRECTORY [WORKSHOP_ARGUMENT]...")
		os.Exit(2)
	}
	path, err := build(proc.Context(), os.Args[1])
	if err == nil {
		err = syscall.Exec(path, append([]string{path}, os.Args[2:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "workshop:", err)
	os.Exit(1)
}

// build builds the workshop's command. While that compiles, the modules of the control plane are downloaded, which most
// commands build next.
func build(ctx context.Context, harness string) (string, error) {
	workshop := gobuild.Workshop(harness)
	built, err := gobuild.IsBuilt(ctx, workshop)
	if err != nil {
		return "", err
	}
	if !built {
		fetching, stop := context.WithCancel(ctx)
		fetched := make(chan struct{})
		go func() {
			defer close(fetched)
			controlPlane := gobuild.Program{Name: "controlplane", Dir: filepath.Join(harness, "controlplane"), Package: "./..."}
			_ = gobuild.Fetch(fetching, controlPlane) // whoever builds the control plane reports what is wrong
		}()
		defer func() {
			stop()
			<-fetched
		}()
	}
	return gobuild.Build(ctx, workshop, os.Stderr)
}
