package neutrontest_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/pagination"
	"github.com/stretchr/testify/require"

	"example.com/controllers/crd/neutrontest"
)

// step is a request and the response that it must get.
type step struct {
	request string // method, path and an optional body; {x} is the ID called x
	match   string // the If-Match header
	roles   string // "": "member,reader"
	project string // "": the test's own
	status  int
	// answer is JSON that must be part of the response's JSON. For an error, it is "TYPE: MESSAGE".
	answer string
	id     string // the name that later steps use for the ID in the response
}

const nobody = "00000000-0000-0000-0000-000000000000"

func create(name string) step {
	return step{request: `POST /networks {"network":{"name":"` + name + `"}}`, status: 201, id: name}
}

// refused is the creation of a subnet in the network a that Neutron refuses with that message.
func refused(cidr string, version int, message string) step {
	return step{request: fmt.Sprintf(`POST /subnets {"subnet":{"network_id":"{a}","ip_version":%d,"cidr":%q}}`, version, cidr), status: 400,
		answer: "InvalidInput: Invalid input for operation: " + message}
}

// contract is the behaviour of Neutron that the lesson relies on. Each sequence of steps begins in an empty project.
var contract = map[string][]step{
	"networks": {
		{request: `GET /networks?name=a`, status: 200, answer: `{"networks":[]}`},
		{request: `POST /networks {"network":{"name":"a","description":"d"}}`, status: 201, id: "a",
			answer: `{"network":{"name":"a","description":"d","status":"ACTIVE","admin_state_up":true,"subnets":[],"tags":[],"revision_number":1,"project_id":"{project}"}}`},
		{request: `GET /networks/{a}`, status: 200, answer: `{"network":{"id":"{a}","name":"a"}}`},
		{request: `GET /networks?name=a`, status: 200, answer: `{"networks":[{"id":"{a}","name":"a","description":"d"}]}`},
		{request: `GET /networks?description=d&fields=id`, status: 200, answer: `{"networks":[{"id":"{a}"}]}`},
		{request: `GET /networks?name=b`, status: 200, answer: `{"networks":[]}`},
		{request: `GET /networks?bogus=1`, status: 400, answer: `HTTPBadRequest: ['bogus'] is invalid attribute for filtering`},
		{request: `PUT /networks/{a} {"network":{"name":"b"}}`, status: 200, answer: `{"network":{"name":"b","revision_number":2}}`},
		{request: `PUT /networks/{a} {"network":{"name":"b"}}`, status: 200, answer: `{"network":{"name":"b"}}`},
		{request: `DELETE /networks/{a}`, status: 204},
		{request: `DELETE /networks/{a}`, status: 404, answer: `NetworkNotFound: Network {a} could not be found.`},
		{request: `GET /networks/{a}`, status: 404, answer: `NetworkNotFound: Network {a} could not be found.`},
		{request: `GET /networks/notauuid`, status: 404, answer: `NetworkNotFound: Network notauuid could not be found.`},
	},
	"pages": {
		create("a"),
		{request: `GET /networks?limit=0&fields=name&project_id={project}`, status: 200, answer: `{"networks":[{"name":"a"}]}`},
		{request: `GET /networks?limit=abc`, status: 400, answer: `BadRequest: Bad limit request: Limit must be an integer 0 or greater and not 'abc'.`},
		{request: `GET /networks?limit=-1`, status: 400, answer: `BadRequest: Bad limit request: Limit must be an integer 0 or greater and not '-1'.`},
		{request: `GET /networks?limit=1&marker={a}&project_id={project}`, status: 200, answer: `{"networks":[]}`},
		{request: `GET /networks?limit=1&marker=` + nobody, status: 404, answer: `NetworkNotFound: Network ` + nobody + ` could not be found.`},
	},
	"names are not unique": {
		create("a"),
		{request: `POST /networks {"network":{"name":"a"}}`, status: 201, id: "b"},
		{request: `DELETE /networks/{a}`, status: 204},
		{request: `GET /networks?name=a&fields=id`, status: 200, answer: `{"networks":[{"id":"{b}"}]}`},
	},
	"bodies": {
		{request: `POST /networks {"network":`, status: 400, answer: `HTTPBadRequest: Body contains invalid data`},
		{request: `POST /networks {"net":{}}`, status: 400, answer: `HTTPBadRequest: Unable to find 'network' in request body`},
		{request: `POST /networks {"network":{"bogus":1}}`, status: 400, answer: `HTTPBadRequest: Unrecognized attribute(s) 'bogus'`},
		{request: `POST /networks {"network":{"tags":["a"]}}`, status: 400, answer: `HTTPBadRequest: Attribute 'tags' not allowed in POST`},
		{request: `POST /networks {"network":{"project_id":"another"}}`, status: 400,
			answer: `HTTPBadRequest: Specifying 'project_id' or 'tenant_id' other than the authenticated project in request requires admin or advsvc privileges`},
		create("a"),
		{request: `PUT /networks/{a} {"network":{"status":"DOWN"}}`, status: 400, answer: `HTTPBadRequest: Cannot update read-only attribute status`},
	},
	"another project": {
		create("a"),
		{project: "another", request: `GET /networks/{a}`, status: 404, answer: `NetworkNotFound: Network {a} could not be found.`},
		{project: "another", request: `GET /networks?id={a}`, status: 200, answer: `{"networks":[]}`},
		{project: "another", request: `DELETE /networks/{a}`, status: 404, answer: `NetworkNotFound: Network {a} could not be found.`},
		{project: "another", roles: "admin", request: `GET /networks/{a}`, status: 200, answer: `{"network":{"name":"a"}}`},
	},
	"revisions": {
		create("a"),
		{match: "revision_number=0", request: `PUT /networks/{a} {"network":{"name":"b"}}`, status: 412,
			answer: `RevisionNumberConstraintFailed: Constrained to 0, but current revision is 1`},
		{match: "revision_number=1", request: `PUT /networks/{a} {"network":{"name":"b"}}`, status: 200, answer: `{"network":{"name":"b","revision_number":2}}`},
		{match: "7", request: `PUT /networks/{a} {"network":{"name":"c"}}`, status: 200, answer: `{"network":{"name":"c"}}`},
		{request: `PUT /networks/{a} {"network":{}}`, status: 200, answer: `{"network":{"name":"c","revision_number":3}}`},
		{match: "revision_number=0", request: `DELETE /networks/{a}`, status: 412, answer: `RevisionNumberConstraintFailed: Constrained to 0, but current revision is 3`},
		{match: "revision_number=3", request: `DELETE /networks/{a}`, status: 204},
	},
	"tags": {
		create("a"), create("b"),
		{request: `PUT /networks/{a}/tags/kubernetes-x`, status: 201},
		{request: `PUT /networks/{a}/tags/kubernetes-x`, status: 201},
		{request: `PUT /networks/{a}/tags/other`, status: 201},
		{request: `GET /networks/{a}`, status: 200, answer: `{"network":{"tags":["kubernetes-x","other"],"revision_number":3}}`},
		{request: `GET /networks?tags=kubernetes-x&fields=id`, status: 200, answer: `{"networks":[{"id":"{a}"}]}`},
		{request: `GET /networks?tags=other,kubernetes-x&fields=id`, status: 200, answer: `{"networks":[{"id":"{a}"}]}`},
		{request: `GET /networks?tags=other,more&fields=id`, status: 200, answer: `{"networks":[]}`},
		{request: `GET /networks?tags=other&name=b&fields=id`, status: 200, answer: `{"networks":[]}`},
		{request: `GET /networks/{a}/tags/other`, status: 204},
		{request: `GET /networks/{a}/tags/more`, status: 404, answer: `TagNotFound: Tag more could not be found.`},
		{match: "revision_number=2", request: `DELETE /networks/{a}`, status: 412, answer: `RevisionNumberConstraintFailed: Constrained to 2, but current revision is 3`},
		{request: `DELETE /networks/{a}/tags/other`, status: 204},
		{request: `DELETE /networks/{a}/tags/other`, status: 404, answer: `TagNotFound: Tag other could not be found.`},
		{request: `PUT /networks/{a}/tags {"tags":["2","1"]}`, status: 200},
		{request: `GET /networks/{a}/tags`, status: 200, answer: `{"tags":["1","2"]}`},
		{request: `PUT /networks/{a}/tags {"tags":["1","1"]}`, status: 400, answer: `InvalidInput: Invalid input for operation: Duplicate items in the list: '1'.`},
		{request: `PUT /networks/{a}/tags {"tags":[]}`, status: 200, answer: `{"tags":[]}`},
		{request: `PUT /networks/{a}/tags/` + strings.Repeat("t", 255), status: 201},
		{request: `PUT /networks/{a}/tags/` + strings.Repeat("t", 256), status: 400,
			answer: `InvalidInput: Invalid input for operation: '` + strings.Repeat("t", 256) + `' exceeds maximum length of 255.`},
		{request: `PUT /networks/` + nobody + `/tags/t`, status: 404, answer: `TagResourceNotFound: Resource networks ` + nobody + ` could not be found.`},
		{project: "another", request: `PUT /networks/{a}/tags/t`, status: 404, answer: `TagResourceNotFound: Resource networks {a} could not be found.`},

		{request: `POST /subnets {"subnet":{"network_id":"{a}","ip_version":4,"cidr":"10.0.0.0/24"}}`, status: 201, id: "s"},
		{request: `GET /networks/{a}`, status: 200, answer: `{"network":{"revision_number":8}}`},
		{request: `PUT /subnets/{s}/tags/t`, status: 201},
		{request: `GET /subnets?network_id={a}&tags=t`, status: 200, answer: `{"subnets":[{"id":"{s}","tags":["t"],"revision_number":1}]}`},
		{request: `GET /networks/{a}`, status: 200, answer: `{"network":{"revision_number":8}}`},
	},
	"lengths": {
		{request: `POST /networks {"network":{"name":"` + strings.Repeat("n", 255) + `","description":"` + strings.Repeat("ü", 255) + `"}}`, status: 201},
		{request: `POST /networks {"network":{"name":"` + strings.Repeat("n", 256) + `"}}`, status: 400,
			answer: `HTTPBadRequest: Invalid input for name. Reason: '` + strings.Repeat("n", 256) + `' exceeds maximum length of 255.`},
		{request: `POST /networks {"network":{"description":"` + strings.Repeat("d", 256) + `"}}`, status: 400,
			answer: `HTTPBadRequest: Invalid input for description. Reason: '` + strings.Repeat("d", 256) + `' exceeds maximum length of 255.`},
	},
	"what others may change": {
		create("a"),
		{request: `POST /subnets {"subnet":{"network_id":"{a}","ip_version":4,"cidr":"10.0.0.0/24"}}`, status: 201, id: "s"},
		{request: `PUT /networks/{a} {"network":{"admin_state_up":false}}`, status: 200, answer: `{"network":{"admin_state_up":false,"status":"ACTIVE"}}`},
		{request: `PUT /networks/{a} {"network":{"mtu":1400}}`, status: 200, answer: `{"network":{"mtu":1400}}`},
		{request: `PUT /networks/{a} {"network":{"mtu":9000}}`, status: 400, answer: `InvalidInput: Invalid input for operation: Requested MTU is too big, maximum is 1450.`},
		{request: `PUT /networks/{a} {"network":{"shared":true}}`, status: 403,
			answer: `PolicyNotAuthorized: (rule:update_network and rule:update_network:shared) is disallowed by policy`},
		{roles: "admin", request: `PUT /networks/{a} {"network":{"shared":true}}`, status: 200, answer: `{"network":{"shared":true}}`},
		{project: "another", request: `GET /networks?id={a}&fields=id`, status: 200, answer: `{"networks":[{"id":"{a}"}]}`},
		{project: "another", request: `PUT /networks/{a} {"network":{"name":"b"}}`, status: 403, answer: `PolicyNotAuthorized: rule:update_network is disallowed by policy`},
		{project: "another", request: `DELETE /networks/{a}`, status: 403, answer: `PolicyNotAuthorized: rule:delete_network is disallowed by policy`},
		{project: "another", request: `POST /ports {"port":{"network_id":"{a}","name":"theirs"}}`, status: 201, id: "p"},
		{request: `GET /ports?network_id={a}&fields=id`, status: 200, answer: `{"ports":[{"id":"{p}"}]}`},
		{request: `DELETE /ports/{p}`, status: 204},
		{roles: "admin", request: `PUT /networks/{a} {"network":{"shared":false}}`, status: 200, answer: `{"network":{"shared":false}}`}, // or other tests would see it
		{request: `PUT /subnets/{s} {"subnet":{"dns_nameservers":["9.9.9.9"]}}`, status: 200, answer: `{"subnet":{"dns_nameservers":["9.9.9.9"]}}`},
		{request: `PUT /subnets/{s} {"subnet":{"enable_dhcp":false}}`, status: 200, answer: `{"subnet":{"enable_dhcp":false,"dns_nameservers":["9.9.9.9"]}}`},
		{request: `PUT /subnets/{s} {"subnet":{"name":"s","description":"d"}}`, status: 200, answer: `{"subnet":{"name":"s","description":"d"}}`},
		{request: `PUT /subnets/{s} {"subnet":{"allocation_pools":[{"start":"10.0.0.100","end":"10.0.0.120"}]}}`, status: 200,
			answer: `{"subnet":{"gateway_ip":"10.0.0.1","allocation_pools":[{"start":"10.0.0.100","end":"10.0.0.120"}]}}`},
		{request: `PUT /subnets/{s} {"subnet":{"gateway_ip":"10.0.0.254"}}`, status: 200,
			answer: `{"subnet":{"gateway_ip":"10.0.0.254","allocation_pools":[{"start":"10.0.0.100","end":"10.0.0.120"}]}}`},
	},
	"subnets without DHCP": {
		create("a"),
		refused("10.0.0.0/31", 4, "Subnet has a prefix length that is incompatible with DHCP service enabled."),
		refused("fd00::/127", 6, "Subnet has a prefix length that is incompatible with DHCP service enabled."),
		refused("224.0.0.0/4", 4, "Multicast IP subnet is not supported if enable_dhcp is True."),
		refused("ff02::/64", 6, "Multicast IP subnet is not supported if enable_dhcp is True."),
		refused("127.1.0.0/16", 4, "Loopback IP subnet is not supported if enable_dhcp is True."),
		refused("0.0.0.0/8", 4, "First IP '0.0.0.0' of network is not supported if enable_dhcp is True.."),
		refused("::/0", 6, "0 is not allowed as CIDR prefix length."),
		{request: `POST /subnets {"subnet":{"network_id":"{a}","ip_version":4,"cidr":"127.1.0.0/16","enable_dhcp":false}}`, status: 201, id: "s"},
		{request: `PUT /subnets/{s} {"subnet":{"enable_dhcp":true}}`, status: 400,
			answer: `InvalidInput: Invalid input for operation: Loopback IP subnet is not supported if enable_dhcp is True.`},
	},
	"subnets": {
		create("a"), create("b"),
		{request: `POST /subnets {"subnet":{"name":"s","network_id":"{a}","ip_version":4,"cidr":"192.168.0.0/16","gateway_ip":"192.168.0.1"}}`, status: 201, id: "s",
			answer: `{"subnet":{"name":"s","network_id":"{a}","ip_version":4,"cidr":"192.168.0.0/16","gateway_ip":"192.168.0.1","enable_dhcp":true,
				"allocation_pools":[{"start":"192.168.0.2","end":"192.168.255.254"}],"revision_number":0,"project_id":"{project}"}}`},
		{request: `GET /networks/{a}`, status: 200, answer: `{"network":{"subnets":["{s}"],"revision_number":2}}`},
		{request: `GET /subnets?network_id={a}`, status: 200, answer: `{"subnets":[{"id":"{s}","gateway_ip":"192.168.0.1"}]}`},
		{request: `GET /subnets?network_id={a}&name=s&cidr=192.168.0.0/16&fields=id`, status: 200, answer: `{"subnets":[{"id":"{s}"}]}`},
		{request: `GET /subnets?network_id=` + nobody, status: 200, answer: `{"subnets":[]}`},
		{request: `POST /subnets {"subnet":{"network_id":"{a}","ip_version":4,"cidr":"192.168.128.0/17"}}`, status: 400,
			answer: `InvalidInput: Invalid input for operation: Requested subnet with cidr: 192.168.128.0/17 for network: {a} overlaps with another subnet.`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":4,"cidr":"192.168.0.0/16"}}`, status: 201,
			answer: `{"subnet":{"gateway_ip":"192.168.0.1"}}`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":4,"cidr":"10.9.0.5/16"}}`, status: 201,
			answer: `{"subnet":{"cidr":"10.9.0.0/16","gateway_ip":"10.9.0.1"}}`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":4,"cidr":"10.10.0.0/24","gateway_ip":null}}`, status: 201,
			answer: `{"subnet":{"gateway_ip":null,"allocation_pools":[{"start":"10.10.0.1","end":"10.10.0.254"}]}}`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":4,"cidr":"10.11.0.0/24","gateway_ip":"10.11.0.9"}}`, status: 201,
			answer: `{"subnet":{"allocation_pools":[{"start":"10.11.0.1","end":"10.11.0.8"},{"start":"10.11.0.10","end":"10.11.0.254"}]}}`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":4,"cidr":"10.1.0.0/24","gateway_ip":"10.2.0.1"}}`, status: 201,
			answer: `{"subnet":{"gateway_ip":"10.2.0.1","allocation_pools":[{"start":"10.1.0.1","end":"10.1.0.254"}]}}`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":6,"cidr":"fd00::/64"}}`, status: 201,
			answer: `{"subnet":{"gateway_ip":"fd00::","allocation_pools":[{"start":"fd00::1","end":"fd00::ffff:ffff:ffff:ffff"}]}}`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":4,"cidr":"192.168.0.0/33"}}`, status: 400,
			answer: `InvalidInput: Invalid input for operation: 192.168.0.0/33 is not in a CIDR format.`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":4,"cidr":"fd01::/64"}}`, status: 400,
			answer: `InvalidInput: Invalid input for operation: cidr 'fd01::/64' does not match the ip_version '4'.`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":4,"cidr":"10.3.0.0/32"}}`, status: 400,
			answer: `InvalidInput: Invalid input for operation: Subnet has a prefix length that is incompatible with DHCP service enabled.`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":4,"cidr":"10.4.0.0/24","gateway_ip":"10.4.0.0"}}`, status: 400,
			answer: `InvalidInput: Invalid input for operation: Gateway is not valid on subnet.`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":4,"cidr":"10.4.0.0/24","gateway_ip":"10.4.0.255"}}`, status: 400,
			answer: `InvalidInput: Invalid input for operation: Gateway is not valid on subnet.`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":4,"cidr":"10.4.0.0/24","gateway_ip":"abc"}}`, status: 400,
			answer: `HTTPBadRequest: Invalid input for gateway_ip. Reason: 'abc' is not a valid IP address.`},
		{request: `POST /subnets {"subnet":{"network_id":"{b}","ip_version":4}}`, status: 400,
			answer: `BadRequest: Bad subnets request: a subnetpool must be specified in the absence of a cidr.`},
		{request: `POST /subnets {"subnet":{"ip_version":4,"cidr":"10.4.0.0/24"}}`, status: 400,
			answer: `HTTPBadRequest: Failed to parse request. Required attribute 'network_id' not specified`},
		{request: `POST /subnets {"subnet":{"network_id":"` + nobody + `","ip_version":4,"cidr":"10.4.0.0/24"}}`, status: 404,
			answer: `NetworkNotFound: Network ` + nobody + ` could not be found.`},
		{request: `DELETE /subnets/{s}`, status: 204},
		{request: `DELETE /subnets/{s}`, status: 404, answer: `SubnetNotFound: Subnet {s} could not be found.`},
		{request: `GET /networks/{a}`, status: 200, answer: `{"network":{"subnets":[]}}`},
		{request: `DELETE /networks/{b}`, status: 204},
		{request: `GET /subnets?network_id={b}`, status: 200, answer: `{"subnets":[]}`},
	},
	"another gateway": {
		create("a"),
		{request: `POST /subnets {"subnet":{"network_id":"{a}","ip_version":4,"cidr":"10.0.0.0/24"}}`, status: 201, id: "s"},
		{request: `PUT /subnets/{s} {"subnet":{"gateway_ip":"10.0.0.254"}}`, status: 409,
			answer: `GatewayConflictWithAllocationPools: Gateway ip 10.0.0.254 conflicts with allocation pool 10.0.0.2-10.0.0.254.`},
		{match: "revision_number=0", request: `PUT /subnets/{s} {"subnet":{"gateway_ip":"10.0.0.254","allocation_pools":[{"start":"10.0.0.1","end":"10.0.0.253"}]}}`, status: 200,
			answer: `{"subnet":{"gateway_ip":"10.0.0.254","allocation_pools":[{"start":"10.0.0.1","end":"10.0.0.253"}],"revision_number":1}}`},
		{match: "revision_number=0", request: `PUT /subnets/{s} {"subnet":{"name":"n"}}`, status: 412,
			answer: `RevisionNumberConstraintFailed: Constrained to 0, but current revision is 1`},
		{request: `PUT /subnets/{s} {"subnet":{"gateway_ip":null}}`, status: 200, answer: `{"subnet":{"gateway_ip":null}}`},
		{request: `PUT /subnets/{s} {"subnet":{"gateway_ip":"10.7.0.1"}}`, status: 200, answer: `{"subnet":{"gateway_ip":"10.7.0.1"}}`},
		{request: `PUT /subnets/{s} {"subnet":{"gateway_ip":""}}`, status: 400, answer: `HTTPBadRequest: Invalid input for gateway_ip. Reason: '' is not a valid IP address.`},
		{request: `PUT /subnets/{s} {"subnet":{"cidr":"10.0.0.0/25"}}`, status: 400, answer: `HTTPBadRequest: Cannot update read-only attribute cidr`},
		{request: `PUT /subnets/{s} {"subnet":{"allocation_pools":[{"start":"10.8.0.1","end":"10.8.0.3"}]}}`, status: 400,
			answer: `OutOfBoundsAllocationPool: The allocation pool 10.8.0.1-10.8.0.3 spans beyond the subnet cidr 10.0.0.0/24.`},
		{request: `PUT /subnets/` + nobody + ` {"subnet":{}}`, status: 404, answer: `SubnetNotFound: Subnet ` + nobody + ` could not be found.`},
	},
	"ports": {
		create("a"),
		{request: `POST /subnets {"subnet":{"network_id":"{a}","ip_version":4,"cidr":"10.0.0.0/24"}}`, status: 201, id: "s"},
		{request: `POST /ports {"port":{"network_id":"{a}","name":"p","fixed_ips":[{"subnet_id":"{s}","ip_address":"10.0.0.7"}]}}`, status: 201, id: "p",
			answer: `{"port":{"name":"p","network_id":"{a}","device_owner":"","fixed_ips":[{"subnet_id":"{s}","ip_address":"10.0.0.7"}]}}`},
		{request: `GET /ports?network_id={a}&fields=id`, status: 200, answer: `{"ports":[{"id":"{p}"}]}`},
		{request: `DELETE /subnets/{s}`, status: 409,
			answer: `SubnetInUse: Unable to complete operation on subnet {s}: One or more ports have an IP allocation from this subnet.`},
		{request: `DELETE /networks/{a}`, status: 409,
			answer: `NetworkInUse: Unable to complete operation on network {a}. There are one or more ports still in use on the network, id for these ports is: {p}.`},
		{request: `DELETE /ports/{p}`, status: 204},
		{request: `POST /ports {"port":{"network_id":"{a}","device_owner":"network:dhcp","device_id":"dhcp-x"}}`, status: 201},
		{request: `DELETE /networks/{a}`, status: 204},
	},
	"quota": {
		{roles: "admin", request: `PUT /quotas/{project} {"quota":{"network":1,"subnet":1}}`, status: 200, answer: `{"quota":{"network":1,"subnet":1}}`},
		{request: `GET /quotas/{project}`, status: 200, answer: `{"quota":{"network":1,"subnet":1}}`},
		{request: `PUT /quotas/{project} {"quota":{"network":9}}`, status: 403, answer: `PolicyNotAuthorized: rule:update_quota is disallowed by policy`},
		create("a"),
		{request: `POST /networks {"network":{"name":"b"}}`, status: 409, answer: `OverQuota: Quota exceeded for resources: ['network'].`},
		{request: `POST /subnets {"subnet":{"network_id":"{a}","ip_version":4,"cidr":"10.0.0.0/24"}}`, status: 201},
		{request: `POST /subnets {"subnet":{"network_id":"{a}","ip_version":4,"cidr":"10.0.1.0/24"}}`, status: 409, answer: `OverQuota: Quota exceeded for resources: ['subnet'].`},
		{request: `DELETE /networks/{a}`, status: 204},
		create("c"),
	},
}

// A list comes in pages of the size that the client asks for, or that the server allows if that is less.
func TestPages(t *testing.T) {
	for _, pageSize := range []int{0, 2, 7} {
		base := strings.TrimSuffix(os.Getenv("NEUTRON_URL"), "/")
		if base != "" && pageSize != 0 {
			continue // it has no limit of its own
		}
		if base == "" {
			served := httptest.NewServer(&neutrontest.Server{PageSize: pageSize})
			defer served.Close()
			base = served.URL
		}
		client := &gophercloud.ServiceClient{
			ProviderClient: &gophercloud.ProviderClient{}, Type: "network", Endpoint: base + "/", ResourceBase: base + "/v2.0/",
			MoreHeaders: map[string]string{"X-User-Id": "tester", "X-Project-Id": strings.ReplaceAll(uuid.NewString(), "-", ""), "X-Roles": "member,reader"},
		}
		var want []string
		for range 5 {
			made, err := networks.Create(t.Context(), client, networks.CreateOpts{Name: "n"}).Extract()
			require.NoError(t, err)
			want = append(want, made.ID)
		}
		slices.Sort(want)
		for limit := range 7 {
			var sizes []int
			var got []string
			err := networks.List(client, networks.ListOpts{Name: "n", Limit: limit}).EachPage(t.Context(), func(_ context.Context, page pagination.Page) (bool, error) {
				found, err := networks.ExtractNetworks(page)
				sizes = append(sizes, len(found))
				for _, network := range found {
					got = append(got, network.ID)
				}
				return true, err
			})
			require.NoError(t, err)
			require.Equal(t, want, got, "limit %d", limit)
			all := len(want)
			require.Equal(t, min(cmp.Or(limit, all), cmp.Or(pageSize, all), all), slices.Max(sizes), "limit %d, page size %d: %d", limit, pageSize, sizes)
		}
	}
}

// TestContract runs the contract against the Server, or against the Neutron at NEUTRON_URL if that is set.
func TestContract(t *testing.T) {
	url := os.Getenv("NEUTRON_URL")
	if url == "" {
		server := httptest.NewServer(&neutrontest.Server{})
		defer server.Close()
		url = server.URL
	}
	for name, steps := range contract {
		t.Run(name, func(t *testing.T) {
			ids := map[string]string{"project": strings.ReplaceAll(uuid.NewString(), "-", "")}
			fill := func(text string) string {
				for name, id := range ids {
					text = strings.ReplaceAll(text, "{"+name+"}", id)
				}
				return text
			}
			for _, s := range steps {
				method, rest, _ := strings.Cut(fill(s.request), " ")
				path, body, _ := strings.Cut(rest, " ")
				request, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(url, "/")+"/v2.0"+path, strings.NewReader(body))
				require.NoError(t, err)
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set("X-User-Id", "tester")
				request.Header.Set("X-Project-Id", cmp.Or(s.project, ids["project"]))
				request.Header.Set("X-Roles", cmp.Or(s.roles, "member,reader"))
				if s.match != "" {
					request.Header.Set("If-Match", s.match)
				}
				response, err := http.DefaultClient.Do(request)
				require.NoError(t, err)
				text, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				require.Equal(t, s.status, response.StatusCode, "%s: %s", s.request, text)
				requireAnswer(t, s, fill(s.answer), text)
				if s.id != "" {
					var made map[string]struct{ ID string }
					require.NoError(t, json.Unmarshal(text, &made))
					for _, o := range made {
						ids[s.id] = o.ID
					}
				}
			}
		})
	}
}

func requireAnswer(t *testing.T, s step, want string, got []byte) {
	t.Helper()
	if s.status >= 400 {
		var is struct {
			NeutronError struct{ Type, Message string }
		}
		require.NoError(t, json.Unmarshal(got, &is), "%s: %s", s.request, got)
		require.Equal(t, want, is.NeutronError.Type+": "+is.NeutronError.Message, s.request)
		return
	}
	if want == "" {
		return
	}
	var wanted, is any
	require.NoError(t, json.Unmarshal([]byte(want), &wanted), want)
	require.NoError(t, json.NewDecoder(bytes.NewReader(got)).Decode(&is))
	require.Equal(t, wanted, narrow(is, wanted), s.request)
}

// narrow removes from value the keys that like does not have.
func narrow(value, like any) any {
	switch like := like.(type) {
	case map[string]any:
		is, ok := value.(map[string]any)
		if !ok {
			return value
		}
		left := map[string]any{}
		for key, v := range like {
			if of, ok := is[key]; ok {
				left[key] = narrow(of, v)
			}
		}
		return left
	case []any:
		is, ok := value.([]any)
		if !ok || len(is) != len(like) {
			return value
		}
		left := make([]any, len(is))
		for i := range is {
			left[i] = narrow(is[i], like[i])
		}
		return left
	}
	return value
}

// A request without a user is refused.
func TestAuthentication(t *testing.T) {
	if os.Getenv("NEUTRON") == "real" {
		t.Skip("has nothing to do with OpenStack's own Neutron; make test-all runs it")
	}
	server := httptest.NewServer(&neutrontest.Server{})
	defer server.Close()
	response, err := http.Get(server.URL + "/v2.0/networks")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusUnauthorized, response.StatusCode)
}
