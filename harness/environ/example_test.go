package environ_test

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"example.com/controllers/harness/environ"
)

// The program gets the cluster that the caller names, and cannot find the user's.
func ExampleIsolated() {
	os.Setenv("KUBECONFIG", "/home/me/.kube/production")
	os.Setenv("AWS_PROFILE", "production")
	scratch, err := os.MkdirTemp("", "environ-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(scratch)
	home := filepath.Join(scratch, "home")

	env, err := environ.Isolated(home)
	if err != nil {
		log.Fatal(err)
	}
	program := exec.Command("sh", "-c", `echo "KUBECONFIG=$KUBECONFIG AWS_PROFILE=$AWS_PROFILE"; cd && ls`)
	program.Env = append(env, "KUBECONFIG=/tmp/workshop/kubeconfig")
	out, err := program.CombinedOutput()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", out)
	// Output:
	// KUBECONFIG=/tmp/workshop/kubeconfig AWS_PROFILE=
}
