package test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
	"example.com/controllers/crd/generated/clientset/versioned"
	typed "example.com/controllers/crd/generated/clientset/versioned/typed/samplecrd/v1"
	"example.com/controllers/harness/clustertest"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/testinput"
)

const definition = "../manifests/samplecrd.k8s.io_networks.yaml"

// newClient returns a client for Networks in a namespace of the test's own, with the definition applied.
func newClient(t *testing.T) (*clustertest.Env, typed.NetworkInterface) {
	t.Helper()
	testinput.Declare(definition, "../example-network.yaml")
	env := clustertest.New(t)
	env.Kubectl("apply", "--filename", definition)
	// The condition Established is true a little before the API server serves the resource and lists it in its discovery.
	env.Eventually("the API server serves Networks", func(context.Context) string {
		if _, err := env.TryKubectl("get", "networks.samplecrd.k8s.io"); err != nil {
			return err.Error()
		}
		return ""
	})
	config, err := env.Config()
	require.NoError(t, err)
	client, err := versioned.NewForConfig(config)
	require.NoError(t, err)
	return env, client.SamplecrdV1().Networks(env.Namespace)
}

func network(cidr, gateway string) *samplecrdv1.Network {
	return &samplecrdv1.Network{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "network-"},
		Spec:       samplecrdv1.NetworkSpec{CIDR: cidr, Gateway: gateway},
	}
}

// Some of the API server's messages.
const (
	inside    = "spec.gateway: Invalid value: must be an address inside spec.cidr"
	first     = "spec.gateway: Invalid value: must not be the first address of spec.cidr, which identifies the network itself"
	last      = "spec.gateway: Invalid value: must not be the last address of spec.cidr, which is the broadcast address"
	isCIDR    = `must be a CIDR, such as 192.168.0.0/16`
	isAddress = `must be an IP address, such as 192.168.0.1`
	tooSmall  = "is too small for a gateway and ports; the longest prefixes are /30 in IPv4 and /126 in IPv6"
	multicast = "must not be a range of multicast addresses"
	loopback  = "must not be a range of loopback addresses, which do not leave a machine"
	zero      = "must not begin with 0.0.0.0, nor be all of IPv6"
)

// specs are specs of Networks, valid ones first.
var specs = []struct {
	cidr, gateway string
	wrong         []string // the API server's messages; nil: it is valid
}{
	{"192.168.0.0/16", "192.168.0.1", nil},
	{"192.168.0.0/16", "192.168.255.254", nil},
	{"10.0.0.0/8", "10.0.0.255", nil},
	{"10.0.0.0/8", "10.255.255.254", nil},
	{"10.0.0.0/30", "10.0.0.1", nil},
	{"10.0.0.4/30", "10.0.0.6", nil},
	{"126.0.0.0/7", "127.255.255.254", nil},
	{"192.0.0.0/2", "224.0.0.1", nil},
	{"169.254.0.0/16", "169.254.0.1", nil},
	{"240.0.0.0/4", "240.0.0.1", nil},
	{"255.255.255.0/24", "255.255.255.1", nil},
	{"fd00::/126", "fd00::1", nil},
	{"fe80::/64", "fe80::1", nil},
	{"8000::/1", "8000::1", nil},
	{"::/1", "::1", nil},
	{"::a00:0/120", "::a00:1", nil},
	{"fd00:1234::/64", "fd00:1234::1", nil},
	{"fd00:1234::/64", "fd00:1234::ffff:ffff:ffff:ffff", nil}, // IPv6 has no broadcast address

	{"192.168.0.0/16", "192.169.0.1", []string{inside}},
	{"192.168.0.0/16", "fd00::1", []string{inside}},
	{"192.168.0.0/16", "192.168.0.0", []string{first}},
	{"192.168.0.0/16", "192.168.255.255", []string{last}},
	{"10.0.0.4/30", "10.0.0.7", []string{last}},
	{"10.0.0.0/8", "10.255.255.255", []string{last}},
	{"0.0.0.0/0", "255.255.255.254", []string{zero}},
	{"0.0.0.0/0", "255.255.255.255", []string{zero, last}},
	{"0.0.0.0/8", "0.0.0.1", []string{zero}},
	{"0.0.0.0/30", "0.0.0.1", []string{zero}},
	{"::/0", "::1", []string{zero}},
	{"10.0.0.0/31", "10.0.0.1", []string{tooSmall, last}},
	{"10.0.0.1/32", "10.0.0.1", []string{tooSmall, first, last}},
	{"fd00::/127", "fd00::1", []string{tooSmall}},
	{"fd00::1/128", "fd00::1", []string{tooSmall, first}},
	{"224.0.0.0/4", "224.0.0.1", []string{multicast}},
	{"239.1.0.0/16", "239.1.0.1", []string{multicast}},
	{"ff00::/8", "ff00::1", []string{multicast}},
	{"ff02::/64", "ff02::1", []string{multicast}},
	{"127.0.0.0/8", "127.0.0.1", []string{loopback}},
	{"127.1.0.0/16", "127.1.0.1", []string{loopback}},
	{"::1/128", "::1", []string{tooSmall, first}},
	{"fd00:1234::/64", "fd00:1234::", []string{first}},
	{"192.168.0.5/16", "192.168.0.1", []string{"must be in canonical form: no bits set after the prefix"}},
	{"FD00::/64", "fd00::1", []string{"must be in canonical form: no bits set after the prefix"}},
	{"fd00::/64", "fd00:0::1", []string{"must be in canonical form: lower case"}},
	{"192.168.0.0", "192.168.0.1", []string{isCIDR}},
	{"192.168.0.0/33", "192.168.0.1", []string{isCIDR}},
	{"192.168.0.0/16", "192.168.0.01", []string{isAddress}},
	{"192.168.0.0/16", "gateway", []string{isAddress}},
	{"10.0.0.0/33", "nowhere", []string{isCIDR, isAddress}},
	{"", "192.168.0.1", []string{"spec.cidr"}},
	{"192.168.0.0/16", "", []string{"spec.gateway"}},
}

func TestValidation(t *testing.T) {
	skipWithRealNeutron(t)
	_, client := newClient(t)
	for _, c := range specs {
		t.Run(fmt.Sprintf("%s in %s", c.gateway, c.cidr), func(t *testing.T) {
			_, err := client.Create(t.Context(), network(c.cidr, c.gateway), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if c.wrong == nil {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			for _, wrong := range c.wrong {
				require.ErrorContains(t, err, wrong)
			}
			for _, other := range []string{inside, first, last, tooSmall, multicast, loopback, zero} {
				if !slices.Contains(c.wrong, other) {
					require.NotContains(t, err.Error(), other)
				}
			}
		})
	}
}

func TestUpdates(t *testing.T) {
	skipWithRealNeutron(t)
	ctx := t.Context()
	_, client := newClient(t)
	made, err := client.Create(ctx, network("192.168.0.0/16", "192.168.0.1"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, made.Generation)

	moved := made.DeepCopy()
	moved.Spec.CIDR, moved.Spec.Gateway = "10.0.0.0/8", "10.0.0.1"
	_, err = client.Update(ctx, moved, metav1.UpdateOptions{})
	require.ErrorContains(t, err, "spec.cidr: Forbidden: is immutable; delete the Network and create another one")

	changed := made.DeepCopy()
	changed.Spec.Gateway = "192.168.0.254"
	changed.Status.NetworkID = "must not be written with the main resource"
	changed, err = client.Update(ctx, changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 2, changed.Generation)
	require.Empty(t, changed.Status.NetworkID)

	changed.Status.NetworkID = "n"
	changed.Spec.Gateway = "must not be written with the status"
	changed, err = client.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 2, changed.Generation)
	require.Equal(t, "n", changed.Status.NetworkID)
	require.Equal(t, "192.168.0.254", changed.Spec.Gateway)
}

// kubectl prints the example with the definition's columns.
func TestTheExample(t *testing.T) {
	skipWithRealNeutron(t)
	env, client := newClient(t)
	env.Kubectl("apply", "--filename", "../example-network.yaml")
	made, err := client.Get(context.Background(), "example-network", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, samplecrdv1.NetworkSpec{CIDR: "192.168.0.0/16", Gateway: "192.168.0.1"}, made.Spec)
	require.Regexp(t, `NAME +CIDR +GATEWAY +READY +REASON +AGE\nexample-network +192.168.0.0/16 +192.168.0.1 +`, env.Kubectl("get", "net"))
	require.Contains(t, env.Kubectl("get", "all"), "network.samplecrd.k8s.io/example-network")
}

// skipWithRealNeutron skips a test that makes no calls to a Neutron, or only to one in memory, under "make neutron".
func skipWithRealNeutron(t *testing.T) {
	t.Helper()
	if os.Getenv("NEUTRON") == "real" {
		t.Skip("has nothing to do with OpenStack's own Neutron; make test-all runs it")
	}
}

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}
