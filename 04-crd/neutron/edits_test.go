package neutron_test

import (
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"github.com/stretchr/testify/require"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

// objects are the networks and the subnets of the project, without what each change changes.
type objects struct {
	networks []networks.Network
	subnets  []subnets.Subnet
}

func (w *world) objects() objects {
	w.Helper()
	now := objects{w.networks(), w.subnets()}
	for i := range now.networks {
		now.networks[i].RevisionNumber, now.networks[i].UpdatedAt = 0, time.Time{}
	}
	for i := range now.subnets {
		now.subnets[i].RevisionNumber, now.subnets[i].UpdatedAt = 0, time.Time{}
	}
	return now
}

// What the controller does with each thing that an operator of the cloud can change by hand. The page has a table of it.
func TestEditsByHand(t *testing.T) {
	type edit func(w *world, n *samplecrdv1.Network, made crd.IDs)
	network := func(name string, value any) edit {
		return func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.edit("networks", made.NetworkID, map[string]any{name: value})
		}
	}
	subnet := func(name string, value any) edit {
		return func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.edit("subnets", made.SubnetID, map[string]any{name: value})
		}
	}
	type outcome int
	const (
		repaired outcome = iota // the cloud is as it was before the edit
		leftAlone
		reported // left alone, and Ensure returns a RefusedError
	)
	pool := func(start, end string) []map[string]string { return []map[string]string{{"start": start, "end": end}} }
	for name, c := range map[string]struct {
		edit edit
		want outcome
	}{
		"network: name":        {network("name", "prod-db"), repaired},
		"network: no name":     {network("name", ""), repaired},
		"network: description": {network("description", "do not touch"), repaired},
		"network: tag removed": {func(w *world, _ *samplecrdv1.Network, made crd.IDs) { w.tag("networks", made.NetworkID) }, repaired},
		"network: more tags": {func(w *world, n *samplecrdv1.Network, made crd.IDs) {
			w.tag("networks", made.NetworkID, nameOf(n), "prod")
		}, leftAlone},
		"network: switched off": {network("admin_state_up", false), reported},
		"network: MTU":          {network("mtu", 1400), leftAlone},
		"network: shared":       {network("shared", true), leftAlone},
		"network: a second subnet": {func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			_, err := subnets.Create(t.Context(), w.direct, subnets.CreateOpts{NetworkID: made.NetworkID, CIDR: "10.0.0.0/24", IPVersion: 4}).Extract()
			require.NoError(w, err)
		}, leftAlone},
		"subnet: name":        {subnet("name", "prod-db"), repaired},
		"subnet: description": {subnet("description", ""), repaired},
		"subnet: tag removed": {func(w *world, _ *samplecrdv1.Network, made crd.IDs) { w.tag("subnets", made.SubnetID) }, repaired},
		"subnet: more tags": {func(w *world, n *samplecrdv1.Network, made crd.IDs) {
			w.tag("subnets", made.SubnetID, "prod", nameOf(n))
		}, leftAlone},
		"subnet: gateway outside":  {subnet("gateway_ip", "10.0.0.1"), repaired},
		"subnet: no gateway":       {subnet("gateway_ip", nil), repaired},
		"subnet: allocation pools": {subnet("allocation_pools", pool("192.168.0.100", "192.168.0.200")), leftAlone},
		"subnet: DNS servers":      {subnet("dns_nameservers", []string{"9.9.9.9"}), leftAlone},
		"subnet: without DHCP":     {subnet("enable_dhcp", false), leftAlone},
		"subnet: gateway and pools": {func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.edit("subnets", made.SubnetID, map[string]any{"gateway_ip": "192.168.255.254", "allocation_pools": pool("192.168.0.1", "192.168.255.253")})
		}, repaired},
		"subnet: replaced by one that overlaps": {func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			require.NoError(w, subnets.Delete(t.Context(), w.direct, made.SubnetID).ExtractErr())
			_, err := subnets.Create(t.Context(), w.direct, subnets.CreateOpts{Name: "theirs", NetworkID: made.NetworkID, CIDR: "192.168.7.0/24", IPVersion: 4}).Extract()
			require.NoError(w, err)
		}, reported},
	} {
		t.Run(name, func(t *testing.T) {
			w, n := newWorld(t), newNetwork()
			made := w.ensure(n)
			want := w.objects()
			defer w.edit("networks", made.NetworkID, map[string]any{"shared": false}) // or other projects, of other tests, would see it
			for edits := range 2 {
				if edits == 0 || c.want == repaired { // what is left alone is still so
					c.edit(w, n, made)
				}
				if c.want != repaired {
					want = w.objects()
				}
				w.took()
				ids, err := w.cloud.Ensure(t.Context(), n)
				if c.want == reported {
					require.ErrorAs(t, err, new(*crd.RefusedError))
				} else {
					require.NoError(t, err)
					require.Equal(t, made, ids)
				}
				require.Equal(t, c.want == repaired, len(w.took()) > 2, "only repairs take writes")
				require.Equal(t, want, w.objects())
			}
		})
	}
}

// The subnet, or all of it, was deleted: it is created again, and everything that used it is lost.
func TestDeletedByHand(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	for range 2 {
		require.NoError(t, subnets.Delete(t.Context(), w.direct, made.SubnetID).ExtractErr())
		w.took()
		again := w.ensure(n)
		require.Equal(t, []string{"GET networks", "POST subnets", "PUT subnets/tags"}, w.took())
		require.Equal(t, made.NetworkID, again.NetworkID)
		require.NotEqual(t, made.SubnetID, again.SubnetID)
		w.requireOne(n, again)

		require.NoError(t, networks.Delete(t.Context(), w.direct, made.NetworkID).ExtractErr())
		again = w.ensure(n)
		require.NotEqual(t, made.NetworkID, again.NetworkID)
		w.requireOne(n, again)
		made = again
	}
}

// What is reported says what to do, and is deleted all the same.
func TestReports(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	w.edit("networks", made.NetworkID, map[string]any{"admin_state_up": false})
	w.edit("subnets", made.SubnetID, map[string]any{"gateway_ip": "10.0.0.1"})
	ids, err := w.cloud.Ensure(t.Context(), n)
	require.Equal(t, made, ids)
	require.EqualError(t, err, "somebody has switched the network "+made.NetworkID+" off in the cloud; switch it on with: openstack network set --enable "+made.NetworkID)
	requireReason(t, samplecrdv1.ReasonDisabled, err)
	require.Equal(t, "192.168.0.1", w.subnets()[0].GatewayIP, "everything else is repaired")
	w.edit("networks", made.NetworkID, map[string]any{"admin_state_up": true})
	w.requireOne(n, w.ensure(n))

	require.NoError(t, subnets.Delete(t.Context(), w.direct, made.SubnetID).ExtractErr())
	theirs, err := subnets.Create(t.Context(), w.direct, subnets.CreateOpts{Name: "theirs", NetworkID: made.NetworkID, CIDR: "192.168.7.0/24", IPVersion: 4}).Extract()
	require.NoError(t, err)
	_, err = w.cloud.Ensure(t.Context(), n)
	require.EqualError(t, err, "the subnet "+theirs.ID+` ("theirs", 192.168.7.0/24), which this controller did not create, overlaps with spec.cidr, 192.168.0.0/16; delete it`)
	requireReason(t, samplecrdv1.ReasonRefused, err)
	require.NoError(t, subnets.Delete(t.Context(), w.direct, theirs.ID).ExtractErr())
	w.edit("networks", made.NetworkID, map[string]any{"admin_state_up": false})
	require.NoError(t, w.cloud.Delete(t.Context(), n))
	require.Empty(t, w.networks())
}

// Ports of another project, on a shared network, keep it from being deleted like any other port.
func TestDeletionOfASharedNetwork(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	w.edit("networks", made.NetworkID, map[string]any{"shared": true})
	other := *w.direct
	other.MoreHeaders = map[string]string{"X-User-Id": "other", "X-Project-Id": "other", "X-Roles": "member,reader"}
	port, err := ports.Create(t.Context(), &other, ports.CreateOpts{NetworkID: made.NetworkID, Name: "theirs"}).Extract()
	require.NoError(t, err)
	err = w.cloud.Delete(t.Context(), n)
	require.EqualError(t, err, "ports still use the network; delete them first: theirs "+port.ID)
	requireReason(t, samplecrdv1.ReasonInUse, err)
	require.NoError(t, ports.Delete(t.Context(), &other, port.ID).ExtractErr())
	require.NoError(t, w.cloud.Delete(t.Context(), n))
	require.Empty(t, w.networks())
}

// Pools that somebody has chosen outlive a change of the gateway. They lose only the gateway's address.
func TestChosenAllocationPools(t *testing.T) {
	type pools = []subnets.AllocationPool
	for gateway, want := range map[string]pools{
		"192.168.0.2":   {{Start: "192.168.0.100", End: "192.168.0.200"}, {Start: "192.168.1.0", End: "192.168.1.0"}},
		"192.168.0.150": {{Start: "192.168.0.100", End: "192.168.0.149"}, {Start: "192.168.0.151", End: "192.168.0.200"}, {Start: "192.168.1.0", End: "192.168.1.0"}},
		"192.168.0.100": {{Start: "192.168.0.101", End: "192.168.0.200"}, {Start: "192.168.1.0", End: "192.168.1.0"}},
		"192.168.0.200": {{Start: "192.168.0.100", End: "192.168.0.199"}, {Start: "192.168.1.0", End: "192.168.1.0"}},
		"192.168.1.0":   {{Start: "192.168.0.100", End: "192.168.0.200"}},
	} {
		t.Run(gateway, func(t *testing.T) {
			w, n := newWorld(t), newNetwork()
			made := w.ensure(n)
			w.edit("subnets", made.SubnetID, map[string]any{"allocation_pools": []map[string]string{
				{"start": "192.168.1.0", "end": "192.168.1.0"}, {"start": "192.168.0.100", "end": "192.168.0.200"}}})
			n.Spec.Gateway = gateway
			w.ensure(n)
			require.Equal(t, gateway, w.subnets()[0].GatewayIP)
			require.ElementsMatch(t, want, w.subnets()[0].AllocationPools)
		})
	}
	t.Run("none is left", func(t *testing.T) {
		w, n := newWorld(t), newNetwork()
		made := w.ensure(n)
		w.edit("subnets", made.SubnetID, map[string]any{"allocation_pools": []map[string]string{{"start": "192.168.1.0", "end": "192.168.1.0"}}})
		n.Spec.Gateway = "192.168.1.0"
		_, err := w.cloud.Ensure(t.Context(), n)
		require.EqualError(t, err, "change the gateway of subnet for shop/n: Gateway ip 192.168.1.0 conflicts with allocation pool 192.168.1.0-192.168.1.0.")
		requireReason(t, samplecrdv1.ReasonInUse, err)
	})
}

// Neutron writes some IPv6 addresses otherwise than Go and Kubernetes do. That is no drift.
func TestIPv6AddressesInAnotherForm(t *testing.T) {
	for _, spec := range []samplecrdv1.NetworkSpec{{CIDR: "::a00:0/120", Gateway: "::a00:1"}, {CIDR: "1:2:0:4:5:6:7:0/120", Gateway: "1:2:0:4:5:6:7:1"}} {
		w, n := newWorld(t), newNetwork()
		n.Spec = spec
		made := w.ensure(n)
		w.took()
		require.Equal(t, made, w.ensure(n))
		require.Equal(t, []string{"GET networks", "GET subnets"}, w.took())
	}
}

// A cloud may have no tags.
func TestNoTags(t *testing.T) {
	w := respondTo(t, "PUT", 404)
	_, err := w.cloud.Ensure(t.Context(), newNetwork())
	require.EqualError(t, err, "this Neutron has no tags; it needs the extension standard-attr-tag")
	requireReason(t, samplecrdv1.ReasonRefused, err)

	w, n := newWorld(t), newNetwork()
	w.before = map[string]func(){"PUT networks/tags": func() {
		require.NoError(t, networks.Delete(t.Context(), w.direct, w.networks()[0].ID).ExtractErr())
	}}
	_, err = w.cloud.Ensure(t.Context(), n)
	require.ErrorContains(t, err, "set the tag of network for shop/n: ")
	require.NotErrorAs(t, err, new(*crd.RefusedError), "the network was deleted; a retry creates it again")
	require.True(t, gophercloud.ResponseCodeIs(err, 404))
	w.requireOne(n, w.ensure(n))
}
