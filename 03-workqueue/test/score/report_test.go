package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
)

// measured returns plausible results.
func measured() results {
	lesson := func(title string, lost int, kb ...float64) score {
		s := score{
			Title: title, Writes: 211, FailedWrites: 1, Changes: 7, Lost: lost, Old: 210, Replaced: 210 - lost,
			Times: []time.Duration{5 * time.Second, 4200 * time.Millisecond, 6 * time.Second, 4 * time.Second},
			Costs: []history.Cost{
				{Verb: "get", Resource: "/version", Requests: 1, Received: 400},
				{Verb: "watch", Resource: "pods", Requests: 3, Events: 12, Received: 1_200_000},
				{Verb: "delete", Resource: "pods", Requests: 211, Failed: 1, Received: 300_000},
			},
			Rest: rate{Requests: 0, KB: 0.004},
		}
		for i, amount := range kb {
			s.Growth = append(s.Growth, point{Pods: []int{10, 100, 1000}[i], Rest: rate{Requests: amount / 10, KB: amount}})
		}
		return s
	}
	return results{
		Kubernetes: "v1.37.1", System: "linux/amd64", CPUs: 2, Nodes: 20, Pods: 30, Changes: 5,
		Quiet: time.Minute, Window: 20 * time.Second, Interval: "1s",
		Lessons: []score{
			lesson("1. A loop", 0, 2700, 3900, 9600),
			lesson("2. An informer", 2, 0, 0, 0),
			lesson("3. A queue", 0, 0, 0.2, 0),
		},
	}
}

func TestMarkdown(t *testing.T) {
	page := markdown(measured())
	for _, want := range []string{
		"Kubernetes v1.37.1 on linux/amd64, 2 CPUs, 20 Nodes. Each lesson has its own frontend of 30 Pods.\n",
		"Lesson 1 polls every 1s.\n",
		"The config is changed 5 times in a row. Then nothing happens for 1m, and the controllers are idle.",
		"|  | 1. A loop | 2. An informer | 3. A queue |\n| --- | ---: | ---: | ---: |\n| GET | 1 | 1 | 1 |\n| LIST | 0 | 0 | 0 |\n| WATCH | 3 | 3 | 3 |\n| writes | 211 | 211 | 211 |\n",
		"| of these, failed | 1 | 1 | 1 |\n| MB received | 1.50 | 1.50 | 1.50 |\n",
		"| KB received per minute while idle | 0.01 | 0.01 | 0.01 |\n", // not 0
		"median | 4.60 s | 4.60 s | 4.60 s |\n| the same, worst | 6.00 s | 6.00 s | 6.00 s |\n",
		"| changes lost | 0 of 7 | 2 of 7 | 0 of 7 |\n",
		"Nothing happens for 20s.",
		"| 1000 | 960, 9600 KB | 0, 0 KB | 0, 0 KB |\n",
	} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, page, "writes of Events", "there are none")

	some := measured()
	some.Lessons[2].EventWrites = 3
	some.Lessons[1].Times = nil
	require.Contains(t, markdown(some), "| writes of Events | 0 | 0 | 3 |\n")
	require.Contains(t, markdown(some), "| the same, worst | 6.00 s | – | 6.00 s |\n")
}

// drawn is the content of an SVG: its texts, and how often each color is used.
type drawn struct {
	texts  []string
	colors map[string]int // "stroke:#D55E00" or "fill:..."
}

func see(t *testing.T, svg string) drawn {
	t.Helper()
	seen := drawn{colors: map[string]int{}}
	decoder := xml.NewDecoder(strings.NewReader(svg))
	inText := false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return seen
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text" || token.Name.Local == "title"
			for _, attribute := range token.Attr {
				if attribute.Name.Local == "style" && token.Name.Local == "path" {
					for part := range strings.SplitSeq(attribute.Value, ";") {
						seen.colors[part]++
					}
				}
			}
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				seen.texts = append(seen.texts, string(token))
			}
		}
	}
}

func TestPicture(t *testing.T) {
	svg := picture(measured())
	require.Equal(t, svg, picture(measured()), "the same results give the same picture")
	require.Less(t, len(svg), 60_000)
	require.NotContains(t, svg, "Liberation", "readers may not have the font")
	seen := see(t, svg)
	for _, want := range []string{
		pictureTitle, "What it costs when nothing happens; lesson 1 polls every 1s", costX, costY, lostTitle, "changes, of 7",
		"1. A loop: 9600 KB", "2. An informer: 0 KB", "3. A queue: 0 KB", // at the lines
		"lesson 1", "lesson 2", "lesson 3", // at the bars
		"10", "100", "1000", // both Pods and KB
		"0", "0.1", "10000",
	} {
		require.Contains(t, seen.texts, want)
	}
	for i, pen := range pens {
		hex := fmt.Sprintf("#%02X%02X%02X", pen.line.R, pen.line.G, pen.line.B)
		require.Positive(t, seen.colors["stroke:"+hex], "the line of lesson %d", i+1)
		require.GreaterOrEqual(t, seen.colors["fill:"+hex], 3, "the points of lesson %d", i+1)
	}
	require.Positive(t, seen.colors["fill:#FFFFFF"], "a background")

	other := measured()
	other.Lessons[0].Growth[2].Rest.KB *= 2
	require.NotEqual(t, svg, picture(other))
}

// Zero is neither left out nor drawn as a small number.
func TestZeroHasItsPlace(t *testing.T) {
	axis := newLogAxis(measured())
	require.Equal(t, logAxis{bottom: 0.1, top: 3 * 9600, zero: true}, axis)
	require.Less(t, axis.place(0), axis.place(axis.bottom)-0.1)
	require.InDelta(t, 1, axis.place(axis.top), 1e-9)
	require.InDelta(t, axis.place(100)-axis.place(10), axis.place(10)-axis.place(1), 1e-9)
	require.Equal(t, []string{"0", "0.1", "1", "10", "100", "1000", "10000"}, labels(axis))

	without := measured()
	for i := range without.Lessons {
		for j := range without.Lessons[i].Growth {
			without.Lessons[i].Growth[j].Rest.KB++
		}
	}
	axis = newLogAxis(without)
	require.InDelta(t, 0, axis.place(axis.bottom), 1e-9)
	require.Equal(t, []string{"1", "10", "100", "1000", "10000"}, labels(axis))
}

func labels(axis logAxis) (labels []string) {
	for _, tick := range axis.ticks() {
		labels = append(labels, tick.Label)
	}
	return labels
}

// Extreme results do not break the picture.
func TestPictureOfLittle(t *testing.T) {
	one := measured()
	for i := range one.Lessons {
		one.Lessons[i].Growth = one.Lessons[i].Growth[:1]
		one.Lessons[i].Growth[0].Pods = 1
		one.Lessons[i].Growth[0].Rest.KB = 0
	}
	see(t, picture(one))
	for i := range one.Lessons {
		one.Lessons[i].Growth, one.Lessons[i].Changes = nil, 0
	}
	see(t, picture(one))
}

func TestNumber(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 0.0001: "0.01", 0.216: "0.22", 3.14: "3.1", 235.6: "236", 9600: "9600"} {
		require.Equal(t, want, number(n))
	}
}
