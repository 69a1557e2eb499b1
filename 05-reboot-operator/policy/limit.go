package policy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// ParseMaxUnavailable parses a limit: a number that is at least 1, or a percentage from 1% to 100%.
func ParseMaxUnavailable(text string) (intstr.IntOrString, error) {
	number, isPercentage := strings.CutSuffix(text, "%")
	n, err := strconv.ParseInt(number, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return intstr.IntOrString{}, fmt.Errorf("%q is too large; it must be at most %d", text, math.MaxInt32)
	case err != nil:
		return intstr.IntOrString{}, fmt.Errorf("%q is neither a number nor a percentage, such as 1 or 10%%", text)
	case n < 1:
		return intstr.IntOrString{}, fmt.Errorf("%q would never let a Node reboot; it must be at least 1; to pause all reboots, use \"kubectl reboot pause\"", text)
	case isPercentage && n > 100:
		return intstr.IntOrString{}, fmt.Errorf("%q is more than all Nodes; it must be at most 100%%", text)
	case isPercentage:
		return intstr.FromString(fmt.Sprintf("%d%%", n)), nil
	}
	return intstr.FromInt32(int32(n)), nil
}
