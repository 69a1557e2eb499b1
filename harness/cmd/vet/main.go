// Command vet is a faster vet for "go vet -vettool". It runs the go command's own vet on the workshop's packages, but not on
// most of their dependencies, which are 2,200 packages for the control plane alone.
//
// In a dependency, vet finds nothing wrong. It only learns which functions are like [fmt.Printf], and which ones never return, to
// check their callers. Of the functions that the workshop calls, few are, and vet still learns these.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"go/build"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// own is how the paths of the workshop's modules begin.
const own = "example.com/controllers/"

// learned are the other modules of whose functions vet learns, beside the standard library.
var learned = []string{"github.com/spf13/cobra", "k8s.io/klog/v2"}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vet:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	vet := filepath.Join(build.ToolDir, "vet")
	// A later vet may pass more than facts from one package to the next.
	if last := args[max(0, len(args)-1):]; len(last) > 0 && strings.HasPrefix(runtime.Version(), "go1.26") {
		switch {
		case last[0] == "-V=full": // the go command's cache keeps apart what tools with different answers find
			return printVersion(vet, stdout)
		case strings.HasSuffix(last[0], ".cfg"):
			if done, err := leaveOut(last[0]); done || err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("run %s: %w", vet, syscall.Exec(vet, append([]string{vet}, args...), os.Environ()))
}

// printVersion prints the version of vet, and a hash of this program before it.
func printVersion(vet string, stdout io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	version, err := exec.Command(vet, "-V=full").Output()
	if err != nil {
		return fmt.Errorf("%s -V=full: %w", vet, err)
	}
	_, err = fmt.Fprintf(stdout, "vet-%x-%s\n", sha256.Sum256(program), bytes.TrimSpace(version))
	return err
}

// leaveOut reports whether vet need not look at a package, which the file describes. If so, there are no facts about it.
func leaveOut(file string) (bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	var unit struct { // the go command's vetConfig
		ModulePath string // "" in the standard library
		VetxOnly   bool   // only facts are wanted, not what is wrong
		VetxOutput string // the file for facts
	}
	if err := json.Unmarshal(text, &unit); err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	path := unit.ModulePath
	if !unit.VetxOnly || path == "" || strings.HasPrefix(path, own) || slices.Contains(learned, path) {
		return false, nil
	}
	return true, os.WriteFile(unit.VetxOutput, nil, 0o600)
}
