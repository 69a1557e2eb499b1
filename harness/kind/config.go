package kind

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/yaml"
)

const (
	auditPolicyOnNode = "/etc/kubernetes/audit/policy.yaml"
	auditLogDir       = "/var/log/kubernetes"
	auditLogOnNode    = auditLogDir + "/audit.log"
)

// auditPolicyPath returns the path of the audit policy on this computer.
func auditPolicyPath(kubeconfig string) string {
	return strings.TrimSuffix(kubeconfig, ".kubeconfig") + ".audit-policy.yaml"
}

// configure returns kind's configuration of the cluster. It writes the audit policy, if there is one.
func configure(o Options) (*v1alpha4.Cluster, error) {
	controlPlane := v1alpha4.Node{Role: v1alpha4.ControlPlaneRole}
	config := &v1alpha4.Cluster{}
	patch := func(object map[string]any) error {
		text, err := yaml.Marshal(object)
		config.KubeadmConfigPatches = append(config.KubeadmConfigPatches, string(text))
		return err
	}
	if o.MaxPods > 0 {
		if err := patch(map[string]any{"kind": "KubeletConfiguration", "maxPods": o.MaxPods}); err != nil {
			return nil, err
		}
	}
	if o.AuditPolicy != "" {
		path, err := filepath.Abs(auditPolicyPath(o.kubeconfig()))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(o.AuditPolicy), 0o644); err != nil {
			return nil, fmt.Errorf("write the audit policy: %w", err)
		}
		controlPlane.ExtraMounts = append(controlPlane.ExtraMounts, v1alpha4.Mount{HostPath: path, ContainerPath: auditPolicyOnNode, Readonly: true})
		if err := patch(map[string]any{
			"kind": "ClusterConfiguration",
			"apiServer": map[string]any{
				"extraArgs": []map[string]any{
					{"name": "audit-policy-file", "value": auditPolicyOnNode},
					{"name": "audit-log-path", "value": auditLogOnNode},
				},
				"extraVolumes": []map[string]any{
					{"name": "audit-policy", "hostPath": auditPolicyOnNode, "mountPath": auditPolicyOnNode, "readOnly": true, "pathType": "File"},
					{"name": "audit-log", "hostPath": auditLogDir, "mountPath": auditLogDir, "pathType": "DirectoryOrCreate"},
				},
			},
		}); err != nil {
			return nil, err
		}
	}
	config.Nodes = append(config.Nodes, controlPlane)
	for range o.Workers {
		config.Nodes = append(config.Nodes, v1alpha4.Node{Role: v1alpha4.WorkerRole})
	}
	v1alpha4.SetDefaultsCluster(config)
	return config, nil
}

// AuditLog returns the API server's audit log, a JSON object in each line. The cluster must have been created with an audit
// policy.
func (c *Cluster) AuditLog(ctx context.Context) (string, error) {
	return c.Exec(ctx, c.ID+"-control-plane", "cat", auditLogOnNode)
}
