package repository

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/testinput"
)

// workload is what Deployments, DaemonSets and quotas have in common with each other here.
type workload struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Template *corev1.PodTemplateSpec `json:"template"`
		// Of a ResourceQuota.
		ScopeSelector *corev1.ScopeSelector `json:"scopeSelector"`
	} `json:"spec"`
}

// The lessons' Pods run on Linux only, and a cluster may have other Nodes. And some clouds let Pods outside of kube-system have a
// system priority only where a quota says so.
func TestWorkloadsRunOnOtherPeoplesClusters(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	found := 0
	lessons, err := filepath.Glob(filepath.Join(root, "0*"))
	require.NoError(t, err)
	require.Len(t, lessons, 6)
	for _, lesson := range lessons {
		testinput.Declare(filepath.Join(lesson, "manifests"))
		files, err := filepath.Glob(filepath.Join(lesson, "*.yaml"))
		require.NoError(t, err)
		for _, pattern := range []string{"manifests/*.yaml", "manifests/*/*.yaml"} {
			more, err := filepath.Glob(filepath.Join(lesson, pattern))
			require.NoError(t, err)
			files = append(files, more...)
		}
		var classes, allowed []string
		for _, file := range files {
			testinput.Declare(file)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
			for {
				var w workload
				if documents.Decode(&w) != nil {
					break // the end
				}
				if w.Spec.ScopeSelector != nil {
					for _, expression := range w.Spec.ScopeSelector.MatchExpressions {
						allowed = append(allowed, expression.Values...)
					}
				}
				if w.Spec.Template == nil || len(w.Spec.Template.Spec.Containers) == 0 {
					continue
				}
				found++
				spec := w.Spec.Template.Spec
				require.Equal(t, "linux", spec.NodeSelector[corev1.LabelOSStable], "%s: %s %s: set spec.template.spec.nodeSelector", file, w.Kind, w.Name)
				if slices.Contains([]string{"system-node-critical", "system-cluster-critical"}, spec.PriorityClassName) {
					classes = append(classes, spec.PriorityClassName)
				}
			}
		}
		for _, class := range classes {
			require.Contains(t, allowed, class, "%s: no ResourceQuota in its manifests allows Pods of this priority", lesson)
		}
	}
	require.GreaterOrEqual(t, found, 11)
}
