package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestParseMaxUnavailable(t *testing.T) {
	for text, want := range map[string]intstr.IntOrString{
		"1":          intstr.FromInt32(1),
		"100":        intstr.FromInt32(100),
		"2147483647": intstr.FromInt32(2147483647),
		"1%":         intstr.FromString("1%"),
		"25%":        intstr.FromString("25%"),
		"100%":       intstr.FromString("100%"),
		"025%":       intstr.FromString("25%"),
	} {
		t.Run(text, func(t *testing.T) {
			limit, err := ParseMaxUnavailable(text)
			require.NoError(t, err)
			require.Equal(t, want, limit)
			require.Positive(t, scale(limit, 1), "it lets a Node of a cluster of one reboot")
		})
	}
	const neither = " is neither a number nor a percentage, such as 1 or 10%"
	const never = ` would never let a Node reboot; it must be at least 1; to pause all reboots, use "kubectl reboot pause"`
	for text, want := range map[string]string{
		"":           `""` + neither,
		"abc":        `"abc"` + neither,
		"%":          `"%"` + neither,
		"abc%":       `"abc%"` + neither,
		"1.5":        `"1.5"` + neither,
		"1.5%":       `"1.5%"` + neither,
		"10%%":       `"10%%"` + neither,
		"10 %":       `"10 %"` + neither,
		" 1":         `" 1"` + neither,
		"0":          `"0"` + never,
		"-1":         `"-1"` + never,
		"0%":         `"0%"` + never,
		"-5%":        `"-5%"` + never,
		"101%":       `"101%" is more than all Nodes; it must be at most 100%`,
		"150%":       `"150%" is more than all Nodes; it must be at most 100%`,
		"2147483648": `"2147483648" is too large; it must be at most 2147483647`,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := ParseMaxUnavailable(text)
			require.EqualError(t, err, want)
		})
	}
}
