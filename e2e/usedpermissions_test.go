package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"example.com/controllers/harness/lesson"
)

// permission is a verb on a resource, which a role grants to a ServiceAccount or the ServiceAccount has used.
type permission struct {
	account  string // NAMESPACE/NAME
	verb     string
	group    string // "" for the core group
	resource string // with its subresource: "pods/eviction"
	name     string // of the only object that it is for, or "" if it is for all
}

func (p permission) String() string {
	text := fmt.Sprintf("%s may %s %s", p.account, p.verb, p.resource)
	if p.group != "" {
		text += "." + p.group
	}
	if p.name != "" {
		text += " " + p.name
	}
	return text
}

// notUsed says why a permission is granted that no test here uses.
var notUsed = map[string]string{
	"workqueue/workqueue may create events.events.k8s.io":                     "it writes an Event about a Pod whose deletion has failed three times",
	"workqueue/workqueue may patch events.events.k8s.io":                      "client-go patches an Event that occurs again",
	"network-controller/network-controller may patch events.events.k8s.io":    "client-go patches an Event that occurs again",
	"network-controller/network-controller may get networks.samplecrd.k8s.io": "the sweep asks whether a Network exists before it deletes the network in the cloud",
	"reboot-operator/reboot-agent may get nodes":                              "it reads the boot ID from the Node with --boot-id node, and the Node before it repeats a reboot",
	"reboot-operator/reboot-agent may patch events.events.k8s.io":             "client-go patches an Event that occurs again",
	"reboot-operator/reboot-controller may patch events.events.k8s.io":        "client-go patches an Event that occurs again",
	"secret-sync/secretsync-controller may patch events.events.k8s.io":        "client-go patches an Event that occurs again",
}

// TestPermissionsAreUsed compares what the lessons' roles grant with what the controllers have asked for in the other
// tests, according to the API server's audit log. It comes last, because Go runs the tests file by file, in alphabetical order.
func TestPermissionsAreUsed(t *testing.T) {
	used := usedPermissions(t)
	isUsed := func(p permission) bool {
		if used[p] {
			return true
		}
		// An informer lists only if the API server cannot send the existing objects as the first events of a watch.
		p.verb = strings.Replace(p.verb, "list", "watch", 1)
		return used[p]
	}
	excused := map[string]bool{}
	var unused []string
	for _, p := range grantedPermissions(t) {
		_, isExcused := notUsed[p.String()]
		switch {
		case isUsed(p) && isExcused:
			t.Errorf("%s, and uses it; remove it from notUsed", p)
		case !isUsed(p) && !isExcused:
			unused = append(unused, p.String())
		}
		excused[p.String()] = true
	}
	require.Empty(t, unused, "permissions that were never used; remove them from the roles, or say in notUsed why they are needed")
	for name := range notUsed {
		require.Contains(t, excused, name, "notUsed has a permission that is not granted")
	}
}

// grantedPermissions returns what the roles in the lessons' manifests grant to their ServiceAccounts.
func grantedPermissions(t *testing.T) []permission {
	t.Helper()
	lessons, err := lesson.All(world.root)
	require.NoError(t, err)
	var granted []permission
	for _, l := range lessons {
		rules := map[string][]rbacv1.PolicyRule{} // by kind and name of the role
		bindings := map[string][]rbacv1.Subject{}
		documents := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(kubectl(t, "kustomize", filepath.Join(l.Dir, "manifests"))), 4096)
		for {
			var object struct {
				metav1.TypeMeta   `json:",inline"`
				metav1.ObjectMeta `json:"metadata"`
				Rules             []rbacv1.PolicyRule `json:"rules"`
				RoleRef           rbacv1.RoleRef      `json:"roleRef"`
				Subjects          []rbacv1.Subject    `json:"subjects"`
			}
			if err := documents.Decode(&object); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err)
			}
			switch object.Kind {
			case "Role", "ClusterRole":
				rules[object.Kind+" "+object.Name] = object.Rules
			case "RoleBinding", "ClusterRoleBinding":
				role := object.RoleRef.Kind + " " + object.RoleRef.Name
				bindings[role] = append(bindings[role], object.Subjects...)
			}
		}
		for role, subjects := range bindings {
			require.Contains(t, rules, role)
			for _, subject := range subjects {
				granted = append(granted, permissionsOf(subject.Namespace+"/"+subject.Name, rules[role])...)
			}
		}
	}
	require.NotEmpty(t, granted)
	slices.SortFunc(granted, func(a, b permission) int { return cmp.Compare(a.String(), b.String()) })
	return granted
}

func permissionsOf(account string, rules []rbacv1.PolicyRule) (all []permission) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						all = append(all, permission{account, verb, group, resource, name})
					}
				}
			}
		}
	}
	return all
}

// usedPermissions returns what ServiceAccounts have asked for and were allowed to, each with the name of the object and for
// all objects.
func usedPermissions(t *testing.T) map[permission]bool {
	t.Helper()
	log, err := world.AuditLog(t.Context())
	require.NoError(t, err)
	used := map[permission]bool{}
	for line := range bytes.Lines([]byte(log)) {
		var event struct {
			Verb string
			User struct{ Username string }
			// Object is nil for requests that are not about objects.
			Object *struct {
				Resource, Subresource, Name, APIGroup string
			} `json:"objectRef"`
			Response struct{ Code int } `json:"responseStatus"`
		}
		require.NoError(t, json.Unmarshal(line, &event))
		account, isAccount := strings.CutPrefix(event.User.Username, "system:serviceaccount:")
		if event.Object == nil || !isAccount || event.Response.Code == http.StatusForbidden {
			continue
		}
		p := permission{
			account: strings.Replace(account, ":", "/", 1), verb: event.Verb,
			group: event.Object.APIGroup, resource: event.Object.Resource, name: event.Object.Name,
		}
		if event.Object.Subresource != "" {
			p.resource += "/" + event.Object.Subresource
		}
		used[p] = true
		p.name = ""
		used[p] = true
	}
	require.NotEmpty(t, used, "the audit log is empty")
	return used
}
