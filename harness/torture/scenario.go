// Package torture runs a controller again and again through the same scenario, each time with something else
// going wrong on the wire, and says what came of it. It works on any controller that takes a kubeconfig.
package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/testinput"
)

// Scenario is what a controller is put through, and what may be expected of it. It is a YAML file.
type Scenario struct {
	// Controller is what is run when no command is given.
	Controller *Controller `json:"controller,omitempty"`
	// Outside are programs beside the cluster in which the controller makes something, by name.
	Outside map[string]Outside `json:"outside,omitempty"`
	// Manifests are files, or directories with a kustomization.yaml, relative to the scenario's file. They are
	// applied to a namespace of each run's own before the controller is started.
	Manifests []string `json:"manifests"`
	// Account is the ServiceAccount of the manifests whose rights the controller has; "" for an administrator.
	Account string `json:"account,omitempty"`
	// Resources are what counts of the world, by plural and group: pods, deployments.apps.
	Resources []string `json:"resources"`

	// Ready must hold before the controller is started.
	Ready []oracle.Condition `json:"ready,omitempty"`
	// Setup is what happens before it is started. After each of its steps, Ready must hold again.
	Setup []Step `json:"setup,omitempty"`
	// Steps are what happens then. After each, and at the start, it is waited until Converged holds.
	Steps []Step `json:"steps"`
	// Converged is when the controller has done its job.
	Converged []oracle.Condition `json:"converged"`
	// Patience is how long that may take, when something goes wrong, before the change counts as lost. 30s.
	Patience metav1.Duration `json:"patience,omitempty"`
	// Quiet is how long nothing must be written in the end. 2s.
	Quiet metav1.Duration `json:"quiet,omitempty"`

	// Says is what the controller must have printed in the end, for one that does nothing else.
	Says []string `json:"says,omitempty"`
	// Namespace is for a controller that only works in this one. Then there is one run at a time, and what the run
	// has made of Resources is deleted after it. "": each run has its own.
	Namespace string `json:"namespace,omitempty"`

	// Invariants must hold in every state, in the order of etcd.
	Invariants []oracle.Condition `json:"invariants,omitempty"`
	// MostTries is how often one object may be tried to be written, the same way, between two steps. 0: any.
	MostTries int `json:"mostTries,omitempty"`

	MayDiffer MayDiffer `json:"mayDiffer,omitempty"`
	// StopsWith is the status with which the controller ends at SIGTERM. -1: any, as for one that does not
	// handle it. 0.
	StopsWith int `json:"stopsWith,omitempty"`

	// Env names variables of our environment that the controller, and the programs outside, get too. They get none
	// of the others but those that say how programs run on this machine: see package environ.
	Env []string `json:"env,omitempty"`

	// MayExit is the status with which the controller may end by itself when it cannot even begin: when none of
	// its requests since its start was answered well. Then it is started again, as by a Deployment. 0: it must not.
	MayExit int `json:"mayExit,omitempty"`

	path      string
	mayDiffer []oracle.Path
}

// Controller is the program under test. Its arguments have {kubeconfig} and {namespace} in them.
type Controller = Program

// Program is a program that is built with the go command.
type Program struct {
	Module  string   `json:"module"`  // directory of a module, relative to the scenario's file
	Package string   `json:"package"` // its main package, or one that it requires
	Args    []string `json:"args"`
}

// Build builds the controller of the scenario, and returns its command.
func (s *Scenario) Build(ctx context.Context, progress io.Writer) ([]string, error) {
	if s.Controller == nil {
		return nil, errors.New("there is no controller in the scenario, so give its command after --")
	}
	sources := []string{"."}
	if !strings.HasPrefix(s.Controller.Package, ".") {
		sources = []string{"go.mod", "go.sum"}
	}
	program, err := gobuild.Build(ctx, gobuild.Program{
		Name: path.Base(s.Controller.Package), Dir: s.file(s.Controller.Module), Package: s.Controller.Package, Sources: sources,
	}, progress)
	return append([]string{program}, s.Controller.Args...), err
}

// MayDiffer is what need not be as in the undisturbed run.
type MayDiffer struct {
	// Fields in the end: "pods: spec.nodeName", where "*" is any part.
	Fields []string `json:"fields,omitempty"`
	// Writes are the beginnings of writes whose number may be another: "update foos/status"; and "needless",
	// the writes that could change nothing.
	Writes []string `json:"writes,omitempty"`
	// AtRest are the beginnings of writes that may come when nothing happens any more.
	AtRest []string `json:"atRest,omitempty"`
}

// Step is something that happens.
type Step struct {
	Name string `json:"name"`
	// When must hold before.
	When []oracle.Condition `json:"when,omitempty"`
	Do   []Action           `json:"do"`
	// GoOn is to go on with the next step without waiting.
	GoOn bool `json:"goOn,omitempty"`
}

// Action is one of these.
type Action struct {
	// Patch merges something into an object.
	Patch *Patch `json:"patch,omitempty"`
	// Apply makes an object, or changes what is different.
	Apply map[string]any `json:"apply,omitempty"`
	// Delete deletes an object.
	Delete *Reference `json:"delete,omitempty"`
	// Request changes something outside.
	Request *Request `json:"request,omitempty"`
	// Controller is "stop" or "start".
	Controller string `json:"controller,omitempty"`
	// Pause waits.
	Pause metav1.Duration `json:"pause,omitempty"`
}

// Reference names an object of the run's namespace.
type Reference struct {
	Resource string `json:"resource"` // plural and group, as in Scenario.Resources
	Name     string `json:"name,omitempty"`
	Selector string `json:"selector,omitempty"` // of labels, in place of a name: all of them
}

// Patch is a merge patch.
type Patch struct {
	Reference `json:",inline"`
	Merge     map[string]any `json:"merge"`
}

// Read reads a scenario.
func Read(file string) (*Scenario, error) {
	testinput.Declare(file)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the scenario: %w", err)
	}
	var s Scenario
	if err := yaml.UnmarshalStrict(text, &s); err != nil {
		return nil, fmt.Errorf("read the scenario %s: %w", file, err)
	}
	if s.path, err = filepath.Abs(file); err != nil {
		return nil, err
	}
	s.Patience.Duration = cmp.Or(s.Patience.Duration, 30*time.Second)
	s.Quiet.Duration = cmp.Or(s.Quiet.Duration, 2*time.Second)
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("the scenario %s: %w", file, err)
	}
	return &s, nil
}

func (s *Scenario) check() error {
	switch {
	case len(s.Resources) == 0:
		return errors.New("resources is empty; name what counts, such as pods")
	case len(s.Converged) == 0:
		return errors.New("converged is empty; say when the controller has done its job")
	case s.Patience.Duration < 0 || s.Quiet.Duration < 0:
		return errors.New("patience and quiet must not be negative")
	case s.MostTries < 0:
		return errors.New("mostTries must not be negative")
	}
	if err := s.checkOutside(); err != nil {
		return err
	}
	for i, plural := range s.plurals() {
		if slices.Contains(s.plurals()[:i], plural) {
			return fmt.Errorf("resources: there are two %s; the rules could not tell them apart", plural)
		}
	}
	for i, step := range slices.Concat(s.Setup, s.Steps) {
		if len(step.Do) == 0 {
			return fmt.Errorf("step %d: there is nothing in do", i+1)
		}
		for _, a := range step.Do {
			err := a.check()
			if err == nil && a.Request != nil {
				err = a.Request.check(s)
			}
			if err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
		}
	}
	for _, manifest := range s.Manifests {
		testinput.Declare(s.file(manifest))
		if _, err := os.Stat(s.file(manifest)); err != nil {
			return fmt.Errorf("manifests: %w", err)
		}
	}
	for _, text := range s.MayDiffer.Fields {
		path, err := oracle.ParsePath(text)
		if err != nil {
			return fmt.Errorf("mayDiffer.fields: %w", err)
		}
		s.mayDiffer = append(s.mayDiffer, path)
	}
	_, err := s.compile()
	return err
}

func (a Action) check() error {
	count := 0
	for _, is := range []bool{a.Patch != nil, a.Apply != nil, a.Delete != nil, a.Request != nil, a.Controller != "", a.Pause.Duration != 0} {
		if is {
			count++
		}
	}
	switch {
	case count != 1:
		return errors.New("each entry of do is one of patch, apply, delete, request, controller, pause")
	case a.Controller != "" && a.Controller != "stop" && a.Controller != "start":
		return fmt.Errorf("controller is %q; it must be stop or start", a.Controller)
	}
	for _, r := range []*Reference{a.Delete, a.reference()} {
		if r != nil && (r.Resource == "" || (r.Name == "") == (r.Selector == "")) {
			return errors.New("patch and delete need a resource, and either a name or a selector")
		}
	}
	return nil
}

func (a Action) reference() *Reference {
	if a.Patch == nil {
		return nil
	}
	return &a.Patch.Reference
}

func (s *Scenario) file(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(s.path), name)
}

// Source is the directory of the controller's module.
func (s *Scenario) Source() string { return s.file(s.Controller.Module) }

// plurals are the resources without their groups.
func (s *Scenario) plurals() []string {
	var plurals []string
	for _, r := range s.Resources {
		plural, _, _ := strings.Cut(r, ".")
		plurals = append(plurals, plural)
	}
	return plurals
}

// variables are what rules see as lists.
func (s *Scenario) variables() []string {
	variables := s.plurals()
	for name, o := range s.Outside {
		for _, resource := range o.Resources {
			variables = append(variables, variable(name, resource))
		}
	}
	return variables
}

// rules are the conditions, understood.
type rules struct {
	ready, converged, invariants *oracle.Rules
	setup, when                  []*oracle.Rules // by step
}

func (s *Scenario) compile() (r rules, err error) {
	read := func(what string, conditions []oracle.Condition) *oracle.Rules {
		rules, readErr := oracle.NewRules(s.variables(), conditions)
		if readErr != nil && err == nil {
			err = fmt.Errorf("%s: %w", what, readErr)
		}
		return rules
	}
	r.ready, r.converged, r.invariants = read("ready", s.Ready), read("converged", s.Converged), read("invariants", s.Invariants)
	for _, step := range s.Setup {
		r.setup = append(r.setup, read(fmt.Sprintf("setup %q", step.Name), step.When))
	}
	for _, step := range s.Steps {
		r.when = append(r.when, read(fmt.Sprintf("step %q", step.Name), step.When))
	}
	return r, err
}
