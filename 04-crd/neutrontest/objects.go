package neutrontest

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"
)

type network struct {
	standard
	Status       string   `json:"status"`
	AdminStateUp bool     `json:"admin_state_up"`
	Shared       bool     `json:"shared"`
	MTU          int      `json:"mtu"`
	Subnets      []string `json:"subnets"`
}

func (*network) filters() []string { return []string{"status", "admin_state_up", "shared", "mtu"} }

func newNetwork(meta standard, given map[string]json.RawMessage) (object, error) {
	meta.Revision = 1
	n := &network{standard: meta, Status: "ACTIVE", AdminStateUp: true, MTU: maxMTU, Subnets: []string{}}
	return n, set(given, "admin_state_up", &n.AdminStateUp)
}

// maxMTU is the largest size, in bytes, of a packet on a network.
const maxMTU = 1450

func changeNetwork(from caller, n *network, given map[string]json.RawMessage) error {
	if given["shared"] != nil && !from.isAdmin {
		return refuse(http.StatusForbidden, "PolicyNotAuthorized", "(rule:update_network and rule:update_network:shared) is disallowed by policy")
	}
	changed := *n
	if err := errors.Join(set(given, "admin_state_up", &changed.AdminStateUp), set(given, "shared", &changed.Shared), set(given, "mtu", &changed.MTU)); err != nil {
		return err
	}
	if changed.MTU > maxMTU {
		return invalidInput("Requested MTU is too big, maximum is %d.", maxMTU)
	}
	*n = changed
	return nil
}

type subnet struct {
	standard
	NetworkID  string   `json:"network_id"`
	IPVersion  int      `json:"ip_version"`
	CIDR       string   `json:"cidr"`
	GatewayIP  *string  `json:"gateway_ip"` // nil: no gateway
	Pools      []pool   `json:"allocation_pools"`
	EnableDHCP bool     `json:"enable_dhcp"`
	DNS        []string `json:"dns_nameservers"`
}

func (*subnet) filters() []string {
	return []string{"network_id", "ip_version", "cidr", "gateway_ip", "enable_dhcp"}
}

// pool is a range of addresses that ports can get. Both ends are part of it.
type pool struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

func (p pool) String() string { return p.Start + "-" + p.End }

// ends returns the pool's first and last address. They are the zero Addr if they cannot be parsed.
func (p pool) ends() (start, end netip.Addr) {
	start, _ = netip.ParseAddr(p.Start)
	end, _ = netip.ParseAddr(p.End)
	return start, end
}

func (p pool) contains(a netip.Addr) bool {
	start, end := p.ends()
	return start.Compare(a) <= 0 && a.Compare(end) <= 0
}

func (s *Server) newSubnet(from caller, meta standard, given map[string]json.RawMessage) (object, error) {
	sub := &subnet{standard: meta, EnableDHCP: true, DNS: []string{}}
	err := errors.Join(set(given, "network_id", &sub.NetworkID), set(given, "ip_version", &sub.IPVersion),
		set(given, "cidr", &sub.CIDR), set(given, "enable_dhcp", &sub.EnableDHCP), set(given, "dns_nameservers", &sub.DNS))
	switch {
	case err != nil:
		return nil, err
	case sub.NetworkID == "":
		return nil, badRequest("Failed to parse request. Required attribute 'network_id' not specified")
	case sub.CIDR == "":
		return nil, refuse(http.StatusBadRequest, "BadRequest", "Bad subnets request: a subnetpool must be specified in the absence of a cidr.")
	}
	n, err := s.find(from, "networks", sub.NetworkID)
	if err != nil {
		return nil, err
	}
	prefix, err := netip.ParsePrefix(sub.CIDR)
	if err != nil {
		if a, is := netip.ParseAddr(sub.CIDR); is == nil {
			prefix = netip.PrefixFrom(a, a.BitLen())
		} else {
			return nil, invalidInput("%s is not in a CIDR format.", sub.CIDR)
		}
	}
	if version := 4 + 2*btoi(prefix.Addr().Is6()); sub.IPVersion != version {
		return nil, invalidInput("cidr '%s' does not match the ip_version '%d'.", sub.CIDR, sub.IPVersion)
	}
	prefix = prefix.Masked()
	sub.CIDR = prefix.String()
	if prefix.Bits() == 0 && prefix.Addr().Is6() {
		return nil, invalidInput("0 is not allowed as CIDR prefix length.")
	}
	if sub.EnableDHCP {
		if err := checkDHCP(prefix); err != nil {
			return nil, err
		}
	}
	for _, id := range n.(*network).Subnets {
		if other := s.all["subnets"][id].(*subnet); netip.MustParsePrefix(other.CIDR).Overlaps(prefix) {
			return nil, invalidInput("Requested subnet with cidr: %s for network: %s overlaps with another subnet.", sub.CIDR, sub.NetworkID)
		}
	}
	first := prefix.Addr() // in IPv6, this is the subnet-router anycast address
	if first.Is4() {
		first = first.Next()
	}
	sub.GatewayIP = new(first.String())
	return sub, s.setAddresses(sub, given)
}

// checkDHCP refuses the prefixes in which Neutron offers no DHCP.
func checkDHCP(prefix netip.Prefix) error {
	first := prefix.Addr()
	switch isIPv4 := first.Is4(); {
	case first.BitLen()-prefix.Bits() < 2:
		return invalidInput("Subnet has a prefix length that is incompatible with DHCP service enabled.")
	case first.IsMulticast() && prefix.Bits() >= map[bool]int{true: 4, false: 8}[isIPv4]:
		return invalidInput("Multicast IP subnet is not supported if enable_dhcp is True.")
	case isIPv4 && first.IsLoopback() && prefix.Bits() >= 8:
		return invalidInput("Loopback IP subnet is not supported if enable_dhcp is True.")
	case isIPv4 && first.IsUnspecified():
		return invalidInput("First IP '%s' of network is not supported if enable_dhcp is True..", first)
	}
	return nil
}

func (s *Server) changeSubnet(sub *subnet, given map[string]json.RawMessage) error {
	changed := *sub
	if given["dns_nameservers"] != nil {
		changed.DNS = []string{} // a copied subnet shares the servers with the original
	}
	if err := errors.Join(set(given, "enable_dhcp", &changed.EnableDHCP), set(given, "dns_nameservers", &changed.DNS), s.setAddresses(&changed, given)); err != nil {
		return err
	}
	if changed.EnableDHCP && !sub.EnableDHCP {
		if err := checkDHCP(netip.MustParsePrefix(sub.CIDR)); err != nil {
			return err
		}
	}
	*sub = changed
	return nil
}

// setAddresses sets a subnet's gateway and its allocation pools, none of which may contain the gateway.
func (s *Server) setAddresses(sub *subnet, given map[string]json.RawMessage) error {
	prefix := netip.MustParsePrefix(sub.CIDR)
	var gateway netip.Addr
	if _, ok := given["gateway_ip"]; ok {
		sub.GatewayIP = nil // a copied subnet shares the string with the original, and Unmarshal would write to it
		if err := set(given, "gateway_ip", &sub.GatewayIP); err != nil {
			return err
		}
	}
	if sub.GatewayIP != nil {
		var err error
		if gateway, err = netip.ParseAddr(*sub.GatewayIP); err != nil {
			return badRequest("Invalid input for gateway_ip. Reason: '%s' is not a valid IP address.", *sub.GatewayIP)
		}
		if gateway.Is4() && prefix.Contains(gateway) && (gateway == prefix.Addr() || gateway == last(prefix)) {
			return invalidInput("Gateway is not valid on subnet.")
		}
	}
	if _, ok := given["allocation_pools"]; ok {
		sub.Pools = nil
		if err := set(given, "allocation_pools", &sub.Pools); err != nil {
			return err
		}
	} else if sub.Pools == nil {
		sub.Pools = pools(prefix, gateway)
	}
	if err := checkPools(sub, prefix); err != nil {
		return err
	}
	for _, p := range sub.Pools {
		if gateway.IsValid() && p.contains(gateway) {
			return refuse(http.StatusConflict, "GatewayConflictWithAllocationPools", "Gateway ip %s conflicts with allocation pool %s.", gateway, p)
		}
	}
	return nil
}

func checkPools(sub *subnet, prefix netip.Prefix) error {
	sorted := slices.Clone(sub.Pools)
	for _, p := range sorted {
		start, end := p.ends()
		switch {
		case !start.IsValid() || !end.IsValid() || end.Less(start):
			return refuse(http.StatusBadRequest, "InvalidAllocationPool", "The allocation pool %s is not valid.", p)
		case !prefix.Contains(start) || !prefix.Contains(end) || prefix.Addr().Is4() && (start == prefix.Addr() || end == last(prefix)):
			return refuse(http.StatusBadRequest, "OutOfBoundsAllocationPool", "The allocation pool %s spans beyond the subnet cidr %s.", p, sub.CIDR)
		}
	}
	slices.SortFunc(sorted, func(a, b pool) int {
		x, _ := a.ends()
		y, _ := b.ends()
		return x.Compare(y)
	})
	for i := 1; i < len(sorted); i++ {
		if start, _ := sorted[i].ends(); sorted[i-1].contains(start) {
			return refuse(http.StatusConflict, "OverlappingAllocationPools", "Found overlapping allocation pools: %s %s for subnet %s.", sorted[i-1], sorted[i], sub.CIDR)
		}
	}
	return nil
}

// pools returns the pools with all addresses that ports can have: all but the gateway.
func pools(prefix netip.Prefix, gateway netip.Addr) []pool {
	start, end := prefix.Addr().Next(), last(prefix)
	if prefix.Addr().Is4() {
		end = end.Prev()
	}
	if !gateway.IsValid() || !prefix.Contains(gateway) {
		return []pool{{start.String(), end.String()}}
	}
	around := []pool{}
	if start.Less(gateway) {
		around = append(around, pool{start.String(), gateway.Prev().String()})
	}
	if gateway.Less(end) {
		around = append(around, pool{gateway.Next().String(), end.String()})
	}
	return around
}

// last returns the last address of a prefix.
func last(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

type port struct {
	standard
	NetworkID   string    `json:"network_id"`
	Status      string    `json:"status"`
	DeviceOwner string    `json:"device_owner"`
	DeviceID    string    `json:"device_id"`
	FixedIPs    []fixedIP `json:"fixed_ips"`
}

type fixedIP struct {
	SubnetID  string `json:"subnet_id"`
	IPAddress string `json:"ip_address"`
}

func (*port) filters() []string {
	return []string{"network_id", "status", "device_owner", "device_id"}
}

func (p *port) has(subnet string) bool {
	return slices.ContainsFunc(p.FixedIPs, func(ip fixedIP) bool { return ip.SubnetID == subnet })
}

func (s *Server) newPort(from caller, meta standard, given map[string]json.RawMessage) (object, error) {
	meta.Revision = 1
	p := &port{standard: meta, Status: "DOWN", FixedIPs: []fixedIP{}}
	err := errors.Join(set(given, "network_id", &p.NetworkID), set(given, "device_owner", &p.DeviceOwner),
		set(given, "device_id", &p.DeviceID), set(given, "fixed_ips", &p.FixedIPs))
	switch {
	case err != nil:
		return nil, err
	case p.NetworkID == "":
		return nil, badRequest("Failed to parse request. Required attribute 'network_id' not specified")
	}
	n, err := s.find(from, "networks", p.NetworkID)
	if err != nil {
		return nil, err
	}
	if subnets := n.(*network).Subnets; len(p.FixedIPs) == 0 && len(subnets) > 0 {
		p.FixedIPs = []fixedIP{{SubnetID: subnets[0]}}
	}
	for i, ip := range p.FixedIPs {
		o, ok := s.all["subnets"][ip.SubnetID]
		if !ok {
			return nil, refuse(http.StatusNotFound, "SubnetNotFound", "Subnet %s could not be found.", ip.SubnetID)
		}
		p.FixedIPs[i].IPAddress = cmp.Or(ip.IPAddress, s.freeAddress(o.(*subnet)))
	}
	return p, nil
}

// freeAddress returns an address of a subnet that no port has, or "" if there is none.
func (s *Server) freeAddress(sub *subnet) string {
	taken := map[string]bool{}
	for _, o := range s.objects("ports") {
		for _, ip := range o.(*port).FixedIPs {
			taken[ip.IPAddress] = true
		}
	}
	for _, p := range sub.Pools {
		for a, end := p.ends(); a.Compare(end) <= 0; a = a.Next() {
			if !taken[a.String()] {
				return a.String()
			}
		}
	}
	return ""
}

// defaultQuotas are the quotas of a project for which none was set, by resource.
var defaultQuotas = map[string]int{"network": 100, "subnet": 100, "port": 500}

// setQuota limits how many of a resource ("network", "subnet" or "port") a project may have. -1 means no limit.
func (s *Server) setQuota(project, resource string, limit int) {
	if s.quotas == nil {
		s.quotas = map[string]map[string]int{}
	}
	if s.quotas[project] == nil {
		s.quotas[project] = map[string]int{}
	}
	s.quotas[project][resource] = limit
}

func (s *Server) quota(project, resource string) int {
	if limit, ok := s.quotas[project][resource]; ok {
		return limit
	}
	if resource == "subnet" && s.Subnets != 0 {
		return s.Subnets
	}
	return defaultQuotas[resource]
}

func (s *Server) withinQuota(project, resource, collection string) error {
	used := 0
	for _, o := range s.all[collection] {
		if o.meta().ProjectID == project {
			used++
		}
	}
	if limit := s.quota(project, resource); limit >= 0 && used >= limit {
		return refuse(http.StatusConflict, "OverQuota", "Quota exceeded for resources: ['%s'].", resource)
	}
	return nil
}

func (s *Server) serveQuota(from caller, project string, r *http.Request) (status int, answer any, err error) {
	if r.Method == http.MethodPut {
		if !from.isAdmin {
			return 0, nil, refuse(http.StatusForbidden, "PolicyNotAuthorized", "rule:update_quota is disallowed by policy")
		}
		var body struct{ Quota map[string]int }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return 0, nil, badRequest("Body contains invalid data")
		}
		for resource, limit := range body.Quota {
			if _, ok := defaultQuotas[resource]; !ok {
				return 0, nil, badRequest("Unrecognized attribute(s) '%s'", resource)
			}
			s.setQuota(project, resource, limit)
		}
	} else if r.Method != http.MethodGet {
		return 0, nil, refuse(http.StatusNotFound, "HTTPNotFound", "The resource could not be found.")
	}
	quota := map[string]int{}
	for resource := range defaultQuotas {
		quota[resource] = s.quota(project, resource)
	}
	return http.StatusOK, map[string]any{"quota": quota}, nil
}
