package gobuild

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// Packages compiles all packages of the module in dir, and all that their programs and tests import, into the go command's
// cache. tags are build tags, separated by commas. It downloads missing modules. It writes what it is doing to progress, and nothing if there is nothing to
// compile.
func Packages(ctx context.Context, dir, name, tags string, progress io.Writer) error {
	// The go command would link programs and tests too, which takes longer than it saves later.
	const format = `{{if not (or .ForTest (eq .Name "main"))}}{{.ImportPath}}{{end}}`
	p := Program{Name: name, Dir: dir}
	line := newProgressLine(progress, name)
	defer line.close()
	all, err := p.list(ctx, line, "-deps", "-test", "-tags", tags, "-f", format, "./...")
	if err != nil {
		return err
	}
	stale, err := p.list(ctx, line, append([]string{"-f", `{{if .Stale}}{{.ImportPath}}{{end}}`}, all...)...)
	if err != nil || len(stale) == 0 {
		return err
	}
	line.total = len(stale)
	isStale := map[string]bool{}
	for _, path := range stale {
		isStale[path] = true
	}
	cmd := p.goCommand(ctx, append([]string{"build", "-v"}, stale...)...)
	failure, err := run(ctx, cmd, func(text string) {
		if isStale[text] {
			line.compiled++
		}
		line.show(text)
	})
	if err != nil {
		return p.buildError(ctx, failure, err)
	}
	line.done()
	return nil
}

// Download downloads the modules that the packages in dir need, in the workspace if dir is in one. Commands that are run there
// later then print nothing about downloads. It writes to progress only if there is something to download.
func Download(ctx context.Context, dir, name string, progress io.Writer) error {
	p := Program{Name: name, Dir: dir, workspace: true}
	line := newProgressLine(progress, name)
	defer line.close()
	_, err := p.list(ctx, line, "-deps", "-f", `{{""}}`, "./...")
	return err
}

// Fetch downloads the modules that a program is built from, so that [Build] finds them.
func Fetch(ctx context.Context, p Program) error {
	_, err := p.list(ctx, newProgressLine(io.Discard, p.Name), append([]string{"-deps", "-f", `{{""}}`}, p.packages()...)...)
	return err
}

// list runs "go list" and returns the lines of its output. It downloads missing modules.
func (p Program) list(ctx context.Context, line *progressLine, args ...string) ([]string, error) {
	cmd := p.goCommand(ctx, append([]string{"list"}, args...)...)
	var out strings.Builder
	cmd.Stdout = &out
	downloads := 0
	failure, err := run(ctx, cmd, func(text string) {
		if strings.HasPrefix(text, "go: downloading ") {
			downloads++
			line.print(fmt.Sprintf("downloading modules (%d)", downloads))
		}
	})
	if err != nil {
		return nil, p.buildError(ctx, failure, err)
	}
	return strings.Fields(out.String()), nil
}
