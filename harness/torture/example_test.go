package torture_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/torture"
)

// Any program that takes a kubeconfig can be put to torture. This one lists Pods, watches them, and prints what it
// sees; it exits if the list is refused, which a controller should retry.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "scenario.yaml")
	const scenarioYAML = `
resources: [pods]
steps:
- name: a Pod is created
  do:
  - apply: {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: nginx}]}}
converged:
- rule: pods.all(p, p.?status.phase.orValue("") == "Running")
says: [web]   # must be printed at the end
stopsWith: -1 # it does not handle SIGTERM
`
	if err := os.WriteFile(file, []byte(scenarioYAML), 0o600); err != nil {
		panic(err)
	}
	scenario, err := torture.Read(file)
	if err != nil {
		panic(err)
	}
	fault, err := apiproxy.ParseFault("verb=list,resource=pods,refuse=500")
	if err != nil {
		panic(err)
	}
	shared, err := cluster.Shared() // its kubectl is the program
	if err != nil {
		panic(err)
	}
	report, err := torture.Run(context.Background(), torture.Options{
		Scenario: scenario,
		Commands: torture.Single(filepath.Join(shared.Kubectl, "kubectl"), "get", "pods", "--watch",
			"--kubeconfig={kubeconfig}", "--namespace={namespace}", "--cache-dir="+dir),
		Faults: []apiproxy.Fault{fault},
		Nodes:  1,
	})
	if err != nil {
		panic(err)
	}
	for _, failure := range report.Failures() {
		fmt.Printf("%s: %s\nreplay: %s\n", failure.Plan.Kind, failure.Verdict, failure.Plan)
	}
	// Output:
	// replay: died
	// replay: --fault verb=list,resource=pods,refuse=500
}
