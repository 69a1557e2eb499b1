package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestPausesOf(t *testing.T) {
	for name, test := range map[string]struct {
		data map[string]string
		want []Pause
	}{
		"no data":                   {nil, nil},
		"other keys":                {map[string]string{"slots": "{}", "pausedby": "x", "unpaused": "true"}, nil},
		"the switch":                {map[string]string{"paused": "true"}, []Pause{{}}},
		"the switch, off":           {map[string]string{"paused": "false"}, nil},
		"the switch, misspelt":      {map[string]string{"paused": "yes"}, []Pause{{}}},
		"a name":                    {map[string]string{"paused.ceph": "HEALTH_WARN"}, []Pause{{"ceph", "HEALTH_WARN"}}},
		"a name, off":               {map[string]string{"paused.ceph": "false"}, nil},
		"a name, no reason":         {map[string]string{"paused.ceph": "true"}, []Pause{{"ceph", ""}}},
		"a name, empty":             {map[string]string{"paused.ceph": ""}, []Pause{{"ceph", ""}}},
		"an empty name":             {map[string]string{"paused.": "x"}, []Pause{{".", "x"}}},
		"a reason of several lines": {map[string]string{"paused.ceph": "2 osds down\n1 full\n"}, []Pause{{"ceph", "2 osds down 1 full"}}},
		"several":                   {map[string]string{"paused.b": "2", "paused": "1", "paused.a": "x"}, []Pause{{}, {"a", "x"}, {"b", "2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, PausesOf(&corev1.ConfigMap{Data: test.data}))
		})
	}
}

func TestDescribe(t *testing.T) {
	for want, pauses := range map[string][]Pause{
		`reboots are paused; "kubectl reboot resume" resumes them`:                                                                        {{}},
		`reboots are paused by ceph; "kubectl reboot resume --by ceph" resumes them`:                                                      {{Name: "ceph"}},
		`reboots are paused by ceph: HEALTH_WARN; "kubectl reboot resume --by ceph" resumes them`:                                         {{"ceph", "HEALTH_WARN"}},
		`reboots are paused; "kubectl reboot resume" ends that, and reboots are paused by a: x; "kubectl reboot resume --by a" ends that`: {{}, {"a", "x"}},
	} {
		require.Equal(t, want, Describe(pauses))
	}
}

func TestValidatePause(t *testing.T) {
	for _, test := range []struct {
		pause Pause
		want  string // the error; "" for none
	}{
		{Pause{}, ""},
		{Pause{"ceph-osd.1_a", "HEALTH_WARN"}, ""},
		{Pause{"", "HEALTH_WARN"}, "--reason needs --by, the name of who pauses"},
		{Pause{"ceph", "false"}, `--reason is "false", which would not pause; say why in words`},
		{Pause{"ceph", "0"}, `--reason is "0", which would not pause; say why in words`},
		{Pause{"the admin", ""}, `--by is "the admin"; it may have letters, digits, "-", "_" and "."`},
		{Pause{"a/b", ""}, `--by is "a/b"; it may have letters, digits, "-", "_" and "."`},
	} {
		err := test.pause.Validate()
		if test.want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, test.want)
	}
}

// What the advice says about a pause ends it.
func TestTheKeyOfAPause(t *testing.T) {
	for _, key := range []string{"paused", "paused.ceph", "paused."} {
		pauses := PausesOf(&corev1.ConfigMap{Data: map[string]string{key: "true"}})
		require.Len(t, pauses, 1)
		require.Equal(t, key, pauses[0].key())
		require.NoError(t, pauses[0].Validate())
	}
}
