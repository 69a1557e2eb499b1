package torture

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/machine"
	"example.com/controllers/harness/oracle"
	"example.com/controllers/harness/testinput"
)

// Scenario describes what happens to a controller's objects, and what is expected of the controller. It is read from a
// YAML file. In steps and conditions, {namespace} is replaced by the namespace of the run.
type Scenario struct {
	// Controller is the program to run if no command is given.
	Controller *Controller `json:"controller,omitempty"`
	// Programs are the programs to run, by name, if they are several: a controller and an agent, for example. There is
	// no Controller then. Each instance of them has a proxy of its own.
	Programs map[string]Controller `json:"programs,omitempty"`
	// Scope is "cluster" for programs that act on more than one namespace, or on objects without a namespace. Each run has
	// a control plane of its own then, and rules see the objects of all namespaces but those of Kubernetes itself.
	// Default: "namespace".
	Scope string `json:"scope,omitempty"`
	// Nodes is how many simulated nodes the control plane of a run has, with Scope "cluster". Default: 3.
	Nodes int `json:"nodes,omitempty"`
	// Outside are programs outside of the cluster in which the controller creates something, by name.
	Outside map[string]Outside `json:"outside,omitempty"`
	// Manifests are files, or directories with a kustomization.yaml, relative to the scenario's file. They are applied to
	// the namespace of each run before the controller is started.
	Manifests []string `json:"manifests"`
	// Account is the ServiceAccount, from the manifests, with whose rights the programs run; "" for an administrator's.
	// One in another namespace than the run's is NAMESPACE/NAME.
	Account string `json:"account,omitempty"`
	// Resources are those whose objects count, by plural and group: pods, deployments.apps.
	Resources []string `json:"resources"`

	// Ready must hold before the controller is started.
	Ready []oracle.Condition `json:"ready,omitempty"`
	// Setup are steps that are taken before the controller is started. Ready must hold again after each.
	Setup []Step `json:"setup,omitempty"`
	// Steps are taken while the controller runs. After its start, and after each step, Converged must come to hold.
	Steps []Step `json:"steps"`
	// Converged holds when the controller has done its job.
	Converged []oracle.Condition `json:"converged"`
	// Patience is how long the controller may take to converge, faults included. Default: 30s.
	Patience metav1.Duration `json:"patience,omitempty"`
	// Quiet is how long the controller must not write anything at the end. Default: 2s.
	Quiet metav1.Duration `json:"quiet,omitempty"`

	// Says are texts that the controller must have printed at the end, if printing is its job.
	Says []string `json:"says,omitempty"`
	// Namespace is for a controller that works in this namespace only. There is one run at a time then, and the objects
	// of Resources that it has created are deleted after it, with those of Manifests and whatever their finalizers are.
	// Default: a namespace for each run. With Scope "cluster", it is the namespace of objects that name none, "torture" by
	// default.
	Namespace string `json:"namespace,omitempty"`

	// Invariants must hold in every state, in the order in which etcd committed them. After a restart of the API server,
	// those that name change are checked again from the second known state on.
	Invariants []oracle.Condition `json:"invariants,omitempty"`
	// MostTries is how often the controller may attempt the same write to one object between two steps. Default: any
	// number.
	MostTries int `json:"mostTries,omitempty"`

	MayDiffer MayDiffer `json:"mayDiffer,omitempty"`
	// StopsWith is the exit status of the controller after SIGTERM; -1 for any. Default: 0.
	StopsWith int `json:"stopsWith,omitempty"`
	// Drains says that the controller promises to finish its requests in flight after SIGTERM. Without it, a request
	// that it gives up is a note in the report. No controller that is built with controller-runtime drains.
	Drains bool `json:"drains,omitempty"`

	// Env names variables of the caller's environment that the controller and the programs outside get too. They get no
	// others but those that say how programs run on this machine: see package environ.
	Env []string `json:"env,omitempty"`

	// MayExit is the exit status with which the controller may end by itself after a request has failed, as long as it
	// has not written anything since its start. It is started again then, as by a Deployment. Default: it must not end.
	MayExit int `json:"mayExit,omitempty"`

	path      string
	mayDiffer []oracle.Path
	names     []oracle.NamePattern
}

// Controller is a program under test. {kubeconfig}, {server}, {namespace}, {replica}, {node}, {port} and {dir} are replaced in its
// arguments and in Env: by the path of its kubeconfig, the URL of the API server in it, the namespace of the run, the number of the
// replica from 1, the Node that it runs on, a port that no other program listens on, another one at each place, and the directory of the
// scenario's file. With EachNode and Scope "cluster", {reboot} is replaced too: by a command, its words separated by spaces, that
// reboots the program's machine. Its requests are not recorded.
type Controller struct {
	Program `json:",inline"`
	// Account is used in place of Scenario.Account.
	Account string `json:"account,omitempty"`
	// Env is added to the program's environment.
	Env map[string]string `json:"env,omitempty"`
	// Replicas is how many there are. Default: 1.
	Replicas int `json:"replicas,omitempty"`
	// EachNode says that there is one on each machine of the cluster, as in a DaemonSet. It is killed when the machine's
	// power goes off, and started when it is on. The token of its account is bound to its Node.
	EachNode bool `json:"eachNode,omitempty"`
}

// Commands are the commands of the programs under test, by name. A single one is called "controller".
type Commands map[string][]string

// Single returns the command of a single controller.
func Single(command ...string) Commands { return Commands{onlyProgram: command} }

// onlyProgram is the name of the program in a scenario with a single one.
const onlyProgram = "controller"

// programs returns the programs under test by name.
func (s *Scenario) programs() map[string]Controller {
	switch {
	case len(s.Programs) > 0:
		return s.Programs
	case s.Controller != nil:
		return map[string]Controller{onlyProgram: *s.Controller}
	}
	return map[string]Controller{onlyProgram: {}} // its command is given
}

// isCluster reports whether each run has a control plane of its own.
func (s *Scenario) isCluster() bool { return s.Scope == "cluster" }

// Program is a program that the go command builds.
type Program struct {
	Module  string   `json:"module"`  // directory of a module, relative to the scenario's file
	Package string   `json:"package"` // a main package of it, or of a module that it requires
	Args    []string `json:"args"`
}

// Build builds the programs of the scenario, and returns their commands.
func (s *Scenario) Build(ctx context.Context, progress io.Writer) (Commands, error) {
	if s.Controller == nil && len(s.Programs) == 0 {
		return nil, errors.New("the scenario names no controller; give its command after --")
	}
	commands := Commands{}
	for name, program := range s.programs() {
		path, err := gobuild.Build(ctx, s.source(program.Program), progress)
		if err != nil {
			return nil, err
		}
		commands[name] = append([]string{path}, program.Args...)
	}
	return commands, nil
}

// source says how to build a program.
func (s *Scenario) source(p Program) gobuild.Program {
	sources := []string{"."}
	if !p.isOwn() {
		sources = []string{"go.mod", "go.sum"}
	}
	return gobuild.Program{Name: path.Base(p.Package), Dir: s.file(p.Module), Package: p.Package, Sources: sources}
}

// Sources says how to build all programs that the scenario names, those outside of the cluster too.
func (s *Scenario) Sources() (sources []gobuild.Program) {
	for _, p := range s.Programs {
		sources = append(sources, s.source(p.Program))
	}
	if s.Controller != nil {
		sources = append(sources, s.source(s.Controller.Program))
	}
	for _, o := range s.Outside {
		sources = append(sources, s.source(o.Program))
	}
	return sources
}

// Files returns the scenario's file, and the files and directories of its manifests.
func (s *Scenario) Files() []string { return append([]string{s.path}, s.manifestPaths()...) }

// isOwn reports whether the program is a package of its module, not of one that this requires.
func (p Program) isOwn() bool { return strings.HasPrefix(p.Package, ".") }

// MayDiffer is what may differ from runs without faults.
type MayDiffer struct {
	// Fields of the objects at the end: "pods: spec.nodeName". See [oracle.ParsePath].
	Fields []string `json:"fields,omitempty"`
	// Names are patterns of names that differ between runs: "configmaps: lock-*". See [oracle.ParseNamePattern]. Names that
	// were generated by the API server, and UIDs in names, are known to differ.
	Names []string `json:"names,omitempty"`
	// Writes are kinds of writes whose number may differ, by how they begin: "update foos/status", or "added pods" for
	// objects that come and go. "needless" stands for writes that could not change anything.
	Writes []string `json:"writes,omitempty"`
	// AtRest are kinds of writes that may come in the quiet time at the end, by how they begin.
	AtRest []string `json:"atRest,omitempty"`
}

// IsEmpty reports whether nothing may differ.
func (m MayDiffer) IsEmpty() bool {
	return len(m.Fields)+len(m.Names)+len(m.Writes)+len(m.AtRest) == 0
}

// With returns what may differ by either of two.
func (m MayDiffer) With(other MayDiffer) MayDiffer {
	both := func(a, b []string) []string {
		all := slices.Concat(a, b)
		slices.Sort(all)
		return slices.Compact(all)
	}
	return MayDiffer{both(m.Fields, other.Fields), both(m.Names, other.Names), both(m.Writes, other.Writes), both(m.AtRest, other.AtRest)}
}

// Step is a change of the world.
type Step struct {
	Name string `json:"name"`
	// When must hold before the step is taken.
	When []oracle.Condition `json:"when,omitempty"`
	Do   []Action           `json:"do"`
	// GoOn says that the next step follows at once, before the controller has converged.
	GoOn bool `json:"goOn,omitempty"`
}

// Action is one part of a step. Exactly one of its fields is set.
type Action struct {
	// Patch sends a merge patch.
	Patch *Patch `json:"patch,omitempty"`
	// Apply creates an object or changes it, by server-side apply.
	Apply map[string]any `json:"apply,omitempty"`
	// Subresource is what Patch or Apply changes of the object, such as "status"; "" for the object itself.
	Subresource string `json:"subresource,omitempty"`
	// Delete deletes an object.
	Delete *Reference `json:"delete,omitempty"`
	// Request is sent to a program outside of the cluster.
	Request *Request `json:"request,omitempty"`
	// Controller stops the programs with SIGTERM ("stop"), or starts them ("start").
	Controller string `json:"controller,omitempty"`
	// Stop, Kill and Start do that to one program or instance, by name: "agent", "agent-node-0", "controller-2". What a step
	// has ended, no fault starts again.
	Stop  string `json:"stop,omitempty"`
	Kill  string `json:"kill,omitempty"`
	Start string `json:"start,omitempty"`
	// Machine changes a machine, with Scope "cluster".
	Machine *MachineAction `json:"machine,omitempty"`
	// Pause waits for so long.
	Pause metav1.Duration `json:"pause,omitempty"`
}

// Reference names objects.
type Reference struct {
	Resource string `json:"resource"` // plural and group, as in Scenario.Resources
	// Namespace is theirs, if they have one. Default: the run's.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Selector is one of labels, in place of a name. Objects that are deleted before the step gets to them are left out.
	Selector string `json:"selector,omitempty"`
}

// Patch is a JSON merge patch.
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
		return errors.New("resources is empty; name those whose objects count, such as pods")
	case len(s.Converged) == 0:
		return errors.New("converged is empty; it needs a condition that holds when the controller has done its job")
	case s.Patience.Duration < 0 || s.Quiet.Duration < 0:
		return errors.New("patience and quiet must not be negative")
	case s.MostTries < 0:
		return errors.New("mostTries must not be negative")
	}
	if err := s.checkPrograms(); err != nil {
		return err
	}
	if err := s.checkMachines(); err != nil {
		return err
	}
	if err := s.checkOutside(); err != nil {
		return err
	}
	for i, plural := range s.plurals() {
		if slices.Contains(s.plurals()[:i], plural) {
			return fmt.Errorf("resources: there are two with the plural %s, which rules cannot tell apart", plural)
		}
	}
	for i, step := range slices.Concat(s.Setup, s.Steps) {
		if len(step.Do) == 0 {
			return fmt.Errorf("step %d: do is empty", i+1)
		}
		for _, a := range step.Do {
			err := a.check(s)
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
	for _, text := range s.MayDiffer.Names {
		pattern, err := oracle.ParseNamePattern(text)
		if err != nil {
			return fmt.Errorf("mayDiffer.names: %w", err)
		}
		s.names = append(s.names, pattern)
	}
	for _, text := range s.MayDiffer.Fields {
		path, err := oracle.ParsePath(text)
		if err != nil {
			return fmt.Errorf("mayDiffer.fields: %w", err)
		}
		s.mayDiffer = append(s.mayDiffer, path)
	}
	if s.hasMachines() { // a fault may make one boot once more, and the boot ID of one that reboots is new in each run
		for _, annotation := range []string{machine.BootsAnnotation, machine.RebootsAnnotation, machine.RebootingAnnotation} {
			path, err := oracle.ParsePath(fmt.Sprintf("nodes: metadata.annotations[%q]", annotation))
			if err != nil {
				return err
			}
			s.mayDiffer = append(s.mayDiffer, path)
		}
	}
	_, err := s.compile(namespaceVariable)
	return err
}

func (a Action) check(s *Scenario) error {
	count := 0
	for _, is := range []bool{a.Patch != nil, a.Apply != nil, a.Delete != nil, a.Request != nil, a.Controller != "", a.Stop != "", a.Kill != "", a.Start != "", a.Machine != nil, a.Pause.Duration != 0} {
		if is {
			count++
		}
	}
	switch {
	case count != 1:
		return errors.New("each entry of do must be one of patch, apply, delete, request, controller, stop, kill, start, machine, pause")
	case a.Subresource != "" && a.Patch == nil && a.Apply == nil:
		return errors.New("subresource is for patch and apply")
	case a.Apply != nil && !isObject(a.Apply):
		return errors.New("apply must be an object, written here, with apiVersion, kind and metadata.name; files with objects go into manifests")
	case a.Controller != "" && a.Controller != "stop" && a.Controller != "start":
		return fmt.Errorf("controller is %q; it must be stop or start", a.Controller)
	}
	for _, name := range []string{a.Stop, a.Kill, a.Start} {
		known := slices.ContainsFunc(slices.Collect(maps.Keys(s.programs())), func(program string) bool { return isInstance(name, program) })
		if name != "" && !known {
			return fmt.Errorf("there is no program %q; there is %s", name, strings.Join(slices.Sorted(maps.Keys(s.programs())), ", "))
		}
	}
	for _, r := range []*Reference{a.Delete, a.reference()} {
		if r != nil && (r.Resource == "" || (r.Name == "") == (r.Selector == "")) {
			return errors.New("patch and delete need a resource, and either a name or a selector")
		}
	}
	return nil
}

// isObject reports whether an object has what is needed to apply it.
func isObject(of map[string]any) bool {
	object := unstructured.Unstructured{Object: of}
	return object.GetAPIVersion() != "" && object.GetKind() != "" && object.GetName() != ""
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

// Source returns the directory of the module that the scenario's programs are packages of, or "" if there is none, or
// more than one.
func (s *Scenario) Source() string {
	source := ""
	for _, program := range s.programs() {
		if !program.isOwn() || source != "" && source != s.file(program.Module) {
			return ""
		}
		source = s.file(program.Module)
	}
	return source
}

// Packages returns the packages of the scenario's programs, by name.
func (s *Scenario) Packages() map[string]string {
	packages := map[string]string{}
	for name, program := range s.programs() {
		packages[name] = program.Package
	}
	return packages
}

// Args returns the arguments of a program of the scenario.
func (s *Scenario) Args(name string) []string { return s.programs()[name].Args }

// plurals returns the resources without their groups.
func (s *Scenario) plurals() []string {
	var plurals []string
	for _, r := range s.Resources {
		plural, _, _ := strings.Cut(r, ".")
		plurals = append(plurals, plural)
	}
	return plurals
}

// variables returns the lists that rules can use.
func (s *Scenario) variables() []string {
	variables := s.plurals()
	for name, o := range s.Outside {
		for _, resource := range o.Resources {
			variables = append(variables, variable(name, resource))
		}
	}
	return variables
}

// namespaceVariable stands for the namespace of a run.
const namespaceVariable = "{namespace}"

// inNamespace returns a copy of a part of a scenario in which {namespace} is replaced.
func inNamespace[T any](of T, namespace string) (replaced T, err error) {
	text, err := json.Marshal(of)
	if err == nil {
		err = json.Unmarshal(bytes.ReplaceAll(text, []byte(namespaceVariable), []byte(namespace)), &replaced)
	}
	return replaced, err
}

// rulesNameNamespace reports whether a condition has {namespace} in it.
func (s *Scenario) rulesNameNamespace() bool {
	all := slices.Concat(s.Ready, s.Converged, s.Invariants)
	for _, step := range slices.Concat(s.Setup, s.Steps) {
		all = append(all, step.When...)
	}
	return slices.ContainsFunc(all, func(c oracle.Condition) bool { return strings.Contains(c.Rule+c.Message, namespaceVariable) })
}

// causeOf identifies a rule that does not hold: by its source, as the scenario has it.
func causeOf(v *oracle.Violation, namespace string) string {
	return strings.ReplaceAll(v.Rule, namespace, namespaceVariable)
}

// rules are the compiled conditions of a scenario.
type rules struct {
	ready, converged, invariants *oracle.Rules
	setup, when                  []*oracle.Rules // by step
}

// compile compiles the conditions for runs in a namespace.
func (s *Scenario) compile(namespace string) (r rules, err error) {
	read := func(what string, conditions []oracle.Condition) *oracle.Rules {
		conditions, readErr := inNamespace(conditions, namespace)
		var rules *oracle.Rules
		if readErr == nil {
			rules, readErr = oracle.NewRules(s.variables(), conditions)
		}
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
