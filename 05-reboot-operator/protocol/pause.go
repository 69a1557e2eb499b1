package protocol

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Pause is one reason why no Node is admitted, in the ledger. There may be several: a person's, a monitoring system's, and a
// storage system's, say, each of whom ends only its own.
type Pause struct {
	Name string // of who paused; "" for the administrator's switch, which has no name
	Why  string // may be empty
}

// String returns the pause in a few words, for a sentence that says that reboots are paused.
func (p Pause) String() string {
	switch {
	case p.Name == "":
		return "reboots are paused"
	case p.Why == "":
		return "reboots are paused by " + p.Name
	}
	return fmt.Sprintf("reboots are paused by %s: %s", p.Name, p.Why)
}

// Describe says who has paused all reboots, and what resumes them. There is at least one pause.
func Describe(pauses []Pause) string {
	if len(pauses) == 1 {
		return fmt.Sprintf("%s; %q resumes them", pauses[0], pauses[0].Resume())
	}
	var texts []string
	for _, pause := range pauses {
		texts = append(texts, fmt.Sprintf("%s; %q ends that", pause, pause.Resume()))
	}
	return strings.Join(texts, ", and ")
}

// Resume returns the command that ends the pause.
func (p Pause) Resume() string {
	if p.Name == "" {
		return "kubectl reboot resume"
	}
	return "kubectl reboot resume --by " + p.Name
}

// Validate returns an error if the ledger cannot hold the pause.
func (p Pause) Validate() error {
	if p.Name == "" && p.Why != "" {
		return errors.New("--reason needs --by, the name of who pauses")
	}
	if on, err := strconv.ParseBool(p.Why); err == nil && !on {
		return fmt.Errorf("--reason is %q, which would not pause; say why in words", p.Why)
	}
	if problems := validation.IsConfigMapKey(p.key()); len(problems) > 0 {
		return fmt.Errorf("--by is %q; it may have letters, digits, \"-\", \"_\" and \".\"", p.Name)
	}
	return nil
}

// nameless is the name of the pause whose key has none after the dot. It is somebody's mistake, and pauses all the same.
const nameless = "."

// key is the pause's key in the data of the ledger.
func (p Pause) key() string {
	if p.Name == "" {
		return PausedKey
	}
	return PausedKey + "." + strings.TrimPrefix(p.Name, nameless)
}

// PausesOf returns the pauses in a ledger, ordered by their names. A value that is not a boolean was meant to change something,
// so it pauses: a rollout that waits does less harm than one that continues although somebody wanted to stop it.
func PausesOf(configMap *corev1.ConfigMap) []Pause {
	var pauses []Pause
	for key, value := range configMap.Data {
		name, named := strings.CutPrefix(key, PausedKey+".")
		if !named && key != PausedKey {
			continue
		}
		on, err := strconv.ParseBool(value)
		switch {
		case err == nil && !on:
			continue
		case !named:
			name, value = "", ""
		case name == "":
			name = nameless
		}
		if err == nil {
			value = ""
		}
		pauses = append(pauses, Pause{Name: name, Why: strings.Join(strings.Fields(value), " ")})
	}
	slices.SortFunc(pauses, func(a, b Pause) int { return strings.Compare(a.Name, b.Name) })
	return pauses
}
