package apiproxy

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A new key must be explained in FaultUsage, and what it does must have words in package history.
func TestEveryKeyIsExplained(t *testing.T) {
	onlyForPrograms := map[string]bool{"kill=before": true, "kill=after": true, "crash=before": true, "crash=after": true,
		"stop=before": true, "freeze=before": true, "freeze=after": true, "freeze-for": true, "off-for": true,
		"reboot=before": true, "reboot=after": true, "power-cut=before": true, "power-cut=after": true, "watch=held": true}
	examples := map[string][]string{"refuse": {"500"}, "delay": {time.Second.String()}, "late": {"1s"}, "down": {"1s"},
		"lost": {LostRequest, LostReply, LostLate}, "kill": {Before, After}, "crash": {Before, After}, "stop": {Before}, "freeze": {Before, After},
		"reboot": {Before, After}, "power-cut": {Before, After},
		"answer-late": {"1s"}, "hang": {"1s"},
		"watch": {WatchCut, WatchExpired, WatchUnobserved, WatchHeld, WatchNoBookmarks}}
	for _, k := range keys {
		if k.combine == nil {
			require.True(t, onlyForPrograms[k.name] || strings.Contains(FaultUsage, k.name+"="), "FaultUsage does not explain %s", k.name)
			continue
		}
		require.NotEmpty(t, examples[k.name], "give %s an example here", k.name)
		for _, value := range examples[k.name] {
			text := k.name + "=" + value
			t.Run(text, func(t *testing.T) {
				if !onlyForPrograms[text] {
					require.True(t, strings.Contains(FaultUsage, text) || strings.Contains(FaultUsage, "  "+k.name+"="), "FaultUsage does not explain it")
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
