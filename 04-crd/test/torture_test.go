package test

import (
	"testing"

	"example.com/controllers/harness/torture"
	"example.com/controllers/harness/torturetest"
)

// The controller as it is lives through faults on both sides that are drawn at random. Of some that are not as it is,
// torture says why.
func TestTorture(t *testing.T) {
	torturetest.Require(t, torture.Options{Seed: 1, Seeds: 8}, map[string]string{
		"finalizer-after-create": "",
		"refusal-is-final":       "group=cloud,verb=create,resource=networks,refuse=403,for=6s",
	})
}

func TestTheCatalogueCanBeRead(t *testing.T) {
	torturetest.RequireCatalogue(t, torture.NoStop, torture.Lost, torture.RuleBroken, torture.TooMuch, torture.NoRest)
}
