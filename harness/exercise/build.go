package exercise

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"example.com/controllers/harness/guard"
)

// build compiles the check of the code in dir. It returns what the compiler complains about, or go vet, or "".
func (g *Grader) build(ctx context.Context, e Exercise, dir, scratch, program string) (complaints string, isVet bool, err error) {
	// The participant's own tests and a copy of the grader that has been edited are left out.
	replace := map[string]string{filepath.Join(dir, graderFile): filepath.Join(e.Dir, graderFile)}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", false, err
	}
	for _, entry := range entries {
		if isTest(entry.Name()) && entry.Name() != graderFile {
			replace[filepath.Join(dir, entry.Name())] = ""
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", false, err
	}
	overlay := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", false, err
	}
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return "", false, fmt.Errorf("find the go command: %w", err)
	}
	var out output
	status, err := guard.Exec(ctx, guard.Program{
		Path: goCommand,
		Args: []string{"test", "-c", "-vet=" + cmp.Or(e.Vet, "off"), "-ldflags=-s -w", "-tags", "exercise", "-overlay", overlay, "-o", program,
			"./" + filepath.ToSlash(relative(g.Catalogue.Dir, dir))},
		Dir: g.Catalogue.Dir,
		// The go command leaves its temporary files behind if it is killed.
		Env: append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS="+keptFlags(os.Getenv("GOFLAGS")), "GOTMPDIR="+scratch,
			"PWD="+g.Catalogue.Dir), // if a symbolic link leads there, the paths in the overlay have it
		Remove: scratch,
	}, &out)
	if ctx.Err() != nil {
		return "", false, context.Cause(ctx)
	}
	if err != nil {
		return "", false, fmt.Errorf("run the go command: %w", err)
	}
	if full := syscall.ENOSPC.Error(); status != 0 && strings.Contains(out.String(), full) {
		return "", false, fmt.Errorf("compile %s: %s; free some, and check again", e.Name, full)
	}
	if status != 0 {
		return tidyCompilerOutput(out.String(), relative(g.Catalogue.Dir, dir)), vetHeading.MatchString(out.String()), nil
	}
	if !exists(program) {
		return "There is no Go code in " + dir + ".", false, nil
	}
	return "", false, nil
}

// vetHeading is the line before what go vet complains about. The compiler's has no brackets.
var vetHeading = regexp.MustCompile(`(?m)^# \[`)

// keptFlags returns those of the flags in the variable GOFLAGS that decide which compiled packages the go command finds, as the
// ones in a bundle (package offline). Others, such as -mod or -race, could break the build.
func keptFlags(flags string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(flags), func(flag string) bool {
		return flag != "-trimpath" && flag != "-modcacherw"
	}), " ")
}
