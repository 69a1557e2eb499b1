package test

import (
	"testing"

	"example.com/controllers/harness/torture"
	"example.com/controllers/harness/torturetest"
)

// The controller passes plans that are drawn at random, and torture catches mutants of it, with the right cause.
func TestTorture(t *testing.T) {
	torturetest.Require(t, torture.Options{Seed: 1, Seeds: 8}, map[string]string{
		"lost-retry":       "verb=delete,resource=pods,refuse=500,for=6s",
		"stop-is-an-error": "",
	})
}

// Plans that share runs find what plans find that are alone.
func TestPlansThatShareRuns(t *testing.T) { torturetest.RequireShared(t, 16, "dies-of-a-failure") }

func TestTheCatalogueCanBeRead(t *testing.T) {
	torturetest.RequireCatalogue(t, torture.Died, torture.NoStop, torture.Lost, torture.TooMuch, torture.NoRest)
}
