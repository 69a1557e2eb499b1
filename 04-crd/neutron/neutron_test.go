package neutron_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
	"example.com/controllers/crd/neutron"
	"example.com/controllers/crd/neutrontest"
)

// world is a Neutron and a transport that loses requests and responses. The Neutron is that at NEUTRON_URL if it is set, or
// else one in memory.
type world struct {
	*testing.T
	cloud *neutron.Cloud
	// direct is the client of a regular user without that transport, and admin that of an administrator.
	direct, admin *gophercloud.ServiceClient
	project       string

	mu    sync.Mutex
	calls []string // "METHOD collection" or "METHOD collection/tags", since took was called last
	// before has functions to call before the next request of that name. After the first of them, it is cleared.
	before map[string]func()
	// lose returns what to lose of the call with that number, from 1: "", "request" or "reply".
	lose func(call int) string
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, project: strings.ReplaceAll(uuid.NewString(), "-", "")}
	url := os.Getenv("NEUTRON_URL")
	if url == "" {
		server := httptest.NewServer(&neutrontest.Server{PageSize: 1})
		t.Cleanup(server.Close)
		url = server.URL
	}
	url = strings.TrimSuffix(url, "/") + "/"
	client := func(transport http.RoundTripper, roles string) *gophercloud.ServiceClient {
		return &gophercloud.ServiceClient{
			ProviderClient: &gophercloud.ProviderClient{HTTPClient: http.Client{Transport: transport}},
			Type:           "network", Endpoint: url, ResourceBase: url + "v2.0/",
			MoreHeaders: map[string]string{"X-User-Id": "u", "X-Project-Id": w.project, "X-Roles": roles},
		}
	}
	w.cloud = &neutron.Cloud{Client: client(w, "member,reader"), Owner: owner}
	w.direct, w.admin = client(http.DefaultTransport, "member,reader"), client(http.DefaultTransport, "admin")
	return w
}

// RoundTrip implements [http.RoundTripper].
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.URL.Query().Has("marker") { // the rest of a list that has been recorded
		return http.DefaultTransport.RoundTrip(r)
	}
	w.calls = append(w.calls, callName(r))
	if do := w.before[w.calls[len(w.calls)-1]]; do != nil {
		w.before = nil
		do()
	}
	lost := ""
	if w.lose != nil {
		lost = w.lose(len(w.calls))
	}
	if lost == "request" {
		return nil, io.ErrUnexpectedEOF
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if lost == "" || err != nil {
		return response, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// callName returns "METHOD collection", or "METHOD collection/tags".
func callName(r *http.Request) string {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2.0/"), "/")
	if len(parts) > 2 {
		return r.Method + " " + parts[0] + "/" + parts[2]
	}
	return r.Method + " " + parts[0]
}

// took returns the calls since it was called last.
func (w *world) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

// rounds is how often to repeat what depends on IDs, which are random.
func rounds() int {
	if os.Getenv("NEUTRON") == "real" { // which is slow
		return 2
	}
	return 8
}

const owner = "7c1b"

func nameOf(n *samplecrdv1.Network) string { return "kubernetes-" + owner + "-" + string(n.UID) }

func newNetwork() *samplecrdv1.Network {
	return &samplecrdv1.Network{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "n", UID: types.UID(uuid.NewString())},
		Spec:       samplecrdv1.NetworkSpec{CIDR: "192.168.0.0/16", Gateway: "192.168.0.1"},
	}
}

func (w *world) networks() []networks.Network {
	w.Helper()
	pages, err := networks.List(w.direct, networks.ListOpts{ProjectID: w.project}).AllPages(w.Context())
	require.NoError(w, err)
	all, err := networks.ExtractNetworks(pages)
	require.NoError(w, err)
	return all
}

func (w *world) subnets() []subnets.Subnet {
	w.Helper()
	pages, err := subnets.List(w.direct, subnets.ListOpts{ProjectID: w.project}).AllPages(w.Context())
	require.NoError(w, err)
	all, err := subnets.ExtractSubnets(pages)
	require.NoError(w, err)
	return all
}

func (w *world) ensure(n *samplecrdv1.Network) crd.IDs {
	w.Helper()
	made, err := w.cloud.Ensure(w.Context(), n)
	require.NoError(w, err)
	n.Status.NetworkID, n.Status.SubnetID = made.NetworkID, made.SubnetID
	return made
}

// requireOne requires that the project has exactly one network and one subnet, and that they match n.
func (w *world) requireOne(n *samplecrdv1.Network, made crd.IDs) {
	w.Helper()
	all, subs := w.networks(), w.subnets()
	require.Len(w, all, 1)
	require.Len(w, subs, 1)
	require.Equal(w, made, crd.IDs{NetworkID: all[0].ID, SubnetID: subs[0].ID})
	require.Equal(w, all[0].ID, subs[0].NetworkID)
	require.Equal(w, nameOf(n), all[0].Name)
	require.Equal(w, "Kubernetes Network shop/n", all[0].Description)
	require.Equal(w, nameOf(n), subs[0].Name)
	require.Equal(w, "Kubernetes Network shop/n", subs[0].Description)
	require.Contains(w, all[0].Tags, nameOf(n))
	require.Contains(w, subs[0].Tags, nameOf(n))
	require.Equal(w, n.Spec.CIDR, subs[0].CIDR)
	require.Equal(w, n.Spec.Gateway, subs[0].GatewayIP)
}

func TestEnsure(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	// It has no ID in the status, so the second list looks for the tag.
	require.Equal(t, []string{"GET networks", "GET networks", "POST networks", "PUT networks/tags", "POST subnets", "PUT subnets/tags"}, w.took())
	w.requireOne(n, made)

	before := w.networks()[0].RevisionNumber + w.subnets()[0].RevisionNumber
	require.Equal(t, made, w.ensure(n))
	require.Equal(t, []string{"GET networks", "GET subnets"}, w.took())
	require.Equal(t, before, w.networks()[0].RevisionNumber+w.subnets()[0].RevisionNumber)

	for _, gateway := range []string{"192.168.255.254", "192.168.7.7", "192.168.0.1", "192.168.0.2"} {
		n.Spec.Gateway = gateway
		require.Equal(t, made, w.ensure(n))
		require.Equal(t, []string{"GET networks", "GET subnets", "PUT subnets"}, w.took())
		w.requireOne(n, made)
	}
	require.NoError(t, w.cloud.Delete(t.Context(), n))
	require.Equal(t, []string{"GET networks", "DELETE networks"}, w.took())
	require.Empty(t, w.networks())
	require.Empty(t, w.subnets())
	require.NoError(t, w.cloud.Delete(t.Context(), n))
	require.Equal(t, []string{"GET networks", "GET networks", "GET networks"}, w.took(), "by its name, its tag and its ID")
}

func TestIPv6(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	n.Spec = samplecrdv1.NetworkSpec{CIDR: "fd00:1::/64", Gateway: "fd00:1::1"}
	made := w.ensure(n)
	w.requireOne(n, made)
	n.Spec.Gateway = "fd00:1::ffff"
	require.Equal(t, made, w.ensure(n))
	w.requireOne(n, made)
}

// After a change of the gateway, ports can get the same addresses as if the subnet had been created with it.
func TestAllocationPools(t *testing.T) {
	for _, c := range []struct{ cidr, before, after string }{
		{"10.0.0.0/8", "10.0.0.1", "10.7.0.9"},
		{"10.0.0.0/22", "10.0.0.1", "10.0.1.7"},
		{"10.0.4.0/23", "10.0.4.1", "10.0.5.254"},
		{"10.0.0.128/25", "10.0.0.254", "10.0.0.129"},
		{"10.0.0.0/30", "10.0.0.1", "10.0.0.2"},
		{"fd00:1::/64", "fd00:1::1", "fd00:1::ffff"},
		{"fd00:1::/61", "fd00:1::1", "fd00:1:0:7:ffff:ffff:ffff:ffff"},
	} {
		t.Run(c.cidr, func(t *testing.T) {
			pools := func(gateways ...string) []subnets.AllocationPool {
				w, n := newWorld(t), newNetwork()
				n.Spec.CIDR = c.cidr
				for _, gateway := range gateways {
					n.Spec.Gateway = gateway
					w.ensure(n)
				}
				return w.subnets()[0].AllocationPools
			}
			require.Equal(t, pools(c.after), pools(c.before, c.after))
		})
	}
}

// The pools around a gateway are Neutron's own in whatever order it lists them, so they become one when the gateway moves away.
func TestAllocationPoolsInAnotherOrder(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	untouched := w.subnets()[0].AllocationPools
	before := n.Spec.Gateway
	n.Spec.Gateway = "192.168.1.7"
	w.ensure(n)
	around := w.subnets()[0].AllocationPools
	require.Len(t, around, 2)
	w.edit("subnets", made.SubnetID, map[string]any{"allocation_pools": []map[string]string{
		{"start": around[1].Start, "end": around[1].End}, {"start": around[0].Start, "end": around[0].End}}})
	n.Spec.Gateway = before
	w.ensure(n)
	require.Equal(t, untouched, w.subnets()[0].AllocationPools)
}

// Whichever request or response is lost, a retry that knows nothing of the earlier attempt completes the work.
func TestLostRequestsAndResponses(t *testing.T) {
	losses := []string{"reply", "request"}
	if os.Getenv("NEUTRON") == "real" { // which is slow, and does not notice a request that does not arrive
		losses = losses[:1]
	}
	for _, what := range losses {
		for nth := 1; ; nth++ {
			reached := false
			t.Run(fmt.Sprintf("the %s of call %d", what, nth), func(t *testing.T) {
				w, n := newWorld(t), newNetwork()
				w.lose = func(call int) string {
					if call == nth {
						reached = true
						return what
					}
					return ""
				}
				persist := func(do func() error) {
					t.Helper()
					for range 3 {
						err := do()
						if err == nil {
							return
						}
						require.ErrorIs(t, err, io.ErrUnexpectedEOF, "the cause must be in the error's chain")
					}
					t.Fatal("the third attempt failed")
				}
				var made crd.IDs
				ensure := func() (err error) {
					made, err = w.cloud.Ensure(t.Context(), n)
					return err
				}
				persist(ensure)
				w.requireOne(n, made)
				n.Spec.Gateway = "192.168.0.9"
				persist(ensure)
				w.requireOne(n, made)
				persist(func() error { return w.cloud.Delete(t.Context(), n) })
				require.Empty(t, w.networks())
				require.Empty(t, w.subnets())
			})
			if !reached {
				require.Greater(t, nth, 8)
				break
			}
		}
	}
}

func TestDrift(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	_, err := subnets.Update(t.Context(), w.direct, made.SubnetID, subnets.UpdateOpts{GatewayIP: new("10.0.0.1")}).Extract()
	require.NoError(t, err)
	require.Equal(t, made, w.ensure(n))
	w.requireOne(n, made)

	require.NoError(t, subnets.Delete(t.Context(), w.direct, made.SubnetID).ExtractErr())
	made = w.ensure(n)
	w.requireOne(n, made)

	require.NoError(t, networks.Delete(t.Context(), w.direct, made.NetworkID).ExtractErr())
	made = w.ensure(n)
	w.requireOne(n, made)
}

// Of duplicates, the one whose ID is in the status is kept.
func TestDuplicates(t *testing.T) {
	for range rounds() {
		w, n := newWorld(t), newNetwork()
		first := w.ensure(n)
		second, err := networks.Create(t.Context(), w.direct, networks.CreateOpts{
			Name: nameOf(n), Description: "Kubernetes Network shop/n"}).Extract()
		require.NoError(t, err)
		n.Status.NetworkID = second.ID
		made := w.ensure(n)
		require.Equal(t, second.ID, made.NetworkID)
		require.NotEqual(t, first, made)
		w.requireOne(n, made)
	}
}

// Somebody may edit the description in the cloud. The network is still the Network's, and is described again.
func TestEditedDescription(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	n.Status.NetworkID, n.Status.SubnetID = made.NetworkID, made.SubnetID
	require.NoError(t, networks.Update(t.Context(), w.direct, made.NetworkID, networks.UpdateOpts{Description: new("by hand")}).Err)
	require.Equal(t, made, w.ensure(n))
	require.Len(t, w.networks(), 1)
	require.NoError(t, w.cloud.Delete(t.Context(), n))
	require.Empty(t, w.networks())
}

func TestForeignNetworksAndSubnets(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	namesake, err := networks.Create(t.Context(), w.direct, networks.CreateOpts{Name: nameOf(n), Description: "mine"}).Extract()
	require.NoError(t, err)
	made := w.ensure(n)
	require.NotEqual(t, namesake.ID, made.NetworkID)

	other, err := subnets.Create(t.Context(), w.direct, subnets.CreateOpts{Name: "other", NetworkID: made.NetworkID, CIDR: "10.0.0.0/24", IPVersion: 4}).Extract()
	require.NoError(t, err)
	for _, known := range []string{made.SubnetID, ""} {
		n.Status.SubnetID = known
		err = w.cloud.Delete(t.Context(), n)
		require.EqualError(t, err, "the network has subnets that this controller did not create; delete them first: other "+other.ID)
		requireReason(t, samplecrdv1.ReasonInUse, err)
	}
	require.Len(t, w.subnets(), 2)
	require.NoError(t, subnets.Delete(t.Context(), w.direct, other.ID).ExtractErr())
	require.NoError(t, w.cloud.Delete(t.Context(), n))
	require.Len(t, w.networks(), 1)
	require.Equal(t, namesake.ID, w.networks()[0].ID)

	require.ErrorContains(t, w.cloud.Delete(t.Context(), &samplecrdv1.Network{}), "has no UID")
}

// The names in the cloud tell the owners, and networks of others are not among them.
func TestOwners(t *testing.T) {
	w, a, b := newWorld(t), newNetwork(), newNetwork()
	b.Name = "b"
	w.ensure(a)
	w.ensure(b)
	for name, description := range map[string]string{
		"kubernetes-" + owner + "-1": "mine", "kubernetes-other-2": "Kubernetes Network shop/n", "mine": "Kubernetes Network shop/n",
	} {
		_, err := networks.Create(t.Context(), w.direct, networks.CreateOpts{Name: name, Description: description}).Extract()
		require.NoError(t, err)
	}
	w.took()
	owners, err := w.cloud.Owners(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"GET networks"}, w.took())
	require.ElementsMatch(t, []crd.Owner{{Namespace: "shop", Name: "n", UID: a.UID}, {Namespace: "shop", Name: "b", UID: b.UID}}, owners)

	// Another cluster, with a Network of the same name.
	w.cloud.Owner = "other"
	require.NoError(t, w.cloud.Delete(t.Context(), a))
	require.Len(t, w.networks(), 5)
	w.cloud.Owner = ""
	_, err = w.cloud.Owners(t.Context())
	require.ErrorContains(t, err, "set Owner")
	require.ErrorContains(t, w.cloud.Delete(t.Context(), a), "set Owner")
}

func requireReason(t *testing.T, reason string, err error) {
	t.Helper()
	var refused *crd.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, reason, refused.Reason)
}

// Changes by others between a list and a write make the write fail, and are not overwritten.
func TestConcurrentChanges(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	byHand := func() {
		_, err := subnets.Update(t.Context(), w.direct, made.SubnetID, subnets.UpdateOpts{Name: new("by hand")}).Extract()
		require.NoError(t, err)
	}
	byHand()
	w.before = map[string]func(){"PUT subnets": byHand}
	_, err := w.cloud.Ensure(t.Context(), n)
	require.ErrorContains(t, err, "restore the name and the description of subnet")
	require.ErrorContains(t, err, "Constrained to 2, but current revision is 3")
	w.before = nil
	require.Equal(t, made, w.ensure(n))

	n.Spec.Gateway = "192.168.0.9"
	w.before = map[string]func(){"PUT subnets": func() {
		_, err := subnets.Update(t.Context(), w.direct, made.SubnetID, subnets.UpdateOpts{Description: new("by hand")}).Extract()
		require.NoError(t, err)
	}}
	_, err = w.cloud.Ensure(t.Context(), n)
	require.ErrorContains(t, err, "change the gateway of subnet")
	require.ErrorContains(t, err, "Constrained to 4, but current revision is 5")
	require.Equal(t, made, w.ensure(n))
	w.requireOne(n, made)

	w.before = map[string]func(){"DELETE networks": func() {
		_, err := subnets.Create(t.Context(), w.direct, subnets.CreateOpts{NetworkID: made.NetworkID, CIDR: "10.0.0.0/24", IPVersion: 4}).Extract()
		require.NoError(t, err)
	}}
	require.ErrorContains(t, w.cloud.Delete(t.Context(), n), "Constrained to ")
	require.Len(t, w.subnets(), 2)
	require.NoError(t, subnets.Delete(t.Context(), w.direct, slices.DeleteFunc(w.networks()[0].Subnets, func(id string) bool { return id == made.SubnetID })[0]).ExtractErr())

	w.before = map[string]func(){"DELETE networks": func() {
		require.NoError(t, networks.Delete(t.Context(), w.direct, made.NetworkID).ExtractErr())
	}}
	require.NoError(t, w.cloud.Delete(t.Context(), n))
}

func TestDeletionWithPorts(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	port, err := ports.Create(t.Context(), w.direct, ports.CreateOpts{NetworkID: made.NetworkID, Name: "web"}).Extract()
	require.NoError(t, err)
	_, err = ports.Create(t.Context(), w.direct, ports.CreateOpts{NetworkID: made.NetworkID, DeviceOwner: "network:dhcp", DeviceID: "d"}).Extract()
	require.NoError(t, err)
	if os.Getenv("NEUTRON") != "real" { // there, only an administrator may create such a port, as OVN's metadata service has
		_, err = ports.Create(t.Context(), w.direct, ports.CreateOpts{NetworkID: made.NetworkID, DeviceOwner: "network:distributed"}).Extract()
		require.NoError(t, err)
	}
	w.took()
	err = w.cloud.Delete(t.Context(), n)
	require.EqualError(t, err, "ports still use the network; delete them first: web "+port.ID)
	requireReason(t, samplecrdv1.ReasonInUse, err)
	require.True(t, gophercloud.ResponseCodeIs(err, http.StatusConflict), "the cause must be in the error's chain")
	require.Equal(t, []string{"GET networks", "DELETE networks", "GET ports"}, w.took())
	w.requireOne(n, made)
	require.NoError(t, ports.Delete(t.Context(), w.direct, port.ID).ExtractErr())
	require.NoError(t, w.cloud.Delete(t.Context(), n))
	require.Empty(t, w.networks())
}

func TestQuota(t *testing.T) {
	w := newWorld(t)
	n := newNetwork()
	for range 2 { // the second time, the subnet has been deleted by hand
		_, err := quotas.Update(t.Context(), w.admin, w.project, quotas.UpdateOpts{Network: new(1), Subnet: new(0)}).Extract()
		require.NoError(t, err)
		_, err = w.cloud.Ensure(t.Context(), n)
		require.ErrorContains(t, err, "Quota exceeded for resources: ['subnet']")
		requireReason(t, samplecrdv1.ReasonQuotaExceeded, err)
		_, err = w.cloud.Ensure(t.Context(), newNetwork())
		require.ErrorContains(t, err, "create network for shop/n: Quota exceeded for resources: ['network']")
		_, err = quotas.Update(t.Context(), w.admin, w.project, quotas.UpdateOpts{Subnet: new(5)}).Extract()
		require.NoError(t, err)
		made := w.ensure(n)
		w.requireOne(n, made)
		require.NoError(t, subnets.Delete(t.Context(), w.direct, made.SubnetID).ExtractErr())
	}
}

func TestErrors(t *testing.T) {
	if os.Getenv("NEUTRON") == "real" {
		t.Skip("has nothing to do with OpenStack's own Neutron; make test-all runs it")
	}
	for _, c := range []struct {
		status int
		body   string
		reason string // "": not a RefusedError
	}{
		{503, "<html>down</html>", ""},
		{503, `{"NeutronError":{"type":"NoNetworkAvailable","message":"Unable to create the network. No tenant network is available for allocation.","detail":""}}`, samplecrdv1.ReasonRefused},
		{500, `{"NeutronError":{"type":"HTTPInternalServerError","message":"oh","detail":""}}`, ""},
		{409, `{"NeutronError":{"type":"SomethingElse","message":"oh","detail":""}}`, ""},
		{412, `{"NeutronError":{"type":"RevisionNumberConstraintFailed","message":"oh","detail":""}}`, ""},
		{409, `{"NeutronError":{"type":"GatewayIpInUse","message":"oh","detail":""}}`, samplecrdv1.ReasonInUse},
		{400, `{"NeutronError":{"type":"InvalidInput","message":"oh","detail":""}}`, samplecrdv1.ReasonRefused},
		{403, `{"NeutronError":{"type":"PolicyNotAuthorized","message":"oh","detail":""}}`, samplecrdv1.ReasonRefused},
		{401, "<html>who are you</html>", samplecrdv1.ReasonRefused},
		{404, "<html>not a Neutron</html>", ""},
		{429, "<html>slow down</html>", ""},
	} {
		t.Run(fmt.Sprint(c.status, c.body), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.Copy(w, bytes.NewBufferString(c.body))
			}))
			defer server.Close()
			cloud := &neutron.Cloud{Owner: owner, Client: &gophercloud.ServiceClient{ProviderClient: &gophercloud.ProviderClient{},
				Endpoint: server.URL + "/", ResourceBase: server.URL + "/v2.0/"}}
			_, err := cloud.Ensure(t.Context(), newNetwork())
			require.ErrorContains(t, err, "list networks")
			require.True(t, gophercloud.ResponseCodeIs(err, c.status), "the cause must be in the error's chain: %v", err)
			if c.reason != "" {
				requireReason(t, c.reason, err)
				return
			}
			var refused *crd.RefusedError
			require.NotErrorAs(t, err, &refused)
		})
	}
}

// A token has expired, and Keystone gives no new one. What counts is its answer.
func TestExpiredLogin(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	for status, reason := range map[int]string{http.StatusUnauthorized: samplecrdv1.ReasonRefused, http.StatusServiceUnavailable: ""} {
		provider := &gophercloud.ProviderClient{TokenID: "expired", ReauthFunc: func(context.Context) error {
			return gophercloud.ErrUnexpectedResponseCode{Actual: status}
		}}
		cloud := &neutron.Cloud{Owner: owner, Client: &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: server.URL + "/", ResourceBase: server.URL + "/v2.0/"}}
		require.Equal(t, reason == "", neutron.IsTemporary(cloud.Check(t.Context())))
		_, err := cloud.Ensure(t.Context(), newNetwork())
		if reason != "" {
			requireReason(t, reason, err)
			continue
		}
		var refused *crd.RefusedError
		require.Error(t, err)
		require.NotErrorAs(t, err, &refused)
	}
}

// respondTo returns a world in whose cloud all requests with that method get a status code.
func respondTo(t *testing.T, method string, status int) *world {
	if os.Getenv("NEUTRON_URL") != "" {
		t.Skip("needs the Neutron in memory")
	}
	w := newWorld(t)
	cloud := w.cloud.Client.HTTPClient.Transport
	w.cloud.Client.HTTPClient.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != method {
			return cloud.RoundTrip(r)
		}
		return &http.Response{StatusCode: status, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
	})
	return w
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Only 404 says that a network does not exist.
func TestDeletionThatFails(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict, http.StatusGone, http.StatusInternalServerError} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			w, n := respondTo(t, http.MethodDelete, status), newNetwork()
			w.ensure(n)
			err := w.cloud.Delete(t.Context(), n)
			require.True(t, gophercloud.ResponseCodeIs(err, status), "%v", err)
		})
	}
}

func TestDeletesAllDuplicates(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	w.ensure(n)
	for range 2 {
		_, err := networks.Create(t.Context(), w.direct, networks.CreateOpts{Name: nameOf(n), Description: "Kubernetes Network shop/n"}).Extract()
		require.NoError(t, err)
	}
	require.Len(t, w.networks(), 3)
	require.NoError(t, w.cloud.Delete(t.Context(), n))
	require.Empty(t, w.networks())
}

func TestForeignSubnetsAndPortsOnLaterPages(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	var want []string
	for number := range 3 {
		subnet, err := subnets.Create(t.Context(), w.direct, subnets.CreateOpts{Name: "other", NetworkID: made.NetworkID, CIDR: fmt.Sprintf("10.0.%d.0/24", number), IPVersion: 4}).Extract()
		require.NoError(t, err)
		want = append(want, subnet.ID)
	}
	err := w.cloud.Delete(t.Context(), n)
	for _, id := range want {
		require.ErrorContains(t, err, id)
		require.NoError(t, subnets.Delete(t.Context(), w.direct, id).ExtractErr())
	}
	want = nil
	for range 3 {
		port, err := ports.Create(t.Context(), w.direct, ports.CreateOpts{NetworkID: made.NetworkID, Name: "web"}).Extract()
		require.NoError(t, err)
		want = append(want, port.ID)
	}
	err = w.cloud.Delete(t.Context(), n)
	for _, id := range want {
		require.ErrorContains(t, err, id)
	}
}

// Whoever has the port deletes it after Neutron has refused the deletion, or the caller may not see it.
func TestInUseByNoPortThatCanBeNamed(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	port, err := ports.Create(t.Context(), w.direct, ports.CreateOpts{NetworkID: made.NetworkID, Name: "web"}).Extract()
	require.NoError(t, err)
	w.before = map[string]func(){"GET ports": func() {
		require.NoError(t, ports.Delete(t.Context(), w.direct, port.ID).ExtractErr())
	}}
	err = w.cloud.Delete(t.Context(), n)
	require.ErrorContains(t, err, "delete network for shop/n: ")
	require.NotErrorAs(t, err, new(*crd.RefusedError), "there is nothing to tell the user")
	require.NoError(t, w.cloud.Delete(t.Context(), n))
}

func TestStopsWaitingForACloudThatNeverAnswers(t *testing.T) {
	n := newNetwork()
	for name, do := range map[string]func(context.Context, *neutron.Cloud) error{
		"check":  func(ctx context.Context, cloud *neutron.Cloud) error { return cloud.Check(ctx) },
		"ensure": func(ctx context.Context, cloud *neutron.Cloud) error { _, err := cloud.Ensure(ctx, n); return err },
		"delete": func(ctx context.Context, cloud *neutron.Cloud) error { return cloud.Delete(ctx, n) },
		"owners": func(ctx context.Context, cloud *neutron.Cloud) error { _, err := cloud.Owners(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				cancel()
				<-r.Context().Done()
			}))
			t.Cleanup(server.Close)
			t.Setenv("NEUTRON_URL", server.URL)
			t.Setenv("NEUTRON_PROJECT", "test")
			cloud, err := neutron.Connect(ctx)
			require.NoError(t, err)
			cloud.Owner = owner
			require.Positive(t, cloud.Client.HTTPClient.Timeout, "or it would wait forever while nobody stops it")
			require.ErrorIs(t, do(ctx, cloud), context.Canceled)
		})
	}
}

func TestConnectWithoutKeystone(t *testing.T) {
	t.Setenv("NEUTRON_URL", "http://127.0.0.1:1")
	t.Setenv("NEUTRON_PROJECT", "mine")
	for roles, want := range map[string]string{"": "member,reader", "admin": "admin"} {
		t.Setenv("NEUTRON_ROLES", roles)
		cloud, err := neutron.Connect(t.Context())
		require.NoError(t, err)
		require.Equal(t, "mine", cloud.Client.MoreHeaders["X-Project-Id"])
		require.Equal(t, want, cloud.Client.MoreHeaders["X-Roles"])
	}
}

func TestIsTemporary(t *testing.T) {
	require.False(t, neutron.IsTemporary(nil))
	require.True(t, neutron.IsTemporary(fmt.Errorf("check: %w", io.ErrUnexpectedEOF)))
	for status, want := range map[int]bool{400: false, 401: false, 403: false, 404: false, 429: true, 500: true, 503: true} {
		require.Equal(t, want, neutron.IsTemporary(fmt.Errorf("check: %w", gophercloud.ErrUnexpectedResponseCode{Actual: status})), status)
	}
}
