package view

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// leastFamily is how many objects with generated names are drawn as one, until somebody wants to see each.
const leastFamily = 6

// generated is the end of a name that the API server or a controller has made up: five characters of the alphabet of
// k8s.io/apimachinery/pkg/util/rand, after the hash of a template if there is one.
var generated = regexp.MustCompile(`^(.+?)(-[a-f0-9]{7,10}|-[bcdfghjklmnpqrstvwxz2456789]{7,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}$`)

// numbered is the end of a name that counts.
var numbered = regexp.MustCompile(`^(.*[^0-9])[0-9]+$`)

// leastNumbered is how many objects whose names only differ in a number are drawn as one.
const leastNumbered = 12

// families finds the lanes that are drawn as one.
func (b *builder) families() {
	find := func(pattern *regexp.Regexp, least int) {
		members := map[laneKey][]int{}
		for i, l := range b.model.Lanes {
			if match := pattern.FindStringSubmatch(l.Name); match != nil && l.Family == "" {
				key := laneKey{l.Resource, strings.TrimSuffix(match[1], "-")}
				members[key] = append(members[key], i)
			}
		}
		for key, lanes := range members {
			if len(lanes) < least {
				continue
			}
			for _, i := range lanes {
				b.model.Lanes[i].Family = key.name + "-*"
			}
		}
	}
	find(generated, leastFamily)
	find(numbered, leastNumbered)
}

// compareNames sorts node-2 before node-10.
func compareNames(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		xs, ys := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if order := cmp.Or(cmp.Compare(len(xs), len(ys)), cmp.Compare(xs, ys), cmp.Compare(len(x), len(y))); order != 0 {
			return order
		}
		a, b = a[len(x):], b[len(y):]
	}
	return cmp.Compare(len(a), len(b))
}

// digits returns the digits that text begins with.
func digits(text string) string {
	return text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}
