// Package neutron is the backend that creates networks in an OpenStack cloud.
//
// Each Network gets one network with one subnet. The names of both contain the Network's UID. Names in Neutron are not
// unique, but nobody else has a reason to choose this one, and a network has its name from the moment of its creation. So
// after a creation whose response was lost, the network can be found by its name. Tags cannot be set at creation.
package neutron

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
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
	// Owner is part of the name of each network, so that several clusters can share a project. It is the UID of the
	// Networks' namespace. Required.
	Owner types.UID
}

// Ensure implements [crd.Backend]. It makes three requests to create a network with its subnet, and two to find that
// nothing has to be changed.
func (c *Cloud) Ensure(ctx context.Context, n *samplecrdv1.Network) (crd.IDs, error) {
	existing, err := c.findNetworks(ctx, n)
	if err != nil {
		return crd.IDs{}, err
	}
	if len(existing) == 0 {
		network, err := networks.Create(ctx, c.Client, networks.CreateOpts{Name: c.name(n), Description: description(n)}).Extract()
		if err != nil {
			return crd.IDs{}, explain("create network", n, err)
		}
		subnetID, err := c.createSubnet(ctx, n, network.ID)
		return crd.IDs{NetworkID: network.ID, SubnetID: subnetID}, err
	}
	// There are duplicates if the cloud completed a creation after the controller had given up on it.
	for _, duplicate := range existing[1:] {
		if err := c.deleteNetwork(ctx, n, duplicate); err != nil {
			return crd.IDs{}, err
		}
	}
	ids := crd.IDs{NetworkID: existing[0].ID}
	ids.SubnetID, err = c.ensureSubnet(ctx, n, ids.NetworkID)
	return ids, err
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

// Owners implements [crd.Backend]. It makes one request.
func (c *Cloud) Owners(ctx context.Context) ([]crd.Owner, error) {
	if c.Owner == "" {
		return nil, errNoOwner
	}
	all, err := c.listNetworks(ctx, networks.ListOpts{})
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	var owners []crd.Owner
	for _, network := range all {
		uid, isNamed := strings.CutPrefix(network.Name, c.prefix())
		key, isDescribed := strings.CutPrefix(network.Description, descriptionPrefix)
		namespace, name, isKey := strings.Cut(key, "/")
		if isNamed && isDescribed && isKey {
			owners = append(owners, crd.Owner{Namespace: namespace, Name: name, UID: types.UID(uid)})
		}
	}
	return owners, nil
}

func (c *Cloud) listNetworks(ctx context.Context, which networks.ListOpts) ([]networks.Network, error) {
	pages, err := networks.List(c.Client, which).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return networks.ExtractNetworks(pages)
}

var errNoOwner = errors.New("the Cloud has no Owner, so its networks cannot be told from others; set Owner")

func (c *Cloud) prefix() string { return "kubernetes-" + string(c.Owner) + "-" }

func (c *Cloud) name(n *samplecrdv1.Network) string { return c.prefix() + string(n.UID) }

const descriptionPrefix = "Kubernetes Network "

// description tells people what the network is for.
func description(n *samplecrdv1.Network) string {
	return descriptionPrefix + n.Namespace + "/" + n.Name
}

// findNetworks returns the networks that belong to a Network: those with its name whose description is the Network's, too, or
// whose ID is in the status, since somebody may have edited the description. The first one is the one to keep: the one whose
// ID is in the status, or else that with the lowest ID.
func (c *Cloud) findNetworks(ctx context.Context, n *samplecrdv1.Network) ([]networks.Network, error) {
	if n.UID == "" {
		return nil, fmt.Errorf("find networks of Network %s/%s: it has no UID", n.Namespace, n.Name) // all such Networks would share a name in the cloud
	}
	if c.Owner == "" {
		return nil, errNoOwner
	}
	existing, err := c.listNetworks(ctx, networks.ListOpts{Name: c.name(n)})
	if err != nil {
		return nil, explain("list networks", n, err)
	}
	existing = slices.DeleteFunc(existing, func(network networks.Network) bool {
		return network.Description != description(n) && network.ID != n.Status.NetworkID
	})
	slices.SortFunc(existing, func(a, b networks.Network) int {
		switch n.Status.NetworkID {
		case a.ID:
			return -1
		case b.ID:
			return 1
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return existing, nil
}

// ensureSubnet creates the subnet, or changes its gateway, if it has to.
func (c *Cloud) ensureSubnet(ctx context.Context, n *samplecrdv1.Network, networkID string) (id string, err error) {
	existing, err := c.listSubnets(ctx, n, subnets.ListOpts{NetworkID: networkID, Name: c.name(n)})
	if err != nil {
		return "", err
	}
	if len(existing) == 0 {
		return c.createSubnet(ctx, n, networkID)
	}
	subnet := existing[0] // there is no second one: Neutron refuses overlapping subnets
	if subnet.GatewayIP == n.Spec.Gateway {
		return subnet.ID, nil
	}
	pools, err := allocationPools(n)
	if err != nil {
		return "", err
	}
	_, err = subnets.Update(ctx, c.Client, subnet.ID, subnets.UpdateOpts{
		GatewayIP: &n.Spec.Gateway, AllocationPools: pools, // the pools must not contain the new gateway
		RevisionNumber: &subnet.RevisionNumber, // a precondition: fails if the subnet has changed since it was listed
	}).Extract()
	return subnet.ID, explain("change the gateway of subnet", n, err)
}

func (c *Cloud) listSubnets(ctx context.Context, n *samplecrdv1.Network, which subnets.ListOpts) ([]subnets.Subnet, error) {
	pages, err := subnets.List(c.Client, which).AllPages(ctx)
	if err != nil {
		return nil, explain("list subnets", n, err)
	}
	all, err := subnets.ExtractSubnets(pages)
	return all, explain("list subnets", n, err)
}

func (c *Cloud) createSubnet(ctx context.Context, n *samplecrdv1.Network, networkID string) (id string, err error) {
	prefix, err := netip.ParsePrefix(n.Spec.CIDR)
	if err != nil {
		return "", &crd.RefusedError{Reason: samplecrdv1.ReasonRefused, Message: err.Error(), Err: err}
	}
	version := gophercloud.IPv4
	if prefix.Addr().Is6() {
		version = gophercloud.IPv6
	}
	subnet, err := subnets.Create(ctx, c.Client, subnets.CreateOpts{
		Name: c.name(n), Description: description(n), NetworkID: networkID,
		CIDR: n.Spec.CIDR, IPVersion: version, GatewayIP: &n.Spec.Gateway,
	}).Extract()
	if err != nil {
		return "", explain("create subnet", n, err)
	}
	return subnet.ID, nil
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
		if subnet.Name != c.name(n) {
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

// allocationPools returns the addresses that ports can get: all but the gateway's.
func allocationPools(n *samplecrdv1.Network) ([]subnets.AllocationPool, error) {
	prefix, err := netip.ParsePrefix(n.Spec.CIDR)
	if err != nil {
		return nil, &crd.RefusedError{Reason: samplecrdv1.ReasonRefused, Message: err.Error(), Err: err}
	}
	gateway, err := netip.ParseAddr(n.Spec.Gateway)
	if err != nil {
		return nil, &crd.RefusedError{Reason: samplecrdv1.ReasonRefused, Message: err.Error(), Err: err}
	}
	bytes := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	first, last := prefix.Addr().Next(), netip.Addr{}
	last, _ = netip.AddrFromSlice(bytes)
	if last.Is4() {
		last = last.Prev() // without the broadcast address
	}
	var pools []subnets.AllocationPool
	if first.Less(gateway) {
		pools = append(pools, subnets.AllocationPool{Start: first.String(), End: gateway.Prev().String()})
	}
	if gateway.Less(last) {
		pools = append(pools, subnets.AllocationPool{Start: gateway.Next().String(), End: last.String()})
	}
	return pools, nil
}

// explain adds to an error what was being done. If retrying will not help until somebody changes something, it returns a
// RefusedError.
func explain(action string, n *samplecrdv1.Network, err error) error {
	if err == nil {
		return nil
	}
	var login *gophercloud.ErrUnableToReauthenticate
	if errors.As(err, &login) { // a token has expired, and what counts is why there is no new one
		err = login.ErrReauth
	}
	body, reason := parseError(err), ""
	switch {
	case body.Type == "OverQuota":
		reason = samplecrdv1.ReasonQuotaExceeded
	case body.Type == "GatewayIpInUse":
		reason = samplecrdv1.ReasonInUse
	case gophercloud.ResponseCodeIs(err, http.StatusBadRequest), gophercloud.ResponseCodeIs(err, http.StatusForbidden),
		gophercloud.ResponseCodeIs(err, http.StatusUnauthorized):
		reason = samplecrdv1.ReasonRefused
	}
	action = fmt.Sprintf("%s for %s/%s", action, n.Namespace, n.Name)
	if reason != "" {
		return &crd.RefusedError{Reason: reason, Message: action + ": " + cmp.Or(body.Message, err.Error()), Err: err}
	}
	return fmt.Errorf("%s: %w", action, err)
}

// errorBody is what Neutron's error responses have in their body.
type errorBody struct{ Type, Message string }

// parseError returns the body of an error response, or an empty one if the response is not Neutron's.
func parseError(err error) errorBody {
	var unexpected gophercloud.ErrUnexpectedResponseCode
	var body struct{ NeutronError errorBody }
	if errors.As(err, &unexpected) {
		_ = json.Unmarshal(unexpected.Body, &body) // fails for the HTML page of a load balancer, for example
	}
	return body.NeutronError
}

func errorType(err error) string { return parseError(err).Type }
