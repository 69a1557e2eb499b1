package neutron

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

// ensureSubnet returns the ID of the subnet in a network of the Network's. It creates the subnet if it is missing. If not, it
// repairs the gateway and what the subnet is recognized by, and leaves everything else as it is.
func (c *Cloud) ensureSubnet(ctx context.Context, n *samplecrdv1.Network, network networks.Network) (id string, err error) {
	want, err := parse(n.Spec)
	if err != nil {
		return "", err
	}
	if len(network.Subnets) == 0 {
		return c.createSubnet(ctx, n, network.ID)
	}
	all, err := c.listSubnets(ctx, n, subnets.ListOpts{NetworkID: network.ID})
	if err != nil {
		return "", err
	}
	for _, subnet := range all {
		prefix, err := netip.ParsePrefix(subnet.CIDR)
		switch {
		case err != nil || !prefix.Overlaps(want.cidr):
		case prefix == want.cidr && c.isSubnetOf(n, subnet): // there is no second one: Neutron refuses overlapping subnets
			return subnet.ID, c.repairSubnet(ctx, n, subnet, want)
		default:
			return "", &crd.RefusedError{Reason: samplecrdv1.ReasonRefused, Message: fmt.Sprintf("the subnet %s (%q, %s), which this controller did not create, "+
				"overlaps with spec.cidr, %s; delete it", subnet.ID, subnet.Name, subnet.CIDR, n.Spec.CIDR)}
		}
	}
	return c.createSubnet(ctx, n, network.ID)
}

// isSubnetOf reports whether a subnet in a network of the Network's belongs to the Network. In contrast to that of a network,
// an ID in the status that nothing contradicts is enough: the network is the Network's.
func (c *Cloud) isSubnetOf(n *samplecrdv1.Network, subnet subnets.Subnet) bool {
	if mark, _ := c.markOf(subnet.Name, subnet.Tags); mark != "" {
		return mark == c.mark(n)
	}
	return subnet.ID == n.Status.SubnetID
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
	want, err := parse(n.Spec)
	if err != nil {
		return "", err
	}
	version := gophercloud.IPv4
	if want.cidr.Addr().Is6() {
		version = gophercloud.IPv6
	}
	subnet, err := subnets.Create(ctx, c.Client, subnets.CreateOpts{
		Name: c.mark(n), Description: description(n), NetworkID: networkID,
		CIDR: n.Spec.CIDR, IPVersion: version, GatewayIP: &n.Spec.Gateway,
	}).Extract()
	if err != nil {
		return "", explain("create subnet", n, err)
	}
	return subnet.ID, c.addTag(ctx, n, "subnets", subnet.ID, subnet.Tags)
}

// repairSubnet changes the gateway to that of the spec, and restores the name, the description and the tag.
func (c *Cloud) repairSubnet(ctx context.Context, n *samplecrdv1.Network, subnet subnets.Subnet, want addresses) error {
	var change subnets.UpdateOpts
	action := ""
	if name, text := c.mark(n), description(n); subnet.Name != name || subnet.Description != text {
		action = "restore the name and the description of subnet"
		change.Name, change.Description = &name, &text
	}
	if gateway, _ := netip.ParseAddr(subnet.GatewayIP); gateway != want.gateway { // IPv6 addresses can be written in several ways
		action = "change the gateway of subnet"
		change.GatewayIP = &n.Spec.Gateway
		change.AllocationPools = movePools(subnet.AllocationPools, want.cidr, gateway, want.gateway) // they must not contain the new gateway
	}
	if action != "" {
		change.RevisionNumber = &subnet.RevisionNumber // a precondition: fails if the subnet has changed since it was listed
		if _, err := subnets.Update(ctx, c.Client, subnet.ID, change).Extract(); err != nil {
			return explain(action, n, err)
		}
	}
	return c.addTag(ctx, n, "subnets", subnet.ID, subnet.Tags)
}

// addresses are those of a spec.
type addresses struct {
	cidr    netip.Prefix
	gateway netip.Addr
}

// parse returns a RefusedError for a spec that the API server would not have accepted.
func parse(spec samplecrdv1.NetworkSpec) (addresses, error) {
	cidr, err := netip.ParsePrefix(spec.CIDR)
	if err != nil {
		return addresses{}, &crd.RefusedError{Reason: samplecrdv1.ReasonRefused, Message: err.Error(), Err: err}
	}
	gateway, err := netip.ParseAddr(spec.Gateway)
	if err != nil {
		return addresses{}, &crd.RefusedError{Reason: samplecrdv1.ReasonRefused, Message: err.Error(), Err: err}
	}
	return addresses{cidr, gateway}, nil
}

// pool is a range of addresses that ports can get: the first and the last.
type pool [2]netip.Addr

// allPools returns the pools that a new subnet has: all addresses but the gateway's. The gateway may be missing, or outside.
func allPools(cidr netip.Prefix, gateway netip.Addr) []pool {
	bytes := cidr.Addr().AsSlice()
	for bit := cidr.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	if last.Is4() {
		last = last.Prev() // without the broadcast address
	}
	return exclude([]pool{{cidr.Addr().Next(), last}}, gateway)
}

// exclude returns the pools without an address.
func exclude(pools []pool, address netip.Addr) []pool {
	var without []pool
	for _, p := range pools {
		if p[0].Compare(address) > 0 || address.Compare(p[1]) > 0 {
			without = append(without, p)
			continue
		}
		if p[0].Less(address) {
			without = append(without, pool{p[0], address.Prev()})
		}
		if address.Less(p[1]) {
			without = append(without, pool{address.Next(), p[1]})
		}
	}
	return without
}

// movePools returns the pools for a new gateway. If they are those that a new subnet has, they stay so. If somebody has
// chosen others, they lose no more than the new gateway.
func movePools(current []subnets.AllocationPool, cidr netip.Prefix, before, after netip.Addr) []subnets.AllocationPool {
	var pools []pool
	for _, p := range current {
		start, _ := netip.ParseAddr(p.Start) // Neutron has checked them
		end, _ := netip.ParseAddr(p.End)
		pools = append(pools, pool{start, end})
	}
	slices.SortFunc(pools, func(a, b pool) int { return a[0].Compare(b[0]) })
	if slices.Equal(pools, allPools(cidr, before)) {
		pools = allPools(cidr, after)
	}
	var moved []subnets.AllocationPool
	for _, p := range exclude(pools, after) {
		moved = append(moved, subnets.AllocationPool{Start: p[0].String(), End: p[1].String()})
	}
	return moved
}
