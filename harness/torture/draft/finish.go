package draft

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/controllers/harness/torture"
)

// maxBaselines is how often what differs between runs is added to the scenario.
const maxBaselines = 6

// finish writes the file, and runs the scenario without faults until that shows nothing new.
func (d *drafter) finish(ctx context.Context) (*Result, error) {
	d.scenario.account = d.given.accountIn(d.scenario.scope)
	d.scenario.patience = d.patience()
	result := &Result{File: d.File, Steps: len(d.scenario.steps), Notes: d.notes, Ports: d.listening}
	for round := 1; ; round++ {
		kept, err := d.write()
		if err != nil {
			return nil, err
		}
		result.Kept = kept
		if round == 1 {
			d.say("wrote %s; now runs without faults show whether it comes to the same each time", d.File)
		} else {
			d.say("it did not; wrote what differs to mayDiffer in %s, and once more", d.File)
		}
		scenario, err := torture.Read(d.File)
		if err != nil {
			return nil, err
		}
		parallel := 0
		if len(d.listening) > 0 {
			parallel = 1
		}
		baseline, err := d.lab.Learn(ctx, torture.Options{Scenario: scenario, Commands: torture.Single(d.Command...), Parallel: parallel, Progress: d.Progress})
		unfit := (*torture.UnfitError)(nil)
		if errors.As(err, &unfit) && !unfit.Differs.IsEmpty() && round < maxBaselines && !slices.Contains(kept, "mayDiffer") {
			d.scenario.mayDiffer = d.scenario.mayDiffer.With(unfit.Differs)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s is written, and does not fit yet: %w", d.File, err)
		}
		result.Runs = baseline.Runs
		return result, nil
	}
}

// header begins the file.
const header = "# Written by workshop torture init. What you change stays when that runs again: it writes the parts anew that are as it left them.\n\n"

// sums matches the last line of the file: which parts are as they were written.
var sums = regexp.MustCompile(`(?m)^# init: (.*)\n?\z`)

// patience returns for how long the controller may take; 0 for the usual time.
func (d *drafter) patience() time.Duration {
	const usual, collector = 30 * time.Second, time.Minute
	patience := (4 * d.slowest).Round(10 * time.Second)
	if d.hasOwners && patience < collector {
		// The garbage collector looks for new resources every 30 s. It knows those of this control plane by now, and not those of the next.
		patience = collector
	}
	if patience <= usual {
		return 0
	}
	return patience
}

// relative returns the path of a file as the scenario names it.
func (d *drafter) relative(path string) string {
	absolute, err := filepath.Abs(path)
	base, baseErr := filepath.Abs(filepath.Dir(d.File))
	if err != nil || baseErr != nil {
		return path
	}
	if short, err := filepath.Rel(base, absolute); err == nil {
		return short
	}
	return absolute
}

// write writes the scenario's file. kept are the parts that a person has written or changed, which stay.
func (d *drafter) write() (kept []string, err error) {
	var text strings.Builder
	text.WriteString(header)
	var fresh []string
	for _, s := range combine(d.byHand, d.scenario.sections(d.relative)) {
		text.WriteString(strings.TrimSuffix(s.text, "\n") + "\n")
		if _, is := d.byHand.of(s.key); is {
			kept = append(kept, s.key)
		} else {
			fresh = append(fresh, s.key+"="+sum(s.text))
		}
	}
	text.WriteString("# init: " + strings.Join(fresh, " ") + "\n")
	return kept, replace(d.File, text.String())
}

// sections are parts of a file, in order.
type sections []section

// of returns the part with a key.
func (all sections) of(key string) (found section, ok bool) {
	at := slices.IndexFunc(all, func(s section) bool { return s.key == key })
	if at < 0 {
		return found, false
	}
	return all[at], true
}

func (all sections) without(keys ...string) sections {
	return slices.DeleteFunc(slices.Clone(all), func(s section) bool { return slices.Contains(keys, s.key) })
}

// combine returns the parts that are written, but those of a person as they are, and after them those that only the person has.
func combine(byHand sections, written []section) (all []section) {
	for _, s := range written {
		if own, is := byHand.of(s.key); is {
			s = own
		}
		all = append(all, s)
	}
	for _, s := range byHand {
		if _, is := sections(written).of(s.key); !is {
			all = append(all, s)
		}
	}
	return all
}

// readOld returns the parts of a scenario's file that are not as an earlier call has left them; none if there is no file.
func readOld(file string) (byHand sections, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return changedByHand(string(text)), nil
}

func changedByHand(text string) (byHand sections) {
	written := map[string]string{}
	if match := sums.FindStringSubmatch(text); match != nil {
		for _, one := range strings.Fields(match[1]) {
			key, sum, _ := strings.Cut(one, "=")
			written[key] = sum
		}
		text = sums.ReplaceAllString(text, "")
	}
	for _, s := range split(strings.TrimPrefix(text, header)) {
		if written[s.key] != sum(s.text) {
			byHand = append(byHand, s)
		}
	}
	return byHand
}

func sum(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.TrimSpace(text))))[:12]
}

var topLevel = regexp.MustCompile(`^([a-zA-Z]+):`)

// split returns the parts of a file: each top-level key with the comments before it.
func split(text string) (all []section) {
	pending := "" // comments, which belong to what follows
	for line := range strings.Lines(text) {
		switch match := topLevel.FindStringSubmatch(line); {
		case match != nil:
			all = append(all, section{match[1], pending + line})
			pending = ""
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
			pending += line
		case len(all) > 0:
			all[len(all)-1].text += pending + line
			pending = ""
		}
	}
	if len(all) > 0 && strings.TrimSpace(pending) != "" {
		all[len(all)-1].text += pending
	}
	return all
}

// replace writes a file as a whole, or not at all.
func replace(file, text string) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = temporary.WriteString(text)
	err = errors.Join(err, temporary.Chmod(0o644), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(temporary.Name()))
	}
	return err
}
