package test

import (
	"testing"

	"example.com/controllers/harness/torture"
	"example.com/controllers/harness/torturetest"
)

// The controller passes plans that are drawn at random, and torture catches mutants of it, with the right cause. Mutants
// that are caught by how often they try are left to "make mutants": on a busy machine, they try less often.
func TestTorture(t *testing.T) {
	torturetest.Require(t, torture.Options{Seed: 1, Seeds: 8}, map[string]string{
		"finalizer-after-create": "",
		"refusal-is-final":       "group=cloud,verb=create,resource=networks,refuse=403,for=6s",
	})
}

func TestTheCatalogueCanBeRead(t *testing.T) {
	torturetest.RequireCatalogue(t, torture.NoStop, torture.Lost, torture.RuleBroken, torture.TooMuch, torture.NoRest)
}
