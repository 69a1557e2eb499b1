package torture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// Outside is a program beside the cluster, with an HTTP API, in which the controller makes something. Each run has
// one of its own. Between it and the controller, too, everything goes wrong once.
//
// Its API has paths /VERSION/RESOURCE and /VERSION/RESOURCE/NAME. Requests to it are, in --fault and in the report,
// of the group that is its name: group=cloud,resource=networks,verb=create.
type Outside struct {
	Program `json:",inline"`
	// Version is the first part of the paths, such as v2.0.
	Version string `json:"version"`
	// Resources are what counts of it. To GET one gives {"RESOURCE": [...]}. Rules see it as a list called
	// NAME_RESOURCE; in invariants, which are about etcd, it is empty.
	Resources []string `json:"resources"`
	// Headers are of our own requests, by which we look at it and do what is in the steps.
	Headers map[string]string `json:"headers,omitempty"`
	// Env is what the controller finds in its environment; {url} in it becomes the address.
	Env map[string]string `json:"env,omitempty"`
}

// Request changes something outside.
type Request struct {
	To     string `json:"to"` // name of an Outside
	Method string `json:"method"`
	// Resource is what is made, with POST, or changed.
	Resource string `json:"resource"`
	// Each has it done once for each object of this resource; {id} in Body becomes its id. By default, and where it
	// is Resource, PUT and DELETE are of each object that is there.
	Each string         `json:"each,omitempty"`
	Body map[string]any `json:"body,omitempty"`
}

// variable is what rules call a resource outside.
func variable(outside, resource string) string { return outside + "_" + resource }

var identifier = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

func (s *Scenario) checkOutside() error {
	for name, o := range s.Outside {
		switch {
		case !identifier.MatchString(name):
			return fmt.Errorf("outside %q: its name must be of a-z and 0-9, because rules have it in theirs", name)
		case len(o.Resources) == 0:
			return fmt.Errorf("outside %s: resources is empty; name what counts", name)
		case o.Version == "" || o.Module == "" || o.Package == "":
			return fmt.Errorf("outside %s: it needs a module, a package and a version", name)
		case !strings.Contains(strings.Join(slices.Collect(maps.Values(o.Env)), " "), "{url}"):
			return fmt.Errorf("outside %s: env does not tell the controller its {url}", name)
		}
	}
	return nil
}

func (r *Request) check(s *Scenario) error {
	o, is := s.Outside[r.To]
	switch {
	case !is:
		return fmt.Errorf("request: there is no outside %q", r.To)
	case r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodDelete:
		return fmt.Errorf("request: the method is %q; it must be POST, PUT or DELETE", r.Method)
	case r.Resource == "":
		return errors.New("request: name a resource")
	case r.Each != "" && !slices.Contains(o.Resources, r.Each), r.Method != http.MethodPost && !slices.Contains(o.Resources, r.Resource):
		return fmt.Errorf("request: each and resource must be among the resources of %s: %s", r.To, strings.Join(o.Resources, ", "))
	case r.Method != http.MethodPost && r.Each != "":
		return errors.New("request: each is for POST; PUT and DELETE are of each object of the resource")
	}
	return nil
}

// outside is one that runs.
type outside struct {
	Outside
	name    string
	url     string // its own, without the proxy
	process *exec.Cmd
	proxy   *apiproxy.Proxy
}

// buildOutside builds the programs, and returns their commands by name.
func (s *Scenario) buildOutside(ctx context.Context, progress io.Writer) (map[string][]string, error) {
	commands := map[string][]string{}
	for name, o := range s.Outside {
		program, err := gobuild.Build(ctx, gobuild.Program{
			Name: path.Base(o.Package), Dir: s.file(o.Module), Package: o.Package, Sources: []string{"."},
		}, progress)
		if err != nil {
			return nil, fmt.Errorf("outside %s: %w", name, err)
		}
		commands[name] = append([]string{program}, o.Args...)
	}
	return commands, nil
}

// startOutside starts one, and a proxy in front of it that has these options and befalls the requests to it.
func (r *run) startOutside(ctx context.Context, name string, options apiproxy.Options) (*outside, error) {
	o := &outside{Outside: r.scenario.Outside[name], name: name}
	command := r.outsideCommands[name]
	env, err := environ.Isolated(filepath.Join(r.scratch, r.namespace+"."+name+".home"), r.scenario.Env...)
	if err != nil {
		return nil, err
	}
	o.process = exec.Command(command[0], command[1:]...)
	o.process.Env = env
	o.process.Stderr = os.Stderr
	o.process.SysProcAttr = ofOurs()
	said, err := o.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := o.process.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// One that says nothing and does not end would keep us here.
	const limit = 30 * time.Second
	late := time.AfterFunc(limit, func() { _ = o.process.Process.Kill() })
	line, err := bufio.NewReader(said).ReadString('\n')
	late.Stop()
	o.url = strings.TrimSuffix(strings.TrimSpace(line), "/")
	if at, parseErr := url.Parse(o.url); err != nil || parseErr != nil || at.Host == "" {
		return nil, errors.Join(fmt.Errorf("%s has to print its URL first; it printed %q", name, strings.TrimSpace(line)), o.stop())
	}
	options.Upstream, options.Outside = &rest.Config{Host: o.url}, name
	options.Namespace, options.Within = "", nil
	options.Faults = slices.DeleteFunc(slices.Clone(options.Faults), func(f apiproxy.Fault) bool { return f.Group != name })
	record, offset := options.Record, int64(1+slices.Index(slices.Sorted(maps.Keys(r.scenario.Outside)), name))<<32
	options.Record = func(one history.Record) {
		if one.Request != nil {
			one.Request.ID += offset // the numbers of the other proxy are others
		}
		record(one)
	}
	if o.proxy, err = apiproxy.Start(context.WithoutCancel(ctx), options); err != nil {
		return nil, errors.Join(err, o.stop())
	}
	return o, nil
}

// stop ends the proxy, and then the program.
func (o *outside) stop() error {
	var err error
	if o.proxy != nil {
		err = o.proxy.Stop()
	}
	_ = syscall.Kill(-o.process.Process.Pid, syscall.SIGKILL)
	_ = o.process.Wait() // it was killed
	return err
}

// look adds what is there to a state.
func (o *outside) look(ctx context.Context, state oracle.State) error {
	for _, resource := range o.Resources {
		var list map[string][]oracle.Object
		if err := o.ask(ctx, http.MethodGet, resource, nil, &list); err != nil {
			return err
		}
		objects := map[string]oracle.Object{}
		for _, object := range list[resource] {
			objects[fmt.Sprint(object["id"])] = object
		}
		state[variable(o.name, resource)] = objects
	}
	return nil
}

// do does what a step asks for.
func (o *outside) do(ctx context.Context, r *Request) error {
	if r.Method == http.MethodPost && r.Each == "" {
		return o.ask(ctx, r.Method, r.Resource, r.Body, nil)
	}
	state := oracle.State{}
	if err := o.look(ctx, state); err != nil {
		return err
	}
	each := r.Each
	if r.Method != http.MethodPost {
		each = r.Resource
	}
	for _, id := range slices.Sorted(maps.Keys(state[variable(o.name, each)])) {
		at := r.Resource
		if r.Method != http.MethodPost {
			at += "/" + id
		}
		if err := o.ask(ctx, r.Method, at, fill(r.Body, id), nil); err != nil {
			return err
		}
	}
	return nil
}

// fill returns a body with an id in it.
func fill(body map[string]any, id string) map[string]any {
	filled := map[string]any{}
	for key, value := range body {
		switch value := value.(type) {
		case string:
			filled[key] = strings.ReplaceAll(value, "{id}", id)
		case map[string]any:
			filled[key] = fill(value, id)
		default:
			filled[key] = value
		}
	}
	return filled
}

// ask sends a request past the proxy.
func (o *outside) ask(ctx context.Context, method, at string, body map[string]any, answer any) error {
	var sent []byte
	if len(body) > 0 {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, o.url+"/"+o.Version+"/"+at, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range o.Headers {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s: read the answer to %s %s: %w", o.name, method, at, err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s answers %s to %s %s: %s", o.name, response.Status, method, at, bytes.TrimSpace(got))
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("%s: read the answer to %s %s: %w", o.name, method, at, err)
	}
	return nil
}

// uuid is how what is outside is often called.
var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// classes names what is outside as a class of its own.
func classes(of func(resource, name string) string) func(resource, name string) string {
	return func(resource, name string) string {
		if uuid.MatchString(name) {
			return "*"
		}
		return of(resource, name)
	}
}
