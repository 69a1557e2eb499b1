package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/reboot/protocol"
)

// The drawing on the page is that of the table in the code.
func TestDrawingIsUpToDate(t *testing.T) {
	want, err := draw(protocol.Transitions)
	require.NoError(t, err)
	got, err := os.ReadFile("../../images/phases.svg")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "run \"go generate ./internal/diagram\" in the lesson's directory")
}

func TestDrawingIsXML(t *testing.T) {
	svg, err := draw(append(protocol.Transitions, protocol.Transition{From: protocol.Idle, To: protocol.Needed, By: "administrator", When: "a < b & c"}))
	require.NoError(t, err)
	for decoder := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.Contains(t, string(svg), "a &lt; b &amp; c")
}

func TestATransitionWithoutARoute(t *testing.T) {
	_, err := draw([]protocol.Transition{{From: protocol.Idle, To: protocol.Cancelled, By: "agent"}})
	require.EqualError(t, err, "there is no route for the transition from Idle to Cancelled by the agent; add one to routes")
}
