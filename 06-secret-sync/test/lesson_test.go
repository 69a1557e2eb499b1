package test

import (
	"testing"

	"example.com/controllers/harness/clustertest"
)

func TestREADME(t *testing.T) {
	t.Parallel()
	clustertest.PlayLesson(t, "..")
}
