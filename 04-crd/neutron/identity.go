package neutron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/attributestags"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/controllers/crd"
	samplecrdv1 "example.com/controllers/crd/apis/samplecrd/v1"
)

// Whose is a network? Everybody in the project can edit its name, its description and its tags; only its ID stays. So
// there are four pieces of evidence, and what was edited is repaired while the others still tell:
//
//   - A tag, the Network's mark. It counts more than the name, because a tag has no other use, and nobody gives the tag of
//     one network to another by accident. Marks of two Networks contradict each other, so then no tag counts.
//   - The name, which is the mark, too. It cannot be missing: a network has it from the moment of its creation, and gets the
//     tag a moment later. Names are not unique, so the description must begin like ours.
//   - The ID in the Network's status. It counts only if tag and name are nobody's mark, because a status can be a copy: a
//     restore from a backup creates a Network with a new UID and the old status. Otherwise the new Network would take over,
//     and delete, the network of the old one.
//   - The description has the Network's namespace and name, for people. By itself it is no evidence, since anybody may write
//     it. With the ID in the status it is: it excludes copies in other namespaces.
//
// A network that has the ID in the status, and nothing else, is not touched. The status then tells a person what to do.

var errNoOwner = errors.New("the Cloud has no Owner, so its networks cannot be told from others; set Owner")

func (c *Cloud) prefix() string { return "kubernetes-" + string(c.Owner) + "-" }

// mark is the text by which the network and the subnet of a Network are recognized: their name and a tag of theirs.
func (c *Cloud) mark(n *samplecrdv1.Network) string { return c.prefix() + string(n.UID) }

// othersMark matches the marks of all clusters: the owner's UID is that of a namespace.
var othersMark = regexp.MustCompile(`^kubernetes-.+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// markOf returns the mark of a network or a subnet, and whether it is a tag. It is "" if there is none.
func (c *Cloud) markOf(name string, tags []string) (mark string, isTag bool) {
	isMark := func(text string) bool { return strings.HasPrefix(text, c.prefix()) || othersMark.MatchString(text) }
	marks := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return !isMark(tag) })
	switch {
	case len(marks) == 1:
		return marks[0], true
	case isMark(name):
		return name, false
	}
	return "", false
}

const (
	descriptionPrefix = "Kubernetes Network "
	maxDescription    = 255 // characters; Neutron refuses more
	ellipsis          = "..."
)

// description tells people what the network is for. A name that is too long is cut. It ends in dots then, as no name does.
func description(n *samplecrdv1.Network) string {
	text := descriptionPrefix + n.Namespace + "/" + n.Name
	if len(text) > maxDescription {
		text = text[:maxDescription-len(ellipsis)] + ellipsis
	}
	return text
}

// described returns the namespace and the name of the Network in a description, or "" if somebody has edited it, or if it
// was cut.
func described(text string) (namespace, name string) {
	key, _ := strings.CutPrefix(text, descriptionPrefix)
	namespace, name, _ = strings.Cut(key, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", ""
	}
	return namespace, name
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
		mark, isTag := c.markOf(network.Name, network.Tags)
		uid, isOurs := strings.CutPrefix(mark, c.prefix())
		if isOurs && (isTag || strings.HasPrefix(network.Description, descriptionPrefix)) {
			namespace, name := described(network.Description)
			owners = append(owners, crd.Owner{Namespace: namespace, Name: name, UID: types.UID(uid)})
		}
	}
	return owners, nil
}

// findNetworks returns the networks that belong to a Network. The first one is the one to keep: the one whose ID is in the
// status, or else one that has the tag. It makes one request if that of the status has its name, and up to three if not.
func (c *Cloud) findNetworks(ctx context.Context, n *samplecrdv1.Network) ([]networks.Network, error) {
	if n.UID == "" {
		return nil, fmt.Errorf("find networks of Network %s/%s: it has no UID", n.Namespace, n.Name) // all such Networks would share a mark
	}
	if c.Owner == "" {
		return nil, errNoOwner
	}
	queries := []networks.ListOpts{{Name: c.mark(n)}, {Tags: c.mark(n)}}
	if n.Status.NetworkID != "" {
		queries = append(queries, networks.ListOpts{ID: n.Status.NetworkID})
	}
	found := map[string]networks.Network{}
	for _, query := range queries {
		if _, isFound := found[n.Status.NetworkID]; isFound {
			break // it has kept its name, as almost always. So have any duplicates
		}
		some, err := c.listNetworks(ctx, query)
		if err != nil {
			return nil, explain("list networks", n, err)
		}
		for _, network := range some {
			found[network.ID] = network
		}
	}
	var existing []networks.Network
	for _, network := range found {
		isOurs, err := c.belongsTo(n, network)
		if err != nil {
			return nil, err
		}
		if isOurs {
			existing = append(existing, network)
		}
	}
	slices.SortFunc(existing, c.compare(n))
	return existing, nil
}

// belongsTo weighs the evidence. It returns a RefusedError if a person has to.
func (c *Cloud) belongsTo(n *samplecrdv1.Network, network networks.Network) (bool, error) {
	isInStatus := network.ID == n.Status.NetworkID
	isDescribed := strings.HasPrefix(network.Description, descriptionPrefix)
	switch mark, isTag := c.markOf(network.Name, network.Tags); {
	case mark == c.mark(n):
		return isTag || isDescribed || isInStatus, nil
	case mark != "" || !isInStatus:
		return false, nil
	case isDescribed:
		return network.Description == description(n), nil
	}
	return false, &crd.RefusedError{Reason: samplecrdv1.ReasonRefused, Message: fmt.Sprintf("the network %s (%s), whose ID is in the status, has lost its name, "+
		"its description and its tag, so it may be another's; if it is this Network's, give it the tag %s again; if not, remove networkID from the status",
		network.ID, network.Name, c.mark(n))}
}

// compare orders the networks of a Network, that to keep first.
func (c *Cloud) compare(n *samplecrdv1.Network) func(a, b networks.Network) int {
	rank := func(network networks.Network) int {
		_, isTag := c.markOf(network.Name, network.Tags)
		switch {
		case network.ID == n.Status.NetworkID:
			return 0
		case isTag:
			return 1
		}
		return 2
	}
	return func(a, b networks.Network) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.ID, b.ID)) }
}

// markNetwork gives a network the name, the description and the tag of its Network, where they are missing.
func (c *Cloud) markNetwork(ctx context.Context, n *samplecrdv1.Network, network networks.Network) error {
	if name, text := c.mark(n), description(n); network.Name != name || network.Description != text {
		_, err := networks.Update(ctx, c.Client, network.ID, networks.UpdateOpts{
			Name: &name, Description: &text,
			RevisionNumber: &network.RevisionNumber, // a precondition: fails if the network has changed since it was listed
		}).Extract()
		if err != nil {
			return explain("restore the name and the description of network", n, err)
		}
	}
	return c.addTag(ctx, n, "networks", network.ID, network.Tags)
}

// addTag gives a network or a subnet the tag of its Network, if it is not among its tags. It leaves other tags alone.
func (c *Cloud) addTag(ctx context.Context, n *samplecrdv1.Network, collection, id string, tags []string) error {
	if slices.Contains(tags, c.mark(n)) {
		return nil
	}
	err := attributestags.Add(ctx, c.Client, collection, id, c.mark(n)).ExtractErr()
	if gophercloud.ResponseCodeIs(err, http.StatusNotFound) && errorType(err) != "TagResourceNotFound" {
		return &crd.RefusedError{Reason: samplecrdv1.ReasonRefused, Message: "this Neutron has no tags; it needs the extension standard-attr-tag", Err: err}
	}
	return explain("set the tag of "+strings.TrimSuffix(collection, "s"), n, err)
}
