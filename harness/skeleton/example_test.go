package skeleton_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"example.com/controllers/harness/skeleton"
)

// A controller of one's own, and what to do with it.
func ExampleWrite() {
	parent, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(parent) }()
	written, err := skeleton.Write(context.Background(), skeleton.Options{
		Root: "../..",
		Name: "pod-reaper",
		Dir:  filepath.Join(parent, "pod-reaper"),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, next := range written.Next {
		fmt.Println(next.Does)
	}
	// Output:
	// Run its unit tests
	// Run it on the cluster of "make up", with the Pods that it works on, until Ctrl-C
	// Run it under the most telling faults
}
