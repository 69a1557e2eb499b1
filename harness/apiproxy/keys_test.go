package apiproxy

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A new key must be explained in FaultUsage, or in ProgramFaultUsage, and what it does must have words in package history.
func TestEveryKeyIsExplained(t *testing.T) {
	notExplained := map[string]bool{"watch=held": true} // a command cannot release what it holds back
	usage := FaultUsage + ProgramFaultUsage
	examples := map[string][]string{"refuse": {"500"}, "delay": {time.Second.String()}, "late": {"1s"}, "down": {"1s"},
		"lost": {LostRequest, LostReply, LostLate}, "kill": {Before, After}, "crash": {Before, After}, "stop": {Before}, "freeze": {Before, After},
		"reboot": {Before, After}, "power-cut": {Before, After},
		"answer-late": {"1s"}, "hang": {"1s"},
		"watch": {WatchCut, WatchExpired, WatchUnobserved, WatchHeld, WatchNoBookmarks}}
	for _, k := range keys {
		if k.combine == nil {
			require.Contains(t, usage, k.name+"=")
			continue
		}
		require.NotEmpty(t, examples[k.name], "give %s an example here", k.name)
		for _, value := range examples[k.name] {
			text := k.name + "=" + value
			t.Run(text, func(t *testing.T) {
				if !notExplained[text] {
					_, after, found := strings.Cut(usage, "  "+k.name+"=")
					require.True(t, strings.Contains(usage, text) || found && (strings.HasPrefix(after, strings.ToUpper(after[:1])) || strings.Contains(after[:min(20, len(after))], value)), "the usage does not explain it")
				}
				var f Fault
				require.NoError(t, k.parse(&f, value))
				var i injection
				k.combine(&i, f)
				recorded := i.recorded("")
				require.Len(t, recorded, 1)
				require.NotEqual(t, string(recorded[0].Kind), recorded[0].String(), "it has no words")
			})
		}
	}
}
