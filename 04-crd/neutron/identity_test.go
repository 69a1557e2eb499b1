package neutron_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/attributestags"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

// edit changes attributes of a network or a subnet by hand.
func (w *world) edit(collection, id string, attributes map[string]any) {
	w.Helper()
	_, err := w.admin.Put(w.Context(), w.admin.ServiceURL(collection, id), map[string]any{strings.TrimSuffix(collection, "s"): attributes}, nil, &gophercloud.RequestOpts{OkCodes: []int{http.StatusOK}})
	require.NoError(w, err)
}

// tag replaces the tags of a network or a subnet.
func (w *world) tag(collection, id string, tags ...string) {
	w.Helper()
	_, err := attributestags.ReplaceAll(w.Context(), w.direct, collection, id, attributestags.ReplaceAllOpts{Tags: append([]string{}, tags...)}).Extract()
	require.NoError(w, err)
}

func (w *world) create(name, description string, tags ...string) networks.Network {
	w.Helper()
	made, err := networks.Create(w.Context(), w.direct, networks.CreateOpts{Name: name, Description: description}).Extract()
	require.NoError(w, err)
	w.tag("networks", made.ID, tags...)
	return *made
}

// forget removes what the status knows of the cloud.
func forget(n *samplecrdv1.Network) { n.Status = samplecrdv1.NetworkStatus{} }

// A network is found again by its ID in the status, by its tag, or by its name, whatever else was edited. What was edited
// of these is repaired, and the ports stay where they are.
func TestFindsItsNetworkAgain(t *testing.T) {
	for name, lose := range map[string]func(w *world, n *samplecrdv1.Network, made crd.IDs){
		"renamed": func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.edit("networks", made.NetworkID, map[string]any{"name": "prod-db"})
		},
		"renamed and described anew": func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.edit("networks", made.NetworkID, map[string]any{"name": "prod-db", "description": "do not touch"})
		},
		"renamed, and the status is gone": func(w *world, n *samplecrdv1.Network, made crd.IDs) {
			w.edit("networks", made.NetworkID, map[string]any{"name": "prod-db", "description": "do not touch"})
			forget(n)
		},
		"without the tag": func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.tag("networks", made.NetworkID)
		},
		"without the tag and the status": func(w *world, n *samplecrdv1.Network, made crd.IDs) {
			w.tag("networks", made.NetworkID)
			forget(n)
		},
		"renamed, with other tags": func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.edit("networks", made.NetworkID, map[string]any{"name": "kubernetes-prod"})
			w.tag("networks", made.NetworkID, "kubernetes-prod", "billing=42")
		},
		"the subnet renamed": func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.edit("subnets", made.SubnetID, map[string]any{"name": "prod-db", "description": "do not touch"})
		},
		"the subnet renamed, and the status is gone": func(w *world, n *samplecrdv1.Network, made crd.IDs) {
			w.edit("subnets", made.SubnetID, map[string]any{"name": "prod-db", "description": "do not touch"})
			forget(n)
		},
		"the subnet renamed, without the tag": func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.edit("subnets", made.SubnetID, map[string]any{"name": "prod-db", "description": ""})
			w.tag("subnets", made.SubnetID)
		},
		"the subnet without the tag and the status": func(w *world, n *samplecrdv1.Network, made crd.IDs) {
			w.tag("subnets", made.SubnetID)
			forget(n)
		},
		"all renamed": func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.edit("networks", made.NetworkID, map[string]any{"name": ""})
			w.edit("subnets", made.SubnetID, map[string]any{"name": ""})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, n := newWorld(t), newNetwork()
			made := w.ensure(n)
			port, err := ports.Create(t.Context(), w.direct, ports.CreateOpts{NetworkID: made.NetworkID}).Extract()
			require.NoError(t, err)
			lose(w, n, made)
			require.Equal(t, made, w.ensure(n))
			w.requireOne(n, made)
			w.took()
			w.ensure(n)
			require.Equal(t, []string{"GET networks", "GET subnets"}, w.took(), "everything has been repaired")

			require.NoError(t, ports.Delete(t.Context(), w.direct, port.ID).ExtractErr())
			lose(w, n, made)
			require.NoError(t, w.cloud.Delete(t.Context(), n))
			require.Empty(t, w.networks())
			require.Empty(t, w.subnets())
		})
	}
}

// The status may have been copied: a restore from a backup creates Networks with new UIDs and the old status. A network
// that says that it is another Network's is neither adopted nor deleted, whatever the status says.
func TestAnIDInTheStatusIsNotEnough(t *testing.T) {
	for name, disguise := range map[string]func(w *world, other *samplecrdv1.Network, made crd.IDs){
		"untouched": func(*world, *samplecrdv1.Network, crd.IDs) {},
		"renamed": func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.edit("networks", made.NetworkID, map[string]any{"name": "prod-db", "description": "do not touch"})
			w.edit("subnets", made.SubnetID, map[string]any{"name": "prod-db", "description": "do not touch"})
		},
		"without the tag": func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.edit("networks", made.NetworkID, map[string]any{"description": "do not touch"})
			w.tag("networks", made.NetworkID)
		},
		"with the description only": func(w *world, _ *samplecrdv1.Network, made crd.IDs) {
			w.edit("networks", made.NetworkID, map[string]any{"name": "prod-db"})
			w.tag("networks", made.NetworkID)
		},
		"of another cluster": func(w *world, other *samplecrdv1.Network, made crd.IDs) {
			w.edit("networks", made.NetworkID, map[string]any{"name": "kubernetes-another-" + string(other.UID)})
			w.tag("networks", made.NetworkID, "kubernetes-another-"+string(other.UID))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, other, restored := newWorld(t), newNetwork(), newNetwork()
			other.Name = "original"
			theirs := w.ensure(other)
			disguise(w, other, theirs)
			before := w.networks()
			restored.Status = *other.Status.DeepCopy()
			ours := w.ensure(restored)
			require.NotEqual(t, theirs.NetworkID, ours.NetworkID)
			require.NotEqual(t, theirs.SubnetID, ours.SubnetID)
			require.Len(t, w.networks(), 2)
			require.Contains(t, w.networks(), before[0], "it must not be changed")

			restored.Status = *other.Status.DeepCopy()
			require.NoError(t, w.cloud.Delete(t.Context(), restored))
			require.Equal(t, before, w.networks())
			require.Len(t, w.subnets(), 1)
		})
	}
}

// If nothing of a network says any more whose it is, a person has to decide: it may be the Network's, or the status a copy.
func TestANetworkThatSaysNothing(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	w.edit("networks", made.NetworkID, map[string]any{"name": "prod-db", "description": "do not touch"})
	w.tag("networks", made.NetworkID, "prod")
	before := w.networks()
	want := "the network " + made.NetworkID + " (prod-db), whose ID is in the status, has lost its name, its description and its tag, so it may be another's; " +
		"if it is this Network's, give it the tag " + nameOf(n) + " again; if not, remove networkID from the status"
	_, err := w.cloud.Ensure(t.Context(), n)
	require.EqualError(t, err, want)
	requireReason(t, samplecrdv1.ReasonRefused, err)
	require.EqualError(t, w.cloud.Delete(t.Context(), n), want)
	require.Equal(t, before, w.networks())

	require.NoError(t, attributestags.Add(t.Context(), w.direct, "networks", made.NetworkID, nameOf(n)).ExtractErr())
	require.Equal(t, made, w.ensure(n))
	w.requireOne(n, made)
	require.Contains(t, w.networks()[0].Tags, "prod", "it is not ours")

	w.edit("networks", made.NetworkID, map[string]any{"name": "prod-db", "description": "do not touch"})
	w.tag("networks", made.NetworkID)
	forget(n)
	require.NotEqual(t, made.NetworkID, w.ensure(n).NetworkID)
	require.NoError(t, w.cloud.Delete(t.Context(), n))
	require.Len(t, w.networks(), 1)
}

// Each network belongs to one Network at most, even if its tags and its name do not agree.
func TestContradictions(t *testing.T) {
	const described = "Kubernetes Network shop/n"
	a, b := newNetwork(), newNetwork()
	for name, c := range map[string]struct {
		name string
		tags []string
		of   *samplecrdv1.Network // nil: nobody's
	}{
		"the tag counts more than the name":          {nameOf(b), []string{nameOf(a)}, a},
		"other tags do not count":                    {nameOf(b), []string{"kubernetes-prod", "kubernetes-" + owner, "x"}, b},
		"of two tags, none counts, but the name":     {nameOf(b), []string{nameOf(a), nameOf(b)}, b},
		"of two tags, none counts, and no name does": {"n", []string{nameOf(a), nameOf(b)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			network := w.create(c.name, described, c.tags...)
			for _, n := range []*samplecrdv1.Network{a, b} {
				forget(n)
				if n == c.of {
					require.Equal(t, network.ID, w.ensure(n).NetworkID)
				} else {
					require.NotEqual(t, network.ID, w.ensure(n).NetworkID)
				}
			}
		})
	}
}

// Of several networks, the one whose ID is in the status is kept, then the one that has the tag, which the others may lack.
func TestPrefersTheTag(t *testing.T) {
	for range rounds() {
		w, n := newWorld(t), newNetwork()
		made := w.ensure(n)
		w.create(nameOf(n), "Kubernetes Network shop/n")
		forget(n)
		require.Equal(t, made, w.ensure(n))
		w.requireOne(n, made)
	}
}

// The sweep, which knows no status, finds networks that were renamed or described anew, and deletes them.
func TestOwnersOfEditedNetworks(t *testing.T) {
	w, a, b, c := newWorld(t), newNetwork(), newNetwork(), newNetwork()
	b.Name, c.Name = "b", "c"
	w.ensure(a)
	w.edit("networks", w.ensure(b).NetworkID, map[string]any{"name": "prod-db"})
	w.edit("networks", w.ensure(c).NetworkID, map[string]any{"name": "prod-web", "description": "do not touch"})
	w.create("foreign", "Kubernetes Network shop/n")
	w.create("foreign", "Kubernetes Network shop/n", "kubernetes-another-"+uuid.NewString())
	w.took()
	owners, err := w.cloud.Owners(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"GET networks"}, w.took())
	require.ElementsMatch(t, []crd.Owner{
		{Namespace: "shop", Name: "n", UID: a.UID}, {Namespace: "shop", Name: "b", UID: b.UID}, {UID: c.UID},
	}, owners)
	for _, owner := range owners {
		orphan := &samplecrdv1.Network{}
		orphan.Namespace, orphan.Name, orphan.UID = owner.Namespace, owner.Name, owner.UID
		require.NoError(t, w.cloud.Delete(t.Context(), orphan))
	}
	require.Len(t, w.networks(), 2, "those of others stay")
}

// The names of the Networks that Owners returns are complete, or empty.
func TestLongNames(t *testing.T) {
	lengths := []int{172, 205, 231, 232, 253} // 231 is the longest that fits beside "shop"
	for _, length := range lengths[len(lengths)-min(len(lengths), rounds()):] {
		w, n := newWorld(t), newNetwork()
		n.Name = strings.Repeat("n", length)
		made := w.ensure(n)
		network := w.networks()[0]
		require.LessOrEqual(t, len(network.Description), 255)
		require.Equal(t, length > 231, strings.HasSuffix(network.Description, "n..."), network.Description)
		require.Equal(t, network.Description, w.subnets()[0].Description)
		w.took()
		require.Equal(t, made, w.ensure(n))
		require.Equal(t, []string{"GET networks", "GET subnets"}, w.took(), "the short description is the right one")
		w.edit("networks", made.NetworkID, map[string]any{"name": "renamed"})
		w.tag("networks", made.NetworkID)
		require.Equal(t, made, w.ensure(n), "it is found by its ID, as the short description is its own")

		want := crd.Owner{Namespace: "shop", Name: n.Name, UID: n.UID}
		if length > 231 {
			want = crd.Owner{UID: n.UID}
		}
		owners, err := w.cloud.Owners(t.Context())
		require.NoError(t, err)
		require.Equal(t, []crd.Owner{want}, owners)
		require.NoError(t, w.cloud.Delete(t.Context(), n))
		require.Empty(t, w.networks())
	}
}

// Whoever adds something between two requests of the controller is not overwritten.
func TestRenamedBetweenRequests(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	w.edit("networks", made.NetworkID, map[string]any{"name": "prod-db"})
	w.before = map[string]func(){"PUT networks": func() { w.edit("networks", made.NetworkID, map[string]any{"mtu": 1400}) }}
	_, err := w.cloud.Ensure(t.Context(), n)
	require.ErrorContains(t, err, "restore the name and the description of network for shop/n: ")
	require.ErrorContains(t, err, "current revision is ")
	require.Equal(t, made, w.ensure(n))
	w.requireOne(n, made)
	require.Equal(t, types.UID(strings.TrimPrefix(w.networks()[0].Name, "kubernetes-"+owner+"-")), n.UID)
}

// A subnet that only has the Network's name is not its subnet if it has another range.
func TestSubnetOfAnotherRange(t *testing.T) {
	w, n := newWorld(t), newNetwork()
	made := w.ensure(n)
	require.NoError(t, subnets.Delete(t.Context(), w.direct, made.SubnetID).ExtractErr())
	namesake, err := subnets.Create(t.Context(), w.direct, subnets.CreateOpts{Name: nameOf(n), NetworkID: made.NetworkID, CIDR: "10.0.0.0/24", IPVersion: 4}).Extract()
	require.NoError(t, err)
	again := w.ensure(n)
	require.Equal(t, made.NetworkID, again.NetworkID)
	require.NotContains(t, []string{made.SubnetID, namesake.ID}, again.SubnetID)
	require.Len(t, w.subnets(), 2)
}
