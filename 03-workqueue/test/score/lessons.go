package main

import (
	"context"
	"io"
	"path/filepath"

	"example.com/controllers/harness/gobuild"
)

// lesson says where a lesson is and how its controller is run.
type lesson struct {
	title   string
	dir     string // from the root of the repository; it has frontend.yaml and manifests
	program string // package of its controller, from dir
	account string // ServiceAccount of manifests/rbac.yaml
	args    []string
}

// interval is the pause between two passes of lesson 1's loop.
const interval = "1s"

var lessons = []lesson{
	{title: "1. A loop", dir: "01-naive-loop", program: "./cmd/naive-loop", account: "naive-loop", args: []string{"--interval=" + interval}},
	{title: "2. An informer", dir: "02-informer", program: "./cmd/informer", account: "informer"},
	{title: "3. A queue", dir: "03-workqueue", program: "./cmd/workqueue", account: "workqueue", args: []string{"--address=127.0.0.1:0"}},
}

// buildAll builds the lessons' programs with the go command, from their own modules, and returns the paths.
func buildAll(ctx context.Context, root string, progress io.Writer) (paths []string, err error) {
	for _, l := range lessons {
		path, err := gobuild.Build(ctx, gobuild.Program{
			Name: filepath.Base(l.program), Dir: filepath.Join(root, l.dir), Package: l.program, Sources: []string{"."},
		}, progress)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}
