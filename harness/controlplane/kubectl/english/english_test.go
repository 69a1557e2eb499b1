package english

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/kubectl/pkg/util/i18n"
)

const text = "Create a namespace with the specified name"

// kubectl reads translations once, so each locale needs a process.
func TestMain(m *testing.M) {
	if os.Getenv("ENGLISH_TEST_PRINT") != "" {
		fmt.Print(i18n.T(text))
		return
	}
	os.Exit(m.Run())
}

func TestOnlyEnglishIsNotTranslated(t *testing.T) {
	german := "Erstelle einen Namespace mit dem gegebenen Namen"
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"no locale":                    {nil, text},
		"C":                            {[]string{"LANG=C.UTF-8"}, text},
		"English":                      {[]string{"LANG=en_GB.UTF-8"}, text},
		"German":                       {[]string{"LANG=de_DE.UTF-8"}, german},
		"German, but English messages": {[]string{"LANG=de_DE.UTF-8", "LC_MESSAGES=en_US.UTF-8"}, text},
		"German before all":            {[]string{"LANG=en_US.UTF-8", "LC_MESSAGES=en_US.UTF-8", "LC_ALL=de_DE.UTF-8"}, german},
		"unknown to kubectl":           {[]string{"LANG=eo_XX.UTF-8"}, text},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(c.env, "ENGLISH_TEST_PRINT=yes")
			got, err := cmd.Output()
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
}
