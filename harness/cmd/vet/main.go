// Command vet is a faster vet for "go vet -vettool". It runs the go command's own vet on the workshop's packages, but not on
// most of their dependencies, which are 2,200 packages for the control plane alone.
//
// Vet reports nothing about a dependency. It analyzes one only to find out which of its functions format like [fmt.Printf], so
// that it can check their callers, and which never return. Our vet does so for the standard library and for the modules in
// withFacts.
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

// withFacts are the other modules that are analyzed as dependencies: those with functions like Printf for everyday use.
var withFacts = []string{"github.com/spf13/cobra", "k8s.io/klog/v2"}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vet:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	vet := filepath.Join(build.ToolDir, "vet")
	// Go 1.27 may use the file of facts for the types of a package as well (https://go.dev/issue/79454).
	if last := args[max(0, len(args)-1):]; len(last) > 0 && strings.HasPrefix(runtime.Version(), "go1.26") {
		switch {
		case last[0] == "-V=full": // the key of what the go command caches of vet
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

// leaveOut reports whether vet need not analyze the package that the file describes. If so, it writes that there are no facts
// about it.
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
	if !unit.VetxOnly || path == "" || strings.HasPrefix(path, own) || slices.Contains(withFacts, path) {
		return false, nil
	}
	return true, os.WriteFile(unit.VetxOutput, nil, 0o600)
}
