package inmemory

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// list returns a list of the objects that a request selects, sorted by namespace and name.
func (s *Server) list(t target, r *http.Request) (Object, error) {
	selects, err := newSelector(t, r)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit")) // 0 if there is none
	if query.Get("resourceVersion") == "0" {
		limit = 0 // the watch cache of a real server ignores it
	}
	listMeta := Object{"resourceVersion": strconv.FormatInt(s.version, 10)}
	items, last := []any{}, ""
	for _, key := range slices.Sorted(maps.Keys(s.objects[t.GroupResource()])) {
		object := s.objects[t.GroupResource()][key]
		if key <= query.Get("continue") || !selects.matches(object) {
			continue
		}
		if limit > 0 && len(items) == limit {
			listMeta["continue"] = last // unlike a real server's, the rest is what there is then
			break
		}
		items, last = append(items, object), key
	}
	list := Object{"metadata": listMeta, "items": items}
	if kind := s.kinds[t.GroupVersionResource]; kind != "" {
		list["kind"], list["apiVersion"] = kind+"List", t.GroupVersion().String()
	}
	return list, nil
}
