package neutrontest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// hasTags reports whether an object has all the tags of a query: of each value, which is a list with commas.
func (s *standard) hasTags(query []string) bool {
	for _, list := range query {
		for tag := range strings.SplitSeq(list, ",") {
			if !slices.Contains(s.Tags, tag) {
				return false
			}
		}
	}
	return true
}

// serveTags answers a request for the tags of an object, if path is "", or for one of them, if it is "/TAG". Each change
// counts as one of the object.
func (s *Server) serveTags(from caller, collection, id, path string, r *http.Request) (status int, answer any, err error) {
	o, found := s.all[collection][id]
	if !found || !s.canSee(from, o) {
		return 0, nil, refuse(http.StatusNotFound, "TagResourceNotFound", "Resource %s %s could not be found.", collection, id)
	}
	tag, isOne := strings.CutPrefix(path, "/")
	switch {
	case isOne:
		return serveTag(o.meta(), tag, r.Method)
	case r.Method == http.MethodGet:
	case r.Method == http.MethodPut:
		var body struct{ Tags []string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return 0, nil, badRequest("Body contains invalid data")
		}
		if err := checkTags(body.Tags); err != nil {
			return 0, nil, err
		}
		o.meta().setTags(body.Tags)
	default:
		return 0, nil, refuse(http.StatusNotFound, "HTTPNotFound", "The resource could not be found.")
	}
	return http.StatusOK, map[string]any{"tags": o.meta().Tags}, nil
}

func serveTag(of *standard, tag, method string) (status int, answer any, err error) {
	has := slices.Contains(of.Tags, tag)
	switch {
	case method == http.MethodPut:
		if err := checkTags([]string{tag}); err != nil || has {
			return http.StatusCreated, json.RawMessage("null"), err
		}
		of.setTags(append(slices.Clone(of.Tags), tag))
		return http.StatusCreated, json.RawMessage("null"), nil
	case !has:
		return 0, nil, refuse(http.StatusNotFound, "TagNotFound", "Tag %s could not be found.", tag)
	case method == http.MethodDelete:
		of.setTags(slices.DeleteFunc(slices.Clone(of.Tags), func(t string) bool { return t == tag }))
	}
	return http.StatusNoContent, nil, nil
}

func checkTags(tags []string) error {
	for i, tag := range tags {
		switch {
		case utf8.RuneCountInString(tag) > maxText:
			return invalidInput("'%s' exceeds maximum length of %d.", tag, maxText)
		case slices.Contains(tags[:i], tag):
			return invalidInput("Duplicate items in the list: '%s'.", tag)
		}
	}
	return nil
}

// setTags replaces the tags, and sorts them.
func (s *standard) setTags(tags []string) {
	s.Tags = append([]string{}, tags...)
	slices.Sort(s.Tags)
	s.touch()
}
