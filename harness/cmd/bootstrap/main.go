// Command bootstrap builds the workshop's command if its sources have changed, and replaces itself with it. It
// depends on a few small modules only, so that it compiles quickly.
package main

import (
	"fmt"
	"os"
	"syscall"

	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/proc"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: bootstrap HARNESS_DIRECTORY [WORKSHOP_ARGUMENT]...")
		os.Exit(2)
	}
	path, err := gobuild.Build(proc.Context(), gobuild.Workshop(os.Args[1]), os.Stderr)
	if err == nil {
		err = syscall.Exec(path, append([]string{path}, os.Args[2:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "workshop:", err)
	os.Exit(1)
}
