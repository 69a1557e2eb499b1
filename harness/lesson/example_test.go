package lesson_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/lesson"
	"example.com/controllers/harness/play"
)

const page = `# A greeting

'''console
$ kubectl apply -k manifests
configmap/greeting created
$ kubectl get configmap greeting --output jsonpath='{.data.text}'
hello
'''
`

// A repository with one lesson, which is played on a cluster.
func Example() {
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	for name, text := range map[string]string{
		"01-greeting/README.md":                    strings.ReplaceAll(page, "'''", "```"),
		"01-greeting/manifests/kustomization.yaml": "namespace: greeting\nresources: [greeting.yaml]\n",
		"01-greeting/manifests/greeting.yaml":      "{apiVersion: v1, kind: ConfigMap, metadata: {name: greeting}, data: {text: hello}}\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			panic(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			panic(err)
		}
	}

	result, err := playFirst(context.Background(), root)
	fmt.Printf("%d commands, %d lines matched, error: %v\n", result.Commands, result.Checked, err)
	// Output:
	// on namespace greeting
	//
	//   # A greeting
	//
	// $ kubectl apply -k manifests
	// configmap/greeting created
	// $ kubectl get configmap greeting --output jsonpath='{.data.text}'
	// hello
	// 2 commands, 2 lines matched, error: <nil>
}

func playFirst(ctx context.Context, root string) (play.Result, error) {
	l, err := lesson.Find(root, "1")
	if err != nil {
		return play.Result{}, err
	}
	c, err := cluster.Shared()
	if err != nil {
		return play.Result{}, err
	}
	scratch, err := os.MkdirTemp("", "example")
	if err != nil {
		return play.Result{}, err
	}
	defer os.RemoveAll(scratch)

	stage, err := lesson.Prepare(ctx, l, c, scratch)
	if err != nil {
		return play.Result{}, err
	}
	fmt.Println("on namespace", stage.Namespace)
	if err := stage.Open(ctx); err != nil {
		return play.Result{}, err
	}
	result, _, err := stage.Play(ctx, play.Player{Out: os.Stdout})
	if err != nil {
		return result, err
	}
	return result, stage.Clean(ctx)
}

func ExampleFind() {
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	for _, dir := range []string{"01-loop", "02-informer", "docs"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			panic(err)
		}
	}
	found, err := lesson.Find(root, "2")
	fmt.Println(found.Name(), err)
	_, err = lesson.Find(root, "3")
	fmt.Println(err)
	// Output:
	// 02-informer <nil>
	// there is no lesson "3". There are:
	//   make lesson 1   (01-loop)
	//   make lesson 2   (02-informer)
}
