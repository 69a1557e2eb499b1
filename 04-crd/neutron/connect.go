package neutron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"k8s.io/klog/v2"
)

// timeout limits each request. After a timeout it is unknown whether the cloud has carried out, or will carry out, the
// request.
const timeout = 30 * time.Second

// Connect returns a client for the Neutron that the environment names. OS_CLOUD names a cloud in clouds.yaml, as for
// OpenStack's own client; OS_AUTH_URL and the other OS_ variables do without a file. A setting that is not supported is an
// error if its absence would surprise, and is logged if not; the page has a table. NEUTRON_URL is the address of a Neutron
// without Keystone. There, NEUTRON_PROJECT is the project, and NEUTRON_ROLES the caller's roles, such as "admin", if they are
// not those of a regular member.
//
// It returns when ctx ends, although gophercloud asks a Neutron for its versions without a context.
func Connect(ctx context.Context) (*Cloud, error) {
	type result struct {
		cloud *Cloud
		err   error
	}
	done := make(chan result, 1)
	go func() {
		cloud, err := connect(ctx)
		done <- result{cloud, err}
	}()
	select {
	case r := <-done:
		return r.cloud, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func connect(ctx context.Context) (*Cloud, error) {
	httpClient := http.Client{Timeout: timeout}
	if address := os.Getenv("NEUTRON_URL"); address != "" {
		return withoutKeystone(address, os.Getenv("NEUTRON_PROJECT"), httpClient)
	}
	auth, endpoint, tls, err := configure(klog.FromContext(ctx))
	if err != nil {
		return nil, err
	}
	provider, err := config.NewProviderClient(ctx, auth, config.WithHTTPClient(httpClient), config.WithTLSConfig(tls))
	if err != nil {
		return nil, fmt.Errorf("log in to %s: %w", auth.IdentityEndpoint, err)
	}
	client, err := openstack.NewNetworkV2(provider, endpoint)
	if err != nil {
		return nil, fmt.Errorf("find the service \"network\" in the cloud's catalog: %w", err)
	}
	return &Cloud{Client: client}, nil
}

func withoutKeystone(address, project string, httpClient http.Client) (*Cloud, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, fmt.Errorf("NEUTRON_URL is %q; it must be like http://127.0.0.1:9696", address)
	}
	if parsed.User != nil { // the address is logged
		return nil, errors.New("NEUTRON_URL has a user name or a password; a Neutron without Keystone takes neither")
	}
	if project == "" {
		return nil, errors.New("NEUTRON_URL is set but NEUTRON_PROJECT is not; set it to the project to create networks in")
	}
	base := strings.TrimSuffix(address, "/") + "/"
	return &Cloud{Client: &gophercloud.ServiceClient{
		ProviderClient: &gophercloud.ProviderClient{HTTPClient: httpClient},
		Type:           "network", Endpoint: base, ResourceBase: base + "v2.0/",
		MoreHeaders: map[string]string{"X-User-Id": "network-controller", "X-Project-Id": project,
			"X-Roles": cmp.Or(os.Getenv("NEUTRON_ROLES"), "member,reader")}, // the roles that Keystone reports for a regular member
	}}, nil
}

// IsTemporary reports whether an error of [Cloud.Check] is likely to resolve itself: the cloud is down or overloaded, and
// has not rejected the request.
func IsTemporary(err error) bool {
	var login *gophercloud.ErrUnableToReauthenticate
	if errors.As(err, &login) {
		err = login.ErrReauth
	}
	var unexpected gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &unexpected) {
		return unexpected.Actual >= http.StatusInternalServerError || unexpected.Actual == http.StatusTooManyRequests
	}
	return err != nil
}

// Check makes one request to see whether the cloud is a Neutron that accepts the controller's credentials.
func (c *Cloud) Check(ctx context.Context) error {
	response, err := c.Client.Get(ctx, c.Client.ServiceURL("networks")+"?fields=id&id=none", nil, nil)
	if err != nil {
		return fmt.Errorf("list networks of the Neutron at %s; is it the right address, and is it up? %w", c.Client.Endpoint, err)
	}
	return response.Body.Close()
}
