package torture

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.com/controllers/harness/oracle"
)

// unfit says how the runs without faults differ in what must be the same, and what to put into the scenario if it need not be;
// nil if they do not differ. mayDiffer are the writes that come a different number of times already.
func (b *Baseline) unfit(mayDiffer []string) *UnfitError {
	uneven := slices.DeleteFunc(b.Expected.Uneven(mayDiffer), b.isExplained)
	var message strings.Builder
	if len(b.differences) > 0 {
		message.WriteString("runs without faults end differently:\n")
		for _, d := range b.differences {
			fmt.Fprintf(&message, "  %s\n", d)
		}
	}
	if len(uneven) > 0 {
		message.WriteString("in runs without faults, objects come and go a different number of times:\n")
		for _, what := range uneven {
			fmt.Fprintf(&message, "  %s: %s times\n", what, b.Expected.Changes[what])
		}
	}
	if message.Len() == 0 {
		return nil
	}
	names := b.differingNames()
	differs := MayDiffer{Fields: b.differingFields(), Names: names, Writes: named(b.withWrites(uneven), names)}
	allowed := ""
	for _, list := range []struct {
		key  string
		what []string
	}{{"fields", differs.Fields}, {"names", differs.Names}, {"writes", differs.Writes}} {
		if len(list.what) > 0 {
			allowed += fmt.Sprintf("  %s:\n", list.key)
		}
		for _, what := range list.what {
			allowed += fmt.Sprintf("  - %q\n", what)
		}
	}
	if allowed != "" {
		message.WriteString("If that may be, put this into the scenario:\nmayDiffer:\n" + allowed)
	}
	return &UnfitError{Verdict: Different, Differs: differs, message: strings.TrimSuffix(message.String(), "\n")}
}

// withWrites returns creations and deletions, each with the controller's write that it comes of, if it comes of one: whoever lets the one
// differ has to let the other.
func (b *Baseline) withWrites(changes []string) (all []string) {
	verbs := map[string]string{"added": "create", "deleted": "delete"}
	for _, change := range changes {
		all = append(all, change)
		words := strings.SplitN(change, " ", 3) // such as: added pods web-*
		if len(words) < 3 {
			continue
		}
		for _, write := range slices.Sorted(maps.Keys(b.Expected.Did)) {
			of := strings.SplitN(write, " ", 3) // such as: create pods web-*
			if len(of) < 3 {
				continue
			}
			resource, _, _ := strings.Cut(of[1], ".")
			if of[0] == verbs[words[0]] && resource == words[1] && of[2] == words[2] {
				all = append(all, write)
			}
		}
	}
	return all
}

// isExplained reports whether a creation or deletion is of an object that is not there at the end of each run.
func (b *Baseline) isExplained(what string) bool {
	return slices.ContainsFunc(b.differences, func(d oracle.Difference) bool {
		return d.Kind != oracle.Changed && strings.HasSuffix(what, " "+d.Resource+" "+d.Name)
	})
}

// differingFields returns the fields that differ as [oracle.ParsePath] reads them: of one object, if it is not the only one of
// its resource, or else of all.
func (b *Baseline) differingFields() []string {
	names := map[string]map[string]bool{} // of the objects in which a field differs
	for _, d := range b.differences {
		for _, f := range d.Fields {
			path := d.Resource + ": " + f.Path
			if names[path] == nil {
				names[path] = map[string]bool{}
			}
			names[path][d.Name] = true
		}
	}
	all := b.names()
	var fields []string
	for path, differs := range names {
		resource, field, _ := strings.Cut(path, ":")
		if len(differs) == 1 && len(all[resource]) > 1 {
			path = resource + "/" + slices.Collect(maps.Keys(differs))[0] + ":" + field
		}
		fields = append(fields, path)
	}
	slices.Sort(fields)
	return fields
}

// names returns the names of the objects at the end of the first run, by resource.
func (b *Baseline) names() map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, text := range b.end {
		resource, data, _ := strings.Cut(text, " ")
		var object struct{ Metadata struct{ Name string } }
		if json.Unmarshal([]byte(data), &object) != nil {
			continue // oracle.Normalize has written it
		}
		if all[resource] == nil {
			all[resource] = map[string]bool{}
		}
		all[resource][object.Metadata.Name] = true
	}
	return all
}

// differingNames returns patterns for the objects that have another name in each run, as [oracle.ParseNamePattern] reads them: one for each
// object that is missing and the unexpected one whose name is most like it. If objects are only missing, or only unexpected, it is not their
// names that differ.
func (b *Baseline) differingNames() []string {
	names := map[string]map[oracle.DifferenceKind][]string{}
	for _, d := range b.differences {
		if names[d.Resource] == nil {
			names[d.Resource] = map[oracle.DifferenceKind][]string{}
		}
		names[d.Resource][d.Kind] = append(names[d.Resource][d.Kind], d.Name)
	}
	var patterns []string
	for resource, of := range names {
		for _, missing := range of[oracle.Missing] {
			like := ""
			for _, unexpected := range of[oracle.Unexpected] {
				like = longest(like, commonPrefix([]string{missing, unexpected}))
			}
			if len(of[oracle.Unexpected]) > 0 {
				patterns = append(patterns, resource+": "+like+"*")
			}
		}
	}
	slices.Sort(patterns)
	return slices.Compact(patterns)
}

// longest returns the longer one of two texts.
func longest(a, b string) string {
	if len(b) > len(a) {
		return b
	}
	return a
}

// named returns kinds of writes in which a name that one of the patterns matches is that pattern.
func named(writes, patterns []string) (all []string) {
	for _, write := range writes {
		words := strings.SplitN(write, " ", 3) // such as: added pods web-1
		for _, pattern := range patterns {
			resource, beginning, _ := strings.Cut(strings.TrimSuffix(pattern, "*"), ": ")
			if len(words) == 3 && strings.TrimSuffix(resourceName(words[1]), "/status") == resource && strings.HasPrefix(words[2], beginning) {
				words[2] = beginning + "*"
				break
			}
		}
		all = append(all, strings.Join(words, " "))
	}
	return slices.Compact(all)
}

// resourceName returns the plural of a resource that is qualified by its group.
func resourceName(qualified string) string {
	name, _, _ := strings.Cut(qualified, ".")
	return name
}

// commonPrefix returns the longest text with which all texts begin.
func commonPrefix(texts []string) string {
	prefix := texts[0]
	for _, text := range texts {
		for !strings.HasPrefix(text, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return prefix
}
