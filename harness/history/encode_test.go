package history

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// fill sets each field of a struct to any value of its type, often the zero value. Lists stay empty.
func fill(t *rapid.T, v reflect.Value) {
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if rapid.Bool().Draw(t, name+" is zero") {
			continue
		}
		switch field := v.Field(i); field.Interface().(type) {
		case string:
			field.SetString(rapid.OneOf(rapid.StringMatching(`[ -~]*`), rapid.String(),
				rapid.SampledFrom([]string{"a\xffb", "\u2028", "<&>", `"\`, "\x7f\n"})).Draw(t, name))
		case int, int64, time.Duration:
			field.SetInt(rapid.OneOf(rapid.Int64(), rapid.Int64Range(-9, 1e7)).Draw(t, name))
		case bool:
			field.SetBool(true)
		case time.Time:
			zone := time.FixedZone("", rapid.SampledFrom([]int{0, 3600, -5400, 25 * 3600}).Draw(t, "zone"))
			seconds := rapid.OneOf(rapid.Int64Range(0, 2e9), rapid.Just(int64(-1e12)), rapid.Just(int64(1e12))).Draw(t, name)
			field.Set(reflect.ValueOf(time.Unix(seconds, rapid.Int64Range(0, 1e9-1).Draw(t, "ns")).In(zone)))
		case []Injection:
			field.Set(reflect.ValueOf([]Injection{{Kind: Refused, Status: 500}}))
		default:
			t.Fatalf("line and this test do not know a %s", field.Type())
		}
	}
}

// Whatever is recorded, it is written as encoding/json would, field by field.
func TestLineIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Record
		switch rapid.SampledFrom([]string{"request", "request", "event", "seen", "step", "none", "two"}).Draw(t, "kind") {
		case "request":
			r.Request = &Request{}
			fill(t, reflect.ValueOf(r.Request).Elem())
		case "event":
			r.Event = &Event{}
			fill(t, reflect.ValueOf(r.Event).Elem())
		case "seen":
			r.Seen = &Event{}
			fill(t, reflect.ValueOf(r.Seen).Elem())
		case "step":
			r.Step = &Step{}
			fill(t, reflect.ValueOf(r.Step).Elem())
		case "two":
			r.Step, r.Event = &Step{}, &Event{}
		}
		want, wantErr := marshal(r)
		var got bytes.Buffer
		err := Write(&got, r)
		if wantErr != nil {
			require.Error(t, err)
			require.Empty(t, got.Bytes())
			return
		}
		require.NoError(t, err)
		require.Equal(t, string(want), got.String())
	})
}

func BenchmarkWrite(b *testing.B) {
	r := Record{Request: &Request{
		ID: 7, Start: time.Unix(1767366245, 100_000_000), Duration: 4200 * time.Microsecond, Who: "system:serviceaccount:shop:controller",
		Agent: "controller/v1 (linux/amd64)", Verb: "get", Version: "v1", Resource: "pods", Namespace: "shop", Name: "frontend-x",
		URI: "/api/v1/namespaces/shop/pods/frontend-x", Status: 200, Received: 1204, RVAfter: "640", UID: "4d0a2f6e-8f0f-4a86-b4a1-6f9a2c0e1b55", Connection: 1,
	}}
	b.Run("json", func(b *testing.B) {
		for b.Loop() {
			_, _ = marshal(r)
		}
	})
	b.Run("line", func(b *testing.B) {
		var out bytes.Buffer
		for b.Loop() {
			out.Reset()
			_ = Write(&out, r)
		}
	})
}
