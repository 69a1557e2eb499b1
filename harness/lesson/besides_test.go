package lesson

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
)

func TestStepName(t *testing.T) {
	for command, want := range map[string]string{
		`kubectl patch configmap frontend-config --type merge --patch '{"data":{"greeting":"hi"}}'`: "kubectl patch configmap frontend-config",
		`kubectl create secret generic db --from-literal=password=hunter2`:                          "kubectl create secret generic db",
		`kubectl annotate node node-1 token=hunter2`:                                                "kubectl annotate node node-1",
		`kubectl set env deployment/web "PASSWORD=$(cat secret)"`:                                   "kubectl set env deployment/web",
		`kubectl scale deployment/frontend --replicas 3`:                                            "kubectl scale deployment/frontend",
		`kill %?cmd/informer`:          "kill %?cmd/informer",
		`kill %?proxy`:                 "",
		`kill -9 $!`:                   "kill",
		`kubectl get pods`:             "",
		`until test 1 = 2; do :; done`: "",
		`password=hunter2 kubectl x`:   "",
		`kubectl`:                      "",
		``:                             "",
	} {
		require.Equal(t, want, stepName(command), command)
	}
}

func TestRan(t *testing.T) {
	var states []string
	ran := ran(func(r history.Record) { states = append(states, r.Process.Program+" "+string(r.Process.State)) })
	ran("proxy", true)
	ran("informer", true)
	ran("informer", false)
	ran(`"$mutant/trusting"`, true)
	require.Equal(t, []string{"informer running", "informer ended", "$mutant/trusting running"}, states)
}
