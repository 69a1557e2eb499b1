package neutrontest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// objects returns a collection's objects, in the order in which lists have them.
func (s *Server) objects(collection string) []object {
	all := slices.Collect(maps.Values(s.all[collection]))
	sortByID(all)
	return all
}

func sortByID(all []object) {
	slices.SortFunc(all, func(a, b object) int { return strings.Compare(a.meta().ID, b.meta().ID) })
}

// list returns the objects of a collection that match the query, or one page of them and the link to the next.
func (s *Server) list(from caller, collection string, r *http.Request) (map[string]any, error) {
	query := r.URL.Query()
	limit, marker, err := s.page(from, collection, query)
	if err != nil {
		return nil, err
	}
	var empty object
	switch collection {
	case "networks":
		empty = &network{}
	case "subnets":
		empty = &subnet{}
	default:
		empty = &port{}
	}
	known := append([]string{"id", "name", "description", "project_id", "tenant_id", "revision_number", "tags"}, empty.filters()...)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if name != "fields" && !slices.Contains(known, name) {
			return nil, badRequest("['%s'] is invalid attribute for filtering", name)
		}
	}
	var matching []object
	for id, o := range s.all[collection] {
		if id <= marker || !s.canSee(from, o) {
			continue
		}
		switch isMatch, err := matches(o, query); {
		case err != nil:
			return nil, err
		case isMatch:
			matching = append(matching, o)
		}
	}
	sortByID(matching)
	found := []any{}
	answer := map[string]any{}
	for _, o := range matching {
		found = append(found, fields(o, r))
		if len(found) == limit { // as in Neutron, even if there are no more
			answer[collection+"_links"] = []map[string]string{{"rel": "next", "href": nextPage(r, limit, o.meta().ID)}}
			break
		}
	}
	answer[collection] = found
	return answer, nil
}

// matches reports whether an object has the values that a query asks for.
func matches(o object, query url.Values) (bool, error) {
	var values map[string]any
	for name, allowed := range query {
		switch name {
		case "fields":
		case "tags":
			if !o.meta().hasTags(allowed) {
				return false, nil
			}
		case "name": // without the values of all attributes, which take a hundred times as long
			if !slices.Contains(allowed, o.meta().Name) {
				return false, nil
			}
		default:
			if values == nil {
				var err error
				if values, err = asMap(o); err != nil {
					return false, err
				}
			}
			if !slices.Contains(allowed, fmt.Sprint(values[name])) {
				return false, nil
			}
		}
	}
	return true, nil
}

// page removes the parameters "limit" and "marker" from a list's query, and returns them: how many objects the page may have,
// 0 for all, and the ID of the last object of the page before, or "".
func (s *Server) page(from caller, collection string, query url.Values) (limit int, marker string, err error) {
	limit, marker = s.PageSize, query.Get("marker")
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return 0, "", refuse(http.StatusBadRequest, "BadRequest", "Bad limit request: Limit must be an integer 0 or greater and not '%s'.", text)
		}
		if n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	if marker != "" {
		if _, err := s.find(from, collection, marker); err != nil {
			return 0, "", err
		}
	}
	query.Del("limit")
	query.Del("marker")
	return limit, marker, nil
}

// nextPage returns the URL of the page after the object with that ID.
func nextPage(r *http.Request, limit int, id string) string {
	query := r.URL.Query()
	query.Set("limit", strconv.Itoa(limit))
	query.Set("marker", id)
	return (&url.URL{Scheme: "http", Host: r.Host, Path: r.URL.Path, RawQuery: query.Encode()}).String()
}

func asMap(o object) (map[string]any, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	return values, json.Unmarshal(data, &values)
}

// fields returns an object, with only the attributes that the query parameter "fields" names, if there is one.
func fields(o object, r *http.Request) any {
	names := r.URL.Query()["fields"]
	values, err := asMap(o)
	if len(names) == 0 || err != nil {
		return o
	}
	maps.DeleteFunc(values, func(name string, _ any) bool { return !slices.Contains(names, name) })
	return values
}
