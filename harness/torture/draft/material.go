package draft

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// material is what the controller needs and works on.
type material struct {
	manifests []string // files, in order
	account   string   // the name of a ServiceAccount; "" for an administrator's rights
	home      string   // the namespace that the ServiceAccount names, or ""
	samples   []*unstructured.Unstructured

	definitions map[string][]string // of the files that were only found: the resources that they define
	rbac        map[string]bool     // files that were only found, with the rights of the account
	isFound     bool                // the samples were only found
}

// gather reads what was given, and looks for what is missing. render returns the objects of manifests, as kustomize makes them.
func (d *drafter) gather(render func(files []string) ([]*unstructured.Unstructured, error)) error {
	for _, file := range d.Manifests {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("--manifest: %w", err)
		}
	}
	given, err := render(d.Manifests)
	if err != nil {
		return fmt.Errorf("--manifest: %w", err)
	}
	d.given.manifests = slices.Clone(d.Manifests)
	for _, file := range d.Samples {
		objects, err := readObjects(file)
		if err != nil {
			return fmt.Errorf("--sample: %w", err)
		}
		if slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Secret" }) {
			// Its values stay in its file.
			d.given.manifests = append(d.given.manifests, file)
			d.note("%s has a Secret, so it is applied before the controller starts: its values stay out of the scenario.", file)
			continue
		}
		for _, o := range objects {
			if o.GetName() == "" {
				return fmt.Errorf("--sample: a %s in %s has no name", o.GetKind(), file)
			}
		}
		d.given.samples = append(d.given.samples, objects...)
	}
	d.given.definitions, d.given.rbac = map[string][]string{}, map[string]bool{}
	if d.Account != "none" {
		d.given.account = d.Account
	}
	found := map[string][]*unstructured.Unstructured{}
	if d.Search != "" {
		found = search(d.Search)
	}
	d.findDefinitions(given, found)
	if err := d.findAccount(given, found); err != nil {
		return err
	}
	d.findSamples(given, found)
	return nil
}

// findDefinitions adds files with CustomResourceDefinitions that no given manifest has.
func (d *drafter) findDefinitions(given []*unstructured.Unstructured, found map[string][]*unstructured.Unstructured) {
	known := map[string]bool{}
	for _, o := range given {
		known[o.GetKind()+" "+o.GetName()] = true
	}
	for _, file := range slices.Sorted(maps.Keys(found)) {
		var defined []string
		for _, o := range found[file] {
			if o.GetKind() != "CustomResourceDefinition" || known["CustomResourceDefinition "+o.GetName()] {
				defined = nil
				break // a file with other things in it is for the person to choose
			}
			defined = append(defined, o.GetName())
		}
		for _, name := range defined {
			known["CustomResourceDefinition "+name] = true
		}
		if len(defined) > 0 {
			d.given.manifests = append(d.given.manifests, file)
			d.given.definitions[file] = defined
		}
	}
}

// findAccount finds out with whose rights the controller runs.
func (d *drafter) findAccount(given []*unstructured.Unstructured, found map[string][]*unstructured.Unstructured) error {
	if d.Account != "" {
		return nil
	}
	accounts := accountsIn(given)
	if len(accounts) == 0 {
		files := map[string]bool{}
		for file, objects := range found {
			isRBAC := len(objects) > 0
			for _, o := range objects {
				isRBAC = isRBAC && (o.GetKind() == "ServiceAccount" || o.GroupVersionKind().Group == "rbac.authorization.k8s.io")
			}
			if isRBAC {
				files[file] = true
				accounts = append(accounts, accountsIn(objects)...)
			}
		}
		if len(accounts) != 1 { // a person has to say which
			return nil
		}
		d.given.rbac = files
		d.given.manifests = append(d.given.manifests, slices.Sorted(maps.Keys(files))...)
		d.say("the rights of the ServiceAccount %s, found in %s", path.Base(accounts[0]), strings.Join(slices.Sorted(maps.Keys(files)), ", "))
	}
	if len(accounts) > 1 {
		for i := range accounts {
			accounts[i] = strings.TrimPrefix(accounts[i], "/")
		}
		return fmt.Errorf("the manifests have %d ServiceAccounts: %s; say with whose rights the controller runs, with --account", len(accounts), strings.Join(accounts, ", "))
	}
	if len(accounts) == 1 {
		d.given.home, d.given.account, _ = strings.Cut(accounts[0], "/")
	}
	return nil
}

// accountsIn returns the ServiceAccounts among objects, each as NAMESPACE/NAME; /NAME if it names no namespace.
func accountsIn(objects []*unstructured.Unstructured) (names []string) {
	for _, o := range objects {
		if o.GetKind() == "ServiceAccount" {
			names = append(names, o.GetNamespace()+"/"+o.GetName())
		}
	}
	return names
}

// accountIn returns the account as a scenario of this scope names it. Otherwise than in the run's namespace, objects stay in those that they
// name.
func (m material) accountIn(scope string) string {
	if scope != "" && m.home != "" {
		return m.home + "/" + m.account
	}
	return m.account
}

// findSamples adds one object of each kind that is defined, from files that are named as samples or examples.
func (d *drafter) findSamples(given []*unstructured.Unstructured, found map[string][]*unstructured.Unstructured) {
	if len(d.given.samples) > 0 {
		return
	}
	defined := map[string]bool{} // by group and kind
	for file := range d.given.definitions {
		given = append(given, found[file]...)
	}
	for _, o := range given {
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		if o.GetKind() == "CustomResourceDefinition" {
			defined[kind+"."+group] = true
		}
	}
	for _, file := range slices.Sorted(maps.Keys(found)) {
		if lower := strings.ToLower(file); !strings.Contains(lower, "sample") && !strings.Contains(lower, "example") {
			continue
		}
		for _, o := range found[file] {
			kind := o.GroupVersionKind().GroupKind().String()
			if defined[kind] && o.GetName() != "" {
				delete(defined, kind)
				d.given.samples, d.given.isFound = append(d.given.samples, o), true
				d.say("a sample, found in %s: %s %s", file, o.GetKind(), o.GetName())
			}
		}
	}
}

// without returns the manifests, without those that were only found and define nothing that is asked for.
func (m material) without(isAsked func(definition string) bool) (kept []string) {
	for _, file := range m.manifests {
		if defined, found := m.definitions[file]; !found || slices.ContainsFunc(defined, isAsked) {
			kept = append(kept, file)
		}
	}
	return kept
}

// withoutAccount returns the material without rights that were only found.
func (m material) withoutAccount() material {
	m.manifests = slices.DeleteFunc(slices.Clone(m.manifests), func(file string) bool { return m.rbac[file] })
	m.account, m.rbac = "", nil
	return m
}

// The limits of search.
const (
	maxDepth, maxFiles = 6, 3000
	maxSize            = 2 << 20
)

// skipped are directories that hold what others use, or what is made for tests.
var skipped = []string{"vendor", "node_modules", "testdata", "test", "tests", "e2e", "templates", "third_party"}

// search returns the objects of the YAML files below a directory, by file. What cannot be read, such as a template, is left out.
func search(root string) map[string][]*unstructured.Unstructured {
	found := map[string][]*unstructured.Unstructured{}
	files := 0
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // others may be readable
		}
		if entry.IsDir() {
			isHidden := strings.HasPrefix(entry.Name(), ".") && path != root
			if depth := strings.Count(strings.TrimPrefix(path, root), string(filepath.Separator)); isHidden || depth > maxDepth || slices.Contains(skipped, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if files++; files > maxFiles {
			return filepath.SkipAll
		}
		if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" {
			return nil
		}
		if objects, err := readObjects(path); err == nil && len(objects) > 0 {
			found[path] = objects
		}
		return nil
	})
	return found
}

// readObjects reads the objects of a YAML file.
func readObjects(file string) (objects []*unstructured.Unstructured, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, maxSize)
	}
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := documents.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		case object.GetKind() != "" && object.GetAPIVersion() != "":
			objects = append(objects, object)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
