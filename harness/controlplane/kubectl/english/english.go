// Package english spares kubectl its English translations, of English into English: reading them takes a quarter of the
// processor time that it needs to start. Where the locale is another one, kubectl translates as ever.
package english

import (
	"os"
	"strings"

	"k8s.io/kubectl/pkg/util/i18n"
)

// Packages translate their texts when they are initialized, and this one must come first. It does: of the packages whose
// imports are initialized, Go takes the one whose path is first in the alphabet, and ours begins with an e.
func init() {
	if err := i18n.SetLoadTranslationsFunc(load); err != nil {
		panic(err)
	}
}

// load is called for the first text. It reads the locale from the variables that kubectl reads it from.
func load() error {
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		if locale := os.Getenv(name); locale != "" {
			if language, _, _ := strings.Cut(locale, "_"); language == "en" || !strings.Contains(locale, "_") {
				return nil
			}
			return i18n.LoadTranslations("kubectl", nil)
		}
	}
	return nil
}
