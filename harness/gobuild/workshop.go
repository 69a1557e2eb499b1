package gobuild

// Workshop describes the workshop's command. dir is the directory of the harness module.
func Workshop(dir string) Program {
	return Program{
		Name:    "workshop",
		Dir:     dir,
		Package: "./cmd/workshop",
		Sources: []string{"go.mod", "go.sum", "apiproxy", "cluster", "cmd/workshop", "environ", "exercise", "gobuild", "guard", "guess", "history", "image", "kind", "lesson", "machine", "manifest", "metrics", "mutants", "offline", "oracle", "play", "proc", "skeleton", "statefile", "suite", "testinput", "torture", "torturejob", "view"},
		LDFlags: "-s -w",
	}
}
