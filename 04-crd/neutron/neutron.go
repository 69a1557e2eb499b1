// Package neutron makes Networks in an OpenStack cloud.
//
// For a Network there is one network there, with one subnet. The names of both have the Network's UID in them. In
// Neutron a name need not be unique, but nobody else has a reason to take this one, and it is there from the moment
// of creation. So whoever was not told what became of a creation can look for it. Tags cannot be given at creation.
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
	// Client is of the service "network".
	Client *gophercloud.ServiceClient
	// Owner is what tells our networks from those of another cluster in the same project: the UID of the namespace.
	Owner types.UID
}

// Ensure implements [crd.Backend]. It asks three times to make a network, and twice to see that all is well.
func (c *Cloud) Ensure(ctx context.Context, n *samplecrdv1.Network) (crd.Made, error) {
	there, err := c.ours(ctx, n)
	if err != nil {
		return crd.Made{}, err
	}
	if len(there) == 0 {
		network, err := networks.Create(ctx, c.Client, networks.CreateOpts{Name: c.name(n), Description: description(n)}).Extract()
		if err != nil {
			return crd.Made{}, explain("create network", n, err)
		}
		subnetID, err := c.createSubnet(ctx, n, network.ID)
		return crd.Made{NetworkID: network.ID, SubnetID: subnetID}, err
	}
	// There are more than one if the reply to a creation was so late that we did not wait for it.
	for _, tooMuch := range there[1:] {
		if err := c.deleteNetwork(ctx, n, tooMuch); err != nil {
			return crd.Made{}, err
		}
	}
	network := there[0]
	made := crd.Made{NetworkID: network.ID}
	made.SubnetID, err = c.ensureSubnet(ctx, n, network.ID)
	return made, err
}

// Delete implements [crd.Backend].
func (c *Cloud) Delete(ctx context.Context, n *samplecrdv1.Network) error {
	there, err := c.ours(ctx, n)
	if err != nil {
		return err
	}
	for _, network := range there {
		if err := c.deleteNetwork(ctx, n, network); err != nil {
			return err
		}
	}
	return nil
}

// Owners implements [crd.Backend]. It asks once.
func (c *Cloud) Owners(ctx context.Context) ([]crd.Owner, error) {
	if c.Owner == "" {
		return nil, errNoOwner
	}
	all, err := c.list(ctx, networks.ListOpts{})
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

func (c *Cloud) list(ctx context.Context, which networks.ListOpts) ([]networks.Network, error) {
	pages, err := networks.List(c.Client, which).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return networks.ExtractNetworks(pages)
}

var errNoOwner = errors.New("nobody said whose networks are ours; set Owner")

func (c *Cloud) prefix() string { return "kubernetes-" + string(c.Owner) + "-" }

func (c *Cloud) name(n *samplecrdv1.Network) string { return c.prefix() + string(n.UID) }

const descriptionPrefix = "Kubernetes Network "

// description is for people. It is also what a network must have to be ours, should someone take our name.
func description(n *samplecrdv1.Network) string {
	return descriptionPrefix + n.Namespace + "/" + n.Name
}

// ours returns the networks that were made for a Network, the one to keep first.
func (c *Cloud) ours(ctx context.Context, n *samplecrdv1.Network) ([]networks.Network, error) {
	if n.UID == "" {
		return nil, fmt.Errorf("network %s/%s has no UID", n.Namespace, n.Name) // and its name would be anybody's
	}
	if c.Owner == "" {
		return nil, errNoOwner
	}
	there, err := c.list(ctx, networks.ListOpts{Name: c.name(n), Description: description(n)})
	if err != nil {
		return nil, explain("list networks", n, err)
	}
	slices.SortFunc(there, func(a, b networks.Network) int {
		switch n.Status.NetworkID {
		case a.ID:
			return -1
		case b.ID:
			return 1
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return there, nil
}

// ensureSubnet looks whether the subnet is there and has the gateway that it should have.
func (c *Cloud) ensureSubnet(ctx context.Context, n *samplecrdv1.Network, networkID string) (id string, err error) {
	there, err := c.subnets(ctx, n, subnets.ListOpts{NetworkID: networkID, Name: c.name(n)})
	if err != nil {
		return "", err
	}
	if len(there) == 0 {
		return c.createSubnet(ctx, n, networkID)
	}
	subnet := there[0] // two cannot be: they would overlap
	if subnet.GatewayIP == n.Spec.Gateway {
		return subnet.ID, nil
	}
	pools, err := poolsAround(n)
	if err != nil {
		return "", err
	}
	_, err = subnets.Update(ctx, c.Client, subnet.ID, subnets.UpdateOpts{
		GatewayIP: &n.Spec.Gateway, AllocationPools: pools, // which must not have the new gateway in them
		RevisionNumber: &subnet.RevisionNumber, // what was changed since we looked is looked at again
	}).Extract()
	return subnet.ID, explain("change the gateway of subnet", n, err)
}

func (c *Cloud) subnets(ctx context.Context, n *samplecrdv1.Network, which subnets.ListOpts) ([]subnets.Subnet, error) {
	pages, err := subnets.List(c.Client, which).AllPages(ctx)
	if err != nil {
		return nil, explain("list subnets", n, err)
	}
	there, err := subnets.ExtractSubnets(pages)
	return there, explain("list subnets", n, err)
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

// deleteNetwork deletes a network that is ours, and its subnets, unless something that is not ours is in it.
func (c *Cloud) deleteNetwork(ctx context.Context, n *samplecrdv1.Network, network networks.Network) error {
	isOurs := func(id string) bool { return id == n.Status.SubnetID }
	if !slices.ContainsFunc(network.Subnets, func(id string) bool { return !isOurs(id) }) {
		return c.reallyDelete(ctx, n, network)
	}
	there, err := c.subnets(ctx, n, subnets.ListOpts{NetworkID: network.ID})
	if err != nil {
		return err
	}
	var others []string
	for _, subnet := range there {
		if subnet.Name != c.name(n) {
			others = append(others, strings.TrimSpace(subnet.Name+" "+subnet.ID))
		}
	}
	if len(others) > 0 {
		return &crd.RefusedError{Reason: samplecrdv1.ReasonInUse,
			Message: "there are subnets of somebody else in the network; delete them first: " + strings.Join(others, ", ")}
	}
	return c.reallyDelete(ctx, n, network)
}

// reallyDelete deletes a network with all its subnets. Neutron does not do it while there are ports.
func (c *Cloud) reallyDelete(ctx context.Context, n *samplecrdv1.Network, network networks.Network) error {
	// Unless it has changed since we looked: somebody's subnet in it would be deleted, too.
	_, err := c.Client.Delete(ctx, c.Client.ServiceURL("networks", network.ID), &gophercloud.RequestOpts{
		MoreHeaders: map[string]string{"If-Match": fmt.Sprintf("revision_number=%d", network.RevisionNumber)},
	})
	switch {
	case gophercloud.ResponseCodeIs(err, http.StatusNotFound):
		return nil
	case kindOf(err) == "NetworkInUse":
		return c.inUse(ctx, n, network.ID, err)
	}
	return explain("delete network", n, err)
}

// inUse names the ports that are in the way.
func (c *Cloud) inUse(ctx context.Context, n *samplecrdv1.Network, networkID string, cause error) error {
	pages, err := ports.List(c.Client, ports.ListOpts{NetworkID: networkID}).AllPages(ctx)
	if err != nil {
		return explain("list ports", n, err)
	}
	there, err := ports.ExtractPorts(pages)
	if err != nil {
		return explain("list ports", n, err)
	}
	var names []string
	for _, p := range there {
		if p.DeviceOwner != "network:dhcp" {
			names = append(names, strings.TrimSpace(p.Name+" "+p.ID))
		}
	}
	slices.Sort(names)
	return crd.InUse(names, cause)
}

// poolsAround are the addresses for ports: all but the gateway's.
func poolsAround(n *samplecrdv1.Network) ([]subnets.AllocationPool, error) {
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
		last = last.Prev() // that one is for broadcasts
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

// explain says what was being done, and gives those errors a reason that are not gone if it is tried again.
func explain(doing string, n *samplecrdv1.Network, err error) error {
	if err == nil {
		return nil
	}
	what, reason := neutronError(err), ""
	switch {
	case what.Type == "OverQuota":
		reason = samplecrdv1.ReasonQuotaExceeded
	case what.Type == "GatewayIpInUse":
		reason = samplecrdv1.ReasonInUse
	case gophercloud.ResponseCodeIs(err, http.StatusBadRequest), gophercloud.ResponseCodeIs(err, http.StatusForbidden),
		gophercloud.ResponseCodeIs(err, http.StatusUnauthorized):
		reason = samplecrdv1.ReasonRefused
	}
	doing = fmt.Sprintf("%s for %s/%s", doing, n.Namespace, n.Name)
	if reason != "" {
		return &crd.RefusedError{Reason: reason, Message: doing + ": " + cmp.Or(what.Message, err.Error()), Err: err}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// problem is the body of Neutron's errors.
type problem struct{ Type, Message string }

func neutronError(err error) problem {
	var unexpected gophercloud.ErrUnexpectedResponseCode
	var body struct{ NeutronError problem }
	if errors.As(err, &unexpected) {
		_ = json.Unmarshal(unexpected.Body, &body) // a proxy in between may answer anything
	}
	return body.NeutronError
}

func kindOf(err error) string { return neutronError(err).Type }
