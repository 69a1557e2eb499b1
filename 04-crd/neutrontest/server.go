// Package neutrontest is a small OpenStack Neutron: networks with their subnets, ports and quotas, in memory.
//
// It is for tests, and for lessons without an OpenStack. Its responses and its errors, word for word, are those of
// Neutron 21 and 26; the same tests run against them. It implements no more than those tests need: there are no
// routers and no DHCP, and there is no data plane.
//
// As in a Neutron without Keystone, the headers X-User-Id, X-Project-Id and X-Roles say who the caller is.
package neutrontest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Server is the Neutron, an [http.Handler]. The zero value is an empty Neutron, ready to use.
type Server struct {
	// RequestIDs adds the ID of the request to the message of each error, as other OpenStack services do. So no two
	// messages are alike.
	RequestIDs bool
	// PageSize is how many objects a response to a list has at most, as pagination_max_limit in Neutron's configuration: a
	// full page links to the next, which may be empty. 0 means no limit.
	PageSize int
	// Subnets is the quota of subnets of each project for which none was set, as quota_subnet in Neutron's configuration. 0 means
	// Neutron's own default, 100.
	Subnets int

	mu     sync.Mutex
	all    map[string]map[string]object // by collection and ID
	quotas map[string]map[string]int    // by project and resource; -1: unlimited; missing: the default
}

// object is a network, a subnet or a port. Its JSON is that of the API.
type object interface {
	meta() *standard
	// filters returns the query parameters that a list can be filtered by, besides those of all objects.
	filters() []string
}

// standard has the attributes that all objects have.
type standard struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Description string    `json:"description"`
	ProjectID   string    `json:"project_id"`
	TenantID    string    `json:"tenant_id"`
	Tags        []string  `json:"tags"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
	Revision    int       `json:"revision_number"`
}

func (s *standard) meta() *standard { return s }

func (s *standard) touch() {
	s.Revision++
	s.UpdatedAt = now()
}

func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// refusal is an error response.
type refusal struct {
	status        int // of HTTP
	kind, message string
}

// Error implements error.
func (r *refusal) Error() string { return r.kind + ": " + r.message }

func refuse(status int, kind, format string, values ...any) error {
	return &refusal{status, kind, fmt.Sprintf(format, values...)}
}

func badRequest(format string, values ...any) error {
	return refuse(http.StatusBadRequest, "HTTPBadRequest", format, values...)
}

func invalidInput(format string, values ...any) error {
	return refuse(http.StatusBadRequest, "InvalidInput", "Invalid input for operation: "+format, values...)
}

// caller is who sent the request, as the headers say.
type caller struct {
	project string
	isAdmin bool
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	requestID := "req-" + uuid.NewString()
	w.Header().Set("X-Openstack-Request-Id", requestID)
	if r.Header.Get("X-User-Id") == "" {
		http.Error(w, "This server could not verify that you are authorized to access the document you requested.", http.StatusUnauthorized)
		return
	}
	from := caller{r.Header.Get("X-Project-Id"), slices.Contains(strings.Split(r.Header.Get("X-Roles"), ","), "admin")}
	s.mu.Lock()
	status, answer, err := s.serve(from, r)
	var body []byte
	if err == nil && answer != nil {
		body, err = json.Marshal(answer)
	}
	s.mu.Unlock()
	if err != nil {
		var refused *refusal
		if !errors.As(err, &refused) {
			refused = &refusal{http.StatusInternalServerError, "HTTPInternalServerError", err.Error()}
		}
		message := refused.message
		if s.RequestIDs {
			message += " (Request-ID: " + requestID + ")"
		}
		status = refused.status
		body, _ = json.Marshal(map[string]any{"NeutronError": map[string]string{
			"type": refused.kind, "message": message, "detail": "",
		}})
	}
	if body != nil {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails if the client is gone
}

func (s *Server) serve(from caller, r *http.Request) (status int, answer any, err error) {
	path, isAPI := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/"), "/v2.0/")
	collection, id, _ := strings.Cut(path, "/")
	if isAPI && collection == "quotas" && id != "" {
		return s.serveQuota(from, id, r)
	}
	kind, isKind := kinds[collection]
	id, part, hasPart := strings.Cut(id, "/")
	if isAPI && isKind && (part == "tags" || strings.HasPrefix(part, "tags/")) {
		return s.serveTags(from, collection, id, strings.TrimPrefix(part, "tags"), r)
	}
	if !isAPI || !isKind || hasPart {
		return 0, nil, refuse(http.StatusNotFound, "HTTPNotFound", "The resource could not be found.")
	}
	switch {
	case id == "" && r.Method == http.MethodGet:
		answer, err := s.list(from, collection, r)
		return http.StatusOK, answer, err
	case id == "" && r.Method == http.MethodPost:
		body, err := attributes(r, kind)
		if err != nil {
			return 0, nil, err
		}
		made, err := s.create(from, collection, kind, body)
		return http.StatusCreated, map[string]any{kind.name: made}, err
	case id == "":
		return 0, nil, refuse(http.StatusNotFound, "HTTPNotFound", "The resource could not be found.")
	}
	o, err := s.find(from, collection, id)
	if err != nil {
		return 0, nil, err
	}
	if r.Method != http.MethodGet {
		if err := errors.Join(mayChange(from, kind, o, r.Method), precondition(r, o)); err != nil {
			return 0, nil, err
		}
	}
	switch r.Method {
	case http.MethodGet:
		return http.StatusOK, map[string]any{kind.name: fields(o, r)}, nil
	case http.MethodPut:
		body, err := attributes(r, kind)
		if err == nil {
			err = s.update(from, o, body)
		}
		return http.StatusOK, map[string]any{kind.name: o}, err
	case http.MethodDelete:
		return http.StatusNoContent, nil, s.remove(o)
	}
	return 0, nil, refuse(http.StatusNotFound, "HTTPNotFound", "The resource could not be found.")
}

// kind describes the objects of a collection.
type kind struct {
	name     string   // the key in a request's body
	class    string   // the name in an error message
	settable []string // the attributes that a POST may set
	readOnly []string // those of settable that a PUT may not change
}

var kinds = map[string]kind{
	"networks": {"network", "Network", []string{"name", "description", "admin_state_up", "shared", "mtu", "project_id", "tenant_id"}, []string{"project_id", "tenant_id"}},
	"subnets": {"subnet", "Subnet", []string{"name", "description", "network_id", "ip_version", "cidr", "gateway_ip", "allocation_pools", "enable_dhcp", "dns_nameservers", "project_id", "tenant_id"},
		[]string{"network_id", "ip_version", "cidr", "project_id", "tenant_id"}},
	"ports": {"port", "Port", []string{"name", "description", "network_id", "device_owner", "device_id", "fixed_ips", "project_id", "tenant_id"},
		[]string{"network_id", "fixed_ips", "project_id", "tenant_id"}},
}

// maxText is how many characters a name, a description or a tag may have.
const maxText = 255

// attributes parses and validates the body of a POST or PUT.
func attributes(r *http.Request, k kind) (map[string]json.RawMessage, error) {
	var body map[string]json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, badRequest("Body contains invalid data")
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(body[k.name], &given); err != nil || given == nil {
		return nil, badRequest("Unable to find '%s' in request body", k.name)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch isSettable := slices.Contains(k.settable, name); {
		case r.Method == http.MethodPost && name == "tags":
			return nil, badRequest("Attribute 'tags' not allowed in POST")
		case r.Method == http.MethodPut && (slices.Contains(k.readOnly, name) || name == "status" || name == "id"):
			return nil, badRequest("Cannot update read-only attribute %s", name)
		case !isSettable:
			return nil, badRequest("Unrecognized attribute(s) '%s'", name)
		}
	}
	for _, name := range []string{"name", "description"} {
		var text string
		if given[name] != nil && json.Unmarshal(given[name], &text) == nil && utf8.RuneCountInString(text) > maxText {
			return nil, badRequest("Invalid input for %s. Reason: '%s' exceeds maximum length of 255.", name, text)
		}
	}
	return given, nil
}

// set decodes the attribute of that name into value. It leaves value alone if the attribute is missing.
func set[T any](given map[string]json.RawMessage, name string, value *T) error {
	raw, isGiven := given[name]
	if !isGiven {
		return nil
	}
	if err := json.Unmarshal(raw, value); err != nil {
		return badRequest("Invalid input for %s. Reason: %s.", name, err)
	}
	return nil
}

// find returns the object with that ID. To a caller who may not see it, it does not exist.
func (s *Server) find(from caller, collection, id string) (object, error) {
	o, ok := s.all[collection][id]
	if !ok || !s.canSee(from, o) {
		class := kinds[collection].class
		return nil, refuse(http.StatusNotFound, class+"NotFound", "%s %s could not be found.", class, id)
	}
	return o, nil
}

// canSee reports whether an object exists to a caller: it is of the caller's project, or shared with it, or a port on the
// caller's network.
func (s *Server) canSee(from caller, o object) bool {
	if from.isAdmin || o.meta().ProjectID == from.project {
		return true
	}
	switch o := o.(type) {
	case *network:
		return o.Shared
	case *subnet:
		return s.canSee(from, s.all["networks"][o.NetworkID])
	case *port:
		return s.all["networks"][o.NetworkID].meta().ProjectID == from.project
	}
	return false
}

// precondition checks the header "If-Match: revision_number=7". As in Neutron, any other form of it is ignored.
func precondition(r *http.Request, o object) error {
	text, ok := strings.CutPrefix(r.Header.Get("If-Match"), "revision_number=")
	revision, err := strconv.Atoi(text)
	if ok && err == nil && revision != o.meta().Revision {
		return refuse(http.StatusPreconditionFailed, "RevisionNumberConstraintFailed",
			"Constrained to %d, but current revision is %d", revision, o.meta().Revision)
	}
	return nil
}

// create creates an object from the attributes given.
func (s *Server) create(from caller, collection string, k kind, given map[string]json.RawMessage) (object, error) {
	meta := standard{ID: uuid.NewString(), ProjectID: from.project, Tags: []string{}, CreatedAt: now(), UpdatedAt: now()}
	for _, name := range []string{"tenant_id", "project_id"} {
		if err := set(given, name, &meta.ProjectID); err != nil {
			return nil, err
		}
	}
	if !from.isAdmin && meta.ProjectID != from.project {
		return nil, badRequest("Specifying 'project_id' or 'tenant_id' other than the authenticated project in request requires admin or advsvc privileges")
	}
	meta.TenantID = meta.ProjectID
	if err := errors.Join(set(given, "name", &meta.Name), set(given, "description", &meta.Description)); err != nil {
		return nil, err
	}
	var o object
	var err error
	switch collection {
	case "networks":
		o, err = newNetwork(meta, given)
	case "subnets":
		o, err = s.newSubnet(from, meta, given)
	default:
		o, err = s.newPort(from, meta, given)
	}
	if err != nil {
		return nil, err
	}
	if err := s.withinQuota(meta.ProjectID, k.name, collection); err != nil {
		return nil, err
	}
	if s.all == nil {
		s.all = map[string]map[string]object{}
	}
	if s.all[collection] == nil {
		s.all[collection] = map[string]object{}
	}
	s.all[collection][meta.ID] = o
	if sub, ok := o.(*subnet); ok {
		n := s.all["networks"][sub.NetworkID].(*network)
		n.Subnets = append(n.Subnets, sub.ID)
		n.touch()
	}
	return o, nil
}

// mayChange refuses changes of another project's network or subnet. The owner of a network may delete the ports on it.
func mayChange(from caller, k kind, o object, method string) error {
	if from.isAdmin || o.meta().ProjectID == from.project || k.name == "port" {
		return nil
	}
	verb := map[string]string{http.MethodPut: "update", http.MethodDelete: "delete"}[method]
	return refuse(http.StatusForbidden, "PolicyNotAuthorized", "rule:%s_%s is disallowed by policy", verb, k.name)
}

// update changes an object. As in Neutron 21, its revision number grows even if no attribute changes, but not if none is given; in
// 26, it grows in neither case.
func (s *Server) update(from caller, o object, given map[string]json.RawMessage) error {
	var err error
	switch o := o.(type) {
	case *network:
		err = changeNetwork(from, o, given)
	case *subnet:
		err = s.changeSubnet(o, given)
	case *port:
		err = errors.Join(set(given, "device_owner", &o.DeviceOwner), set(given, "device_id", &o.DeviceID))
	}
	meta := o.meta()
	if err = errors.Join(err, set(given, "name", &meta.Name), set(given, "description", &meta.Description)); err != nil {
		return err
	}
	if len(given) > 0 {
		meta.touch()
	}
	return nil
}

// remove deletes an object and what belongs to it. It refuses if ports still use the object.
func (s *Server) remove(o object) error {
	switch o := o.(type) {
	case *network:
		var blocking []string
		for _, p := range s.blockingPorts(func(p *port) bool { return p.NetworkID == o.ID }) {
			blocking = append(blocking, p.ID)
		}
		if len(blocking) > 0 {
			return refuse(http.StatusConflict, "NetworkInUse", "Unable to complete operation on network %s. There are one or more ports still in use on the network, id for these ports is: %s.",
				o.ID, strings.Join(blocking, ","))
		}
		for _, id := range o.Subnets {
			delete(s.all["subnets"], id)
		}
		maps.DeleteFunc(s.all["ports"], func(_ string, p object) bool { return p.(*port).NetworkID == o.ID })
		delete(s.all["networks"], o.ID)
	case *subnet:
		if len(s.blockingPorts(func(p *port) bool { return p.has(o.ID) })) > 0 {
			return refuse(http.StatusConflict, "SubnetInUse", "Unable to complete operation on subnet %s: One or more ports have an IP allocation from this subnet.", o.ID)
		}
		n := s.all["networks"][o.NetworkID].(*network)
		n.Subnets = slices.DeleteFunc(n.Subnets, func(id string) bool { return id == o.ID })
		n.touch()
		delete(s.all["subnets"], o.ID)
	case *port:
		delete(s.all["ports"], o.ID)
	}
	return nil
}

// deletedWithNetwork is AUTO_DELETE_PORT_OWNERS in Neutron's neutron/common/_constants.py.
var deletedWithNetwork = map[string]bool{"network:dhcp": true, "network:distributed": true, "network:floatingip_agent_gateway": true}

// blockingPorts returns the ports that match and keep a network or a subnet from being deleted. Neutron's own do not.
func (s *Server) blockingPorts(matches func(*port) bool) []*port {
	var ports []*port
	for _, o := range s.objects("ports") {
		if p := o.(*port); matches(p) && !deletedWithNetwork[p.DeviceOwner] {
			ports = append(ports, p)
		}
	}
	return ports
}
