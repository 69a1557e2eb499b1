package crd

import "strings"

const (
	maxMessage = 4096 // bytes of a condition's message; the CustomResourceDefinition allows more
	maxNote    = 1024 // bytes of an Event's note; the API server refuses a longer one
)

// shorten cuts a text, which may be the whole answer of a cloud's proxy, to so many bytes.
func shorten(text string, most int) string {
	const ellipsis = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(ellipsis)], "") + ellipsis // it may have cut a character in two
}
