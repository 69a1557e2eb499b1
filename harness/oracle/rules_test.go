package oracle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/controllers/harness/oracle"
)

// pod is a Pod in a phase.
func pod(name, phase string) oracle.Object {
	return oracle.Object{"metadata": oracle.Object{"name": name}, "status": oracle.Object{"phase": phase}}
}

// message is what a violation says, or "" for none.
func message(v *oracle.Violation) string {
	if v == nil {
		return ""
	}
	return v.Message
}

func TestVariablesOfRules(t *testing.T) {
	state := oracle.State{
		"pods":       {"b": pod("b", "Running"), "a": pod("a", "Pending")},
		"configmaps": {},
		"secrets":    {"s": pod("s", "")},
	}
	deleted := &oracle.Change{Type: watch.Deleted, Resource: "pods", Old: pod("c", "Running"), New: pod("c", "Failed")}
	added := &oracle.Change{Type: watch.Added, Resource: "pods", New: pod("a", "Pending")}
	for rule, c := range map[string]struct {
		change *oracle.Change
		holds  bool
	}{
		"true":                                    {nil, true},
		"false":                                   {nil, false},
		"size(pods) == 2":                         {nil, true},
		"size(pods) == 3":                         {nil, false},
		"pods[0].metadata.name == 'a'":            {nil, true}, // by name
		"size(configmaps) == 0":                   {nil, true},
		"configmaps.all(c, false)":                {nil, true},
		"configmaps.exists(c, true)":              {nil, false},
		"services.size() == 0":                    {nil, true}, // it is watched, and there has been none
		"pods.all(p, p.status.phase == 'x')":      {nil, false},
		"pods.exists_one(p, 'phase' in p)":        {nil, false},
		"now > timestamp('2020-01-01T00:00:00Z')": {nil, true},
		"now < timestamp('2020-01-01T00:00:00Z')": {nil, false},
		"change.type == 'DELETED' && change.resource == 'pods'": {deleted, true},
		"change.type == 'ADDED'":                                {deleted, false},
		"change.object.status.phase == 'Failed'":                {deleted, true},
		"change.old.status.phase == 'Running'":                  {deleted, true},
		"size(change.old) == 0":                                 {added, true}, // an object that is empty
		"has(change.old.metadata)":                              {added, false},
		"has(change.type)":                                      {nil, false},
		"pods[0].?spec.?nodeName.orValue('none') == 'none'":     {nil, true}, // as in Kubernetes
		"pods.map(p, p.metadata.name).isSorted()":               {nil, true},
		"'a-12'.find('[0-9]+') == '12'":                         {nil, true},
		"url('https://a.b/c').getHost() == 'a.b'":               {nil, true},
	} {
		t.Run(rule, func(t *testing.T) {
			rules, err := oracle.NewRules([]string{"pods", "configmaps", "services"}, []oracle.Condition{{Rule: rule}})
			require.NoError(t, err)
			want := "the rule does not hold: " + rule
			if c.holds {
				want = ""
			}
			require.Equal(t, want, message(rules.Check(state, c.change)))
		})
	}
}

func TestNowIsTheCurrentTime(t *testing.T) {
	begin := time.Now()
	rules, err := oracle.NewRules(nil, []oracle.Condition{{Rule: "false", Message: "string(now)"}})
	require.NoError(t, err)
	now, err := time.Parse(time.RFC3339Nano, message(rules.Check(nil, nil)))
	require.NoError(t, err)
	require.False(t, now.Before(begin.Round(0)))
	require.False(t, now.After(time.Now().Round(0)))
}

func TestCheck(t *testing.T) {
	state := oracle.State{"pods": {"a": pod("a", "Running")}}
	for name, c := range map[string]struct {
		conditions []oracle.Condition
		want       string
	}{
		"none":                   {nil, ""},
		"all hold":               {[]oracle.Condition{{Rule: "size(pods) == 1"}, {Rule: "true", Message: "'no'"}}, ""},
		"one is broken":          {[]oracle.Condition{{Rule: "true"}, {Rule: "pods == []"}}, "the rule does not hold: pods == []"},
		"the first counts":       {[]oracle.Condition{{Rule: "false", Message: "'one'"}, {Rule: "false", Message: "'two'"}}, "one"},
		"a message":              {[]oracle.Condition{{Rule: "false", Message: "'no Pod but ' + pods[0].metadata.name"}}, "no Pod but a"},
		"a message of any type":  {[]oracle.Condition{{Rule: "false", Message: "pods[0].metadata.name"}}, "a"},
		"a message that is none": {[]oracle.Condition{{Rule: "false", Message: "pods[7].metadata.name"}}, "the rule does not hold: false"},
		"a rule of any type":     {[]oracle.Condition{{Rule: "pods[0].metadata.name"}}, "the rule does not hold: pods[0].metadata.name"},
		"no such object": {[]oracle.Condition{{Rule: "pods[1].metadata.name == 'b'"}},
			"the rule pods[1].metadata.name == 'b' cannot be evaluated: index out of bounds: 1"},
		"no such field": {[]oracle.Condition{{Rule: "pods[0].spec.nodeName == 'b'"}},
			"the rule pods[0].spec.nodeName == 'b' cannot be evaluated: no such key: spec"},
		"no such object, with a message": {[]oracle.Condition{{Rule: "pods[1].metadata.name == 'b'", Message: "'there is no b'"}}, "there is no b (the rule cannot be evaluated: index out of bounds: 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := oracle.NewRules([]string{"pods"}, c.conditions)
			require.NoError(t, err)
			require.Equal(t, c.want, message(rules.Check(state, nil)))
		})
	}
}

func TestAnEmptyMessageShowsTheRule(t *testing.T) {
	rules, err := oracle.NewRules(nil, []oracle.Condition{{Rule: "false", Message: "''"}})
	require.NoError(t, err)
	require.Equal(t, "the rule does not hold: false", message(rules.Check(nil, nil)))
}

func TestNewRulesRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		condition oracle.Condition
		want      []string
	}{
		"a wrong type":            {oracle.Condition{Rule: "size(pods)"}, []string{`rule "size(pods)": it has type int, but must have type bool`}},
		"a wrong type of message": {oracle.Condition{Rule: "true", Message: "size(pods)"}, []string{`message "size(pods)": it has type int, but must have type string`}},
		"an unknown variable": {oracle.Condition{Rule: "size(secrets) == 1"},
			[]string{`rule "size(secrets) == 1": `, "undeclared reference to 'secrets'"}},
		"an unknown variable in a message": {oracle.Condition{Rule: "true", Message: "old.name"},
			[]string{`message "old.name": `, "undeclared reference to 'old'"}},
		"an unknown function":   {oracle.Condition{Rule: "pods.every(p, true)"}, []string{`rule "pods.every(p, true)": `, "undeclared reference"}},
		"no CEL":                {oracle.Condition{Rule: "size(pods"}, []string{`rule "size(pods": `, "Syntax error"}},
		"nothing":               {oracle.Condition{Message: "'no'"}, []string{`rule "": `, "Syntax error"}},
		"types that do not fit": {oracle.Condition{Rule: "size(pods) == '1'"}, []string{"no matching overload"}},
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := oracle.NewRules([]string{"pods"}, []oracle.Condition{{Rule: "true"}, c.condition})
			require.Nil(t, rules)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestCheckAll(t *testing.T) {
	w := newWorld(t)
	w.put("pods", "old")
	s := w.watch("pods")
	w.put("pods", "a")
	w.put("pods", "b")
	w.remove("pods", "a")
	seen(t, s, "pods", w.remove("pods", "b"))
	for rule, want := range map[string]string{
		"true":                     "",
		"size(pods) <= 3":          "",
		"size(pods) <= 2":          "ADDED b",
		"change.type != 'DELETED'": "DELETED a", // the first
		"change.type != 'ADDED' || size(change.old) == 0":                    "",
		"change.type != 'DELETED' || change.old.metadata.uid != 'uid-b'":     "DELETED b",
		"change.object.metadata.name != 'old'":                               "", // it was there before
		"pods.exists(p, p.metadata.name == 'a')":                             "DELETED a",
		"change.type != 'DELETED' || pods.exists(p, p.metadata.name == 'b')": "DELETED b",
	} {
		t.Run(rule, func(t *testing.T) {
			rules, err := oracle.NewRules([]string{"pods"}, []oracle.Condition{{Rule: rule, Message: "'broken'"}})
			require.NoError(t, err)
			violation, change := rules.CheckAll(s)
			if want == "" {
				require.Nil(t, violation)
				return
			}
			require.Equal(t, &oracle.Violation{Rule: rule, Message: "broken"}, violation)
			require.Equal(t, want, string(change.Type)+" "+change.Name())
		})
	}
}

// After a gap, the state is known again, but not how it came about.
func TestCheckAllAfterAGap(t *testing.T) {
	w := newWorld(t)
	w.put("pods", "old")
	s := w.watch("pods")
	w.askedFor("watch pods from 11", 1)
	w.hold("pods")
	w.remove("pods", "old")
	w.put("pods", "new")
	w.compact()
	w.hold("pods")
	w.cutWatches()
	await(t, s, "the new Pod", func(state oracle.State) bool { return state["pods"]["new"] != nil })
	for rule, holds := range map[string]bool{
		"size(pods) == 1":                             true, // there never were two
		"pods.all(p, p.metadata.name == 'old')":       false,
		"change.type == 'MODIFIED'":                   true, // not checked
		"size(pods) == 0 && change.type == 'DELETED'": true, // not checked
	} {
		t.Run(rule, func(t *testing.T) {
			rules, err := oracle.NewRules([]string{"pods"}, []oracle.Condition{{Rule: rule}})
			require.NoError(t, err)
			violation, change := rules.CheckAll(s)
			require.Equal(t, holds, violation == nil, message(violation))
			require.Equal(t, "the first known state after the API server was restarted", change.String())
		})
	}
	w.put("pods", "later")
	seen(t, s, "pods", w.remove("pods", "later"))
	rules, err := oracle.NewRules([]string{"pods"}, []oracle.Condition{{Rule: "change.type == 'ADDED'"}})
	require.NoError(t, err)
	violation, change := rules.CheckAll(s)
	require.NotNil(t, violation, "changes after the gap are checked")
	require.Equal(t, "DELETED pods later", change.String())
}

// A state is judged as of when it was.
func TestNowOfAChangeIsItsTime(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rules, err := oracle.NewRules(nil, []oracle.Condition{{Rule: "false", Message: "string(now)"}})
	require.NoError(t, err)
	require.Equal(t, "2026-01-02T03:04:05Z", message(rules.Check(nil, &oracle.Change{Type: watch.Added, Time: at, New: pod("a", "")})))
}

// A rule may use what Kubernetes' own validation rules may use.
func TestFunctionsOfRules(t *testing.T) {
	for _, rule := range []string{
		`" a ".trim() == "a"`, `"a-b".split("-").size() == 2`, `["a", "b"].join(",") == "a,b"`, `sets.contains([1, 2], [1])`,
		`quantity("1Gi").isGreaterThan(quantity("1Mi"))`, `[1, 2].isSorted()`, `"web-1".find("[0-9]+") == "1"`, `url("https://a.b/c").getHost() == "a.b"`,
		`ip("127.0.0.1").isLoopback()`, `cidr("10.0.0.0/8").containsIP("10.1.2.3")`, `semver("1.2.3").isGreaterThan(semver("1.2.0"))`,
		`!format.dns1123Label().validate("a").hasValue()`, `1 < 1.5`, `{"a": 1}.all(k, v, v == 1)`,
	} {
		r, err := oracle.NewRules([]string{"pods"}, []oracle.Condition{{Rule: rule}})
		require.NoError(t, err, rule)
		require.Nil(t, r.Check(oracle.State{"pods": {}}, nil), rule)
	}
}
