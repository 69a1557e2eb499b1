// Package neutron is the backend that creates networks in an OpenStack cloud.
//
// Each Network gets one network with one subnet. The names of both contain the Network's UID. Names in Neutron are not
// unique, but nobody else has a reason to choose this one, and a network has its name from the moment of its creation. So
// after a creation whose response was lost, the network can be found by its name. Tags cannot be set at creation; both get
// one right afterwards, by which they are found after somebody has renamed them.
package neutron

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"k8s.io/apimachinery/pkg/types"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

// Cloud is a [crd.Backend].
type Cloud struct {
	// Client is for the service "network".
	Client *gophercloud.ServiceClient
	// Owner is part of the name and the tag of each network, so that several clusters can share a project. It is the UID of the
	// Networks' namespace. Required.
	Owner types.UID
}

// Ensure implements [crd.Backend]. It makes six requests to create a network with its subnet, and two to find that nothing
// has to be changed.
func (c *Cloud) Ensure(ctx context.Context, n *samplecrdv1.Network) (crd.IDs, error) {
	existing, err := c.findNetworks(ctx, n)
	if err != nil {
		return crd.IDs{}, err
	}
	if len(existing) == 0 {
		network, err := networks.Create(ctx, c.Client, networks.CreateOpts{Name: c.mark(n), Description: description(n)}).Extract()
		if err != nil {
			return crd.IDs{}, explain("create network", n, err)
		}
		existing = append(existing, *network)
	}
	// There are duplicates if the cloud completed a creation after the controller had given up on it.
	for _, duplicate := range existing[1:] {
		if err := c.deleteNetwork(ctx, n, duplicate); err != nil {
			return crd.IDs{}, err
		}
	}
	if err := c.markNetwork(ctx, n, existing[0]); err != nil {
		return crd.IDs{}, err
	}
	ids := crd.IDs{NetworkID: existing[0].ID}
	ids.SubnetID, err = c.ensureSubnet(ctx, n, existing[0])
	if err == nil && !existing[0].AdminStateUp {
		err = disabled(existing[0])
	}
	return ids, err
}

// disabled returns the RefusedError for a network that somebody has switched off. That may be an emergency, so the
// controller does not switch it on.
func disabled(network networks.Network) error {
	return &crd.RefusedError{Reason: samplecrdv1.ReasonDisabled,
		Message: fmt.Sprintf("somebody has switched the network %s off in the cloud; switch it on with: openstack network set --enable %s", network.ID, network.ID)}
}

// Delete implements [crd.Backend].
func (c *Cloud) Delete(ctx context.Context, n *samplecrdv1.Network) error {
	existing, err := c.findNetworks(ctx, n)
	if err != nil {
		return err
	}
	for _, network := range existing {
		if err := c.deleteNetwork(ctx, n, network); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cloud) listNetworks(ctx context.Context, which networks.ListOpts) ([]networks.Network, error) {
	pages, err := networks.List(c.Client, which).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return networks.ExtractNetworks(pages)
}

// deleteNetwork deletes a network and its subnet. It refuses if the network has subnets that somebody else created.
func (c *Cloud) deleteNetwork(ctx context.Context, n *samplecrdv1.Network, network networks.Network) error {
	isForeign := func(id string) bool { return id != n.Status.SubnetID }
	if !slices.ContainsFunc(network.Subnets, isForeign) {
		return c.deleteNow(ctx, n, network)
	}
	all, err := c.listSubnets(ctx, n, subnets.ListOpts{NetworkID: network.ID})
	if err != nil {
		return err
	}
	var foreign []string
	for _, subnet := range all {
		if !c.isSubnetOf(n, subnet) {
			foreign = append(foreign, strings.TrimSpace(subnet.Name+" "+subnet.ID))
		}
	}
	if len(foreign) > 0 {
		return &crd.RefusedError{Reason: samplecrdv1.ReasonInUse,
			Message: "the network has subnets that this controller did not create; delete them first: " + strings.Join(foreign, ", ")}
	}
	return c.deleteNow(ctx, n, network)
}

// deleteNow deletes a network with all its subnets. Neutron refuses while ports use it.
func (c *Cloud) deleteNow(ctx context.Context, n *samplecrdv1.Network, network networks.Network) error {
	// A precondition: if the network has changed since it was listed, it may have a foreign subnet by now.
	_, err := c.Client.Delete(ctx, c.Client.ServiceURL("networks", network.ID), &gophercloud.RequestOpts{
		MoreHeaders: map[string]string{"If-Match": fmt.Sprintf("revision_number=%d", network.RevisionNumber)},
	})
	switch {
	case gophercloud.ResponseCodeIs(err, http.StatusNotFound):
		return nil
	case errorType(err) == "NetworkInUse":
		return c.inUse(ctx, n, network.ID, err)
	}
	return explain("delete network", n, err)
}

// deletedWithNetwork are the owners of ports that Neutron deletes itself, with the network.
var deletedWithNetwork = map[string]bool{"network:dhcp": true, "network:distributed": true, "network:floatingip_agent_gateway": true}

// inUse returns a RefusedError that names the ports that use the network, or cause if it finds none.
func (c *Cloud) inUse(ctx context.Context, n *samplecrdv1.Network, networkID string, cause error) error {
	pages, err := ports.List(c.Client, ports.ListOpts{NetworkID: networkID}).AllPages(ctx)
	if err != nil {
		return explain("list ports", n, err)
	}
	all, err := ports.ExtractPorts(pages)
	if err != nil {
		return explain("list ports", n, err)
	}
	var names []string
	for _, p := range all {
		if !deletedWithNetwork[p.DeviceOwner] {
			names = append(names, strings.TrimSpace(p.Name+" "+p.ID))
		}
	}
	if len(names) == 0 { // deleted meanwhile, or of another project
		return explain("delete network", n, cause)
	}
	slices.Sort(names)
	return crd.InUse(names, cause)
}
