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
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/environ"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/oracle"
)

// Outside is a program outside of the cluster, with an HTTP API in which the controller creates something. Each run
// starts one of its own. Faults are injected between it and the controller too. Its first line on standard output is its
// URL; what it prints there later is discarded.
//
// The paths of its API are /VERSION/RESOURCE and /VERSION/RESOURCE/NAME. In --fault and in the report, its name is the
// API group of requests to it: group=cloud,resource=networks,verb=create.
type Outside struct {
	Program `json:",inline"`
	// Version is the first segment of the paths, such as v2.0.
	Version string `json:"version"`
	// Resources are those whose objects count. GET answers {"RESOURCE": [...]}, with a link to the next page in
	// "RESOURCE_links": [{"rel": "next", "href": ...}] if there is one. If the answer to that is 404, torture lists from the
	// beginning. Rules see the objects as a list called NAME_RESOURCE; it is empty in invariants, which are about etcd.
	Resources []string `json:"resources"`
	// Headers are sent with torture's own requests, which list the objects and take the scenario's steps.
	Headers map[string]string `json:"headers,omitempty"`
	// Env is added to the controller's environment; {url} is replaced by the address to use.
	Env map[string]string `json:"env,omitempty"`
}

// Request is a request of a step to a program outside of the cluster.
type Request struct {
	To     string `json:"to"` // name of an Outside
	Method string `json:"method"`
	// Resource is the one whose objects are created, with POST, or changed.
	Resource string `json:"resource"`
	// Each is for POST: the resource for each of whose objects a request is sent; {id} in Body is replaced by the
	// object's ID. PUT and DELETE are sent for each object of Resource.
	Each string         `json:"each,omitempty"`
	Body map[string]any `json:"body,omitempty"`
}

// variable is the name of a resource outside of the cluster in rules.
func variable(outside, resource string) string { return outside + "_" + resource }

var identifier = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

func (s *Scenario) checkOutside() error {
	for name, o := range s.Outside {
		switch {
		case !identifier.MatchString(name):
			return fmt.Errorf("outside %q: its name may have a-z and 0-9 only, as it is part of a variable in rules", name)
		case name == apiproxy.CoreGroup:
			return fmt.Errorf("outside %s: a program cannot have the name of the core group in faults", name)
		case len(o.Resources) == 0:
			return fmt.Errorf("outside %s: resources is empty; name those whose objects count", name)
		case o.Version == "" || o.Module == "" || o.Package == "":
			return fmt.Errorf("outside %s: module, package and version are required", name)
		case !strings.Contains(strings.Join(slices.Collect(maps.Values(o.Env)), " "), "{url}"):
			return fmt.Errorf("outside %s: no variable in env has {url} in it, so the controller cannot find it", name)
		}
	}
	return nil
}

func (r *Request) check(s *Scenario) error {
	o, is := s.Outside[r.To]
	switch {
	case !is:
		return fmt.Errorf("request: no program %q under outside", r.To)
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

// outside is such a program while it runs.
type outside struct {
	Outside
	name    string
	url     string // of the program itself, without the proxy
	process *exec.Cmd
	proxy   *apiproxy.Proxy
	drain   sync.WaitGroup // what discards the program's output
}

// buildOutside builds the programs outside of the cluster, and returns their commands by name.
func (s *Scenario) buildOutside(ctx context.Context, progress io.Writer) (map[string][]string, error) {
	commands := map[string][]string{}
	for name, o := range s.Outside {
		program, err := gobuild.Build(ctx, s.source(o.Program), progress)
		if err != nil {
			return nil, fmt.Errorf("outside %s: %w", name, err)
		}
		commands[name] = append([]string{program}, o.Args...)
	}
	return commands, nil
}

// startOutside starts such a program, and a proxy in front of it that injects those of the faults that are for it.
// number tells the recordings of the proxies apart.
func (r *run) startOutside(ctx context.Context, name string, number int) (*outside, error) {
	o := &outside{Outside: r.scenario.Outside[name], name: name}
	command := r.outsideCommands[name]
	env, err := environ.Isolated(filepath.Join(r.scratch, fmt.Sprintf("%s.%d.%s.home", r.namespace, r.number, name)), r.scenario.Env...)
	if err != nil {
		return nil, err
	}
	o.process = exec.Command(command[0], command[1:]...)
	o.process.Env = env
	o.process.Stderr = os.Stderr
	o.process.SysProcAttr = childAttributes()
	stdout, err := o.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := o.process.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// A program that prints nothing and does not exit must not keep us waiting.
	const limit = 30 * time.Second
	late := time.AfterFunc(limit, func() { _ = o.process.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	late.Stop()
	// A program that goes on printing must not block on a full pipe.
	o.drain.Go(func() { _, _ = io.Copy(io.Discard, stdout) }) // the pipe ends with the program
	o.url = strings.TrimSuffix(strings.TrimSpace(line), "/")
	if at, parseErr := url.Parse(o.url); err != nil || parseErr != nil || at.Host == "" {
		return nil, errors.Join(fmt.Errorf("%s must print its URL in its first line; it printed %q", name, strings.TrimSpace(line)), o.stop())
	}
	// A fault at a request to it may kill or stop the programs that have sent it: all of them, as they have one proxy.
	options := apiproxy.Options{
		Upstream: &rest.Config{Host: o.url}, Outside: name, Record: r.recorder("", number), Crash: r.crash(),
		Kill: func() { r.each(func(p *program) bool { r.killAndRestart(p); return true }) },
		Stop: func() bool { return r.each(r.stopAndRestart) },
		Freeze: func(ctx context.Context, long time.Duration) bool {
			return r.each(func(p *program) bool { return p.freeze(ctx, long) })
		},
		Hold: r.holder(""),
	}
	for _, f := range r.armed {
		if f.Group == name {
			options.Armed = append(options.Armed, f.Armed)
		}
	}
	if o.proxy, err = apiproxy.Start(context.WithoutCancel(ctx), options); err != nil {
		return nil, errors.Join(err, o.stop())
	}
	return o, nil
}

// stop stops the proxy, and then the program.
func (o *outside) stop() error {
	var err error
	if o.proxy != nil {
		err = o.proxy.Stop()
	}
	_ = syscall.Kill(-o.process.Process.Pid, syscall.SIGKILL)
	_ = o.process.Wait() // it was killed
	o.drain.Wait()
	return err
}

// list adds the objects of the program to a state. If the object is deleted that the next page comes after, that page is
// answered with 404, and the list begins again.
func (o *outside) list(ctx context.Context, state oracle.State) error {
	const maxBeginnings = 10
	for _, resource := range o.Resources {
		objects := map[string]oracle.Object{}
		for page, beginnings := resource, 1; page != ""; {
			var list map[string][]oracle.Object
			err := o.do(ctx, http.MethodGet, page, nil, &list)
			if refused := (*answerError)(nil); errors.As(err, &refused) && refused.status == http.StatusNotFound && page != resource && beginnings < maxBeginnings {
				beginnings++
				clear(objects)
				page = resource
				continue
			}
			if err != nil {
				return err
			}
			before := len(objects)
			for _, object := range list[resource] {
				objects[fmt.Sprint(object["id"])] = object
			}
			page = ""
			if query := nextPage(list[resource+"_links"]); query != "" && len(objects) > before {
				page = resource + "?" + query
			}
		}
		state[variable(o.name, resource)] = objects
	}
	return nil
}

// answerError is an answer that is an error.
type answerError struct {
	status  int // of HTTP
	message string
}

// Error implements error.
func (e *answerError) Error() string { return e.message }

// nextPage returns the query of the link to the next page of a list, or "" if there is none.
func nextPage(links []oracle.Object) string {
	for _, link := range links {
		if link["rel"] == "next" {
			if at, err := url.Parse(fmt.Sprint(link["href"])); err == nil {
				return at.RawQuery
			}
		}
	}
	return ""
}

// send sends the requests that a step asks for.
func (o *outside) send(ctx context.Context, r *Request) error {
	if r.Method == http.MethodPost && r.Each == "" {
		return o.do(ctx, r.Method, r.Resource, r.Body, nil)
	}
	state := oracle.State{}
	if err := o.list(ctx, state); err != nil {
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
		if err := o.do(ctx, r.Method, at, replaceID(r.Body, id), nil); err != nil {
			return err
		}
	}
	return nil
}

// replaceID returns a body with {id} replaced.
func replaceID(body map[string]any, id string) map[string]any {
	filled := map[string]any{}
	for key, value := range body {
		switch value := value.(type) {
		case string:
			filled[key] = strings.ReplaceAll(value, "{id}", id)
		case map[string]any:
			filled[key] = replaceID(value, id)
		default:
			filled[key] = value
		}
	}
	return filled
}

// answerLimit is how long a program outside of the cluster may take to answer a request of ours, which no fault delays. It
// is far more than a busy machine needs. A test makes it shorter.
var answerLimit = time.Minute

// do sends a request to the program itself, not through the proxy.
func (o *outside) do(ctx context.Context, method, at string, body map[string]any, answer any) error {
	late := fmt.Errorf("%s has not answered %s %s within %s; find out what blocks it: run it without torture, and send it the same requests", o.name, method, at, answerLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, answerLimit, late)
	defer cancel()
	err := o.exchange(ctx, method, at, body, answer)
	if err != nil && errors.Is(context.Cause(ctx), late) {
		return late
	}
	return err
}

// exchange sends a request, and reads its answer.
func (o *outside) exchange(ctx context.Context, method, at string, body map[string]any, answer any) error {
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
		return &answerError{response.StatusCode, fmt.Sprintf("%s answers %s to %s %s: %s", o.name, response.Status, method, at, bytes.TrimSpace(got))}
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("%s: read the answer to %s %s: %w", o.name, method, at, err)
	}
	return nil
}

// uuid is the form of an ID that most cloud APIs generate.
var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// classesIn returns a function that names objects as of does, see [oracle.States.Classes]. Those of resources that the scenario
// does not watch are named "*", as nobody knows which of their names were generated, and outside of the cluster those whose name
// is a UUID.
func (s *Scenario) classesIn(recorded *history.History, of func(resource, name string) string) func(resource, name string) string {
	watched, outside := s.plurals(), map[string]bool{}
	for _, q := range recorded.Requests {
		if _, isOutside := s.Outside[q.Group]; isOutside {
			outside[q.Resource] = true
		}
	}
	return func(resource, name string) string {
		switch {
		case name == "":
			return ""
		case outside[resource] && uuid.MatchString(name), !outside[resource] && !slices.Contains(watched, resource):
			return "*"
		}
		return of(resource, name)
	}
}
