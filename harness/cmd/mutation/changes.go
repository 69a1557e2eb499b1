package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// changes returns the lines of the files below a directory that are not as they were in a commit, by the files' paths relative
// to that directory. Files that git does not track have changed as a whole.
func changes(ctx context.Context, dir, since string) (map[string][]lineRange, error) {
	diff, err := git(ctx, dir, "diff", "--unified=0", "--relative", "--no-prefix", "--no-color", "--no-ext-diff", "--diff-filter=d", since, "--", ".")
	if err != nil {
		return nil, err
	}
	changed := parseDiff(diff)
	untracked, err := git(ctx, dir, "ls-files", "--others", "--exclude-standard", "--", ".")
	if err != nil {
		return nil, err
	}
	for path := range strings.Lines(untracked) {
		changed[strings.TrimSuffix(path, "\n")] = []lineRange{everyLine}
	}
	return changed, nil
}

// hunk is the head of a piece of a diff; the groups are the first line after the change, and how many there are if not one.
var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// parseDiff returns the lines that a diff without context adds, by the files' paths.
func parseDiff(diff string) map[string][]lineRange {
	changed := map[string][]lineRange{}
	path := ""
	inHead := false // of a file: what follows may begin like a head, too
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "diff --git ") {
			inHead = true
		}
		if name, ok := strings.CutPrefix(line, "+++ "); ok && inHead {
			path = strings.TrimSuffix(name, "\t") // which git adds to a name with spaces
		}
		parts := hunk.FindStringSubmatch(line)
		if parts == nil {
			continue
		}
		inHead = false
		first, _ := strconv.Atoi(parts[1]) // digits, as are the others
		count := 1
		if parts[2] != "" {
			count, _ = strconv.Atoi(parts[2])
		}
		if count > 0 {
			changed[path] = append(changed[path], lineRange{first, first + count - 1})
		}
	}
	return changed
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.quotePath=false"}, args...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s, in %s: %w: %s", args[0], dir, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
