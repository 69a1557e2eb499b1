package oracle_test

import (
	"fmt"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// A rule is a condition on the objects of a state, in CEL.
func ExampleRules_Check() {
	rules, err := oracle.NewRules([]string{"pods"}, []oracle.Condition{{
		Rule:    `pods.all(p, p.status.phase == "Running")`,
		Message: `"Pod " + pods.filter(p, p.status.phase != "Running")[0].metadata.name + " does not run"`,
	}})
	if err != nil {
		panic(err)
	}
	pod := func(name, phase string) oracle.Object {
		return oracle.Object{"metadata": map[string]any{"name": name}, "status": map[string]any{"phase": phase}}
	}
	state := oracle.State{"pods": {"a": pod("a", "Running")}}
	fmt.Println(rules.Check(state, nil) == nil)
	state["pods"]["b"] = pod("b", "Pending")
	fmt.Println(rules.Check(state, nil).Message)
	// Output:
	// true
	// Pod b does not run
}

// Two runs of a controller end in the same state if only generated names, times and the like differ.
func ExampleCompare() {
	run := func(namespace, suffix, image string) []string {
		pod := oracle.Object{
			"metadata": map[string]any{"name": "web-" + suffix, "generateName": "web-", "namespace": namespace, "uid": suffix},
			"spec":     map[string]any{"image": image},
		}
		return oracle.Normalize(oracle.State{"pods": {"web-" + suffix: pod}}, oracle.Scope{Namespace: namespace}, nil)
	}
	first := run("run-1", "x7k2p", "nginx")
	fmt.Println(oracle.Compare(first, run("run-2", "b9d4q", "nginx")))
	fmt.Println(oracle.Compare(first, run("run-3", "m5v8z", "apache")))
	// Output:
	// []
	// [pod web-*: spec.image is "apache", should be "nginx"]
}

// What is usual is learned from runs without faults. A run that does more deviates.
func ExampleExpected() {
	deletions := func(count int) oracle.Effects {
		recording := &history.History{}
		for range count {
			recording.Requests = append(recording.Requests, history.Request{Verb: "delete", Resource: "pods", Name: "web-x7k2p", Status: 200})
		}
		class := func(string, string) string { return "web-*" }
		return oracle.EffectsOf(recording, oracle.Scope{Namespace: "shop"}, []string{"pods"}, class)
	}
	var expected oracle.Expected
	fmt.Println("news:", expected.Add(deletions(1)))
	fmt.Println("news:", expected.Add(deletions(1)))
	for _, d := range expected.Deviations(deletions(3), 0, nil) {
		fmt.Println(d.Message)
	}
	// Output:
	// news: true
	// news: false
	// delete pods web-*: 3 times, should be 1
}
