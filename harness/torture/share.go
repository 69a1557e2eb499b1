package torture

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// sharedPlan is a [Plan] as a line of JSON.
type sharedPlan struct {
	Kind   string   `json:"kind"`
	Faults []string `json:"faults"`
}

// WritePlans writes plans as lines of JSON, for another machine.
func WritePlans(w io.Writer, plans []Plan) error {
	encoder := json.NewEncoder(w)
	for _, p := range plans {
		line := sharedPlan{Kind: p.Kind, Faults: []string{}}
		for _, f := range p.Faults {
			line.Faults = append(line.Faults, f.String())
		}
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// ReadPlans reads what WritePlans has written.
func ReadPlans(r io.Reader) (plans []Plan, err error) {
	decoder := json.NewDecoder(r)
	for {
		var line sharedPlan
		switch err := decoder.Decode(&line); {
		case errors.Is(err, io.EOF):
			return plans, nil
		case err != nil:
			return nil, fmt.Errorf("plan %d: %w", len(plans)+1, err)
		}
		plan := Plan{Kind: line.Kind}
		for _, text := range line.Faults {
			fault, err := apiproxy.ParseFault(text)
			if err != nil {
				return nil, fmt.Errorf("plan %d: %w", len(plans)+1, err)
			}
			plan.Faults = append(plan.Faults, fault)
		}
		plans = append(plans, plan)
	}
}

// Share returns the numbers of the plans, from 0, that one of so many machines runs: every machine gets plans of each kind.
func Share(plans, index, machines int) (numbers []int) {
	for n := index; n < plans; n += machines {
		numbers = append(numbers, n)
	}
	return numbers
}

// maxEvidence is how many bytes of logs and recordings of failed plans an [OutcomeWriter] writes altogether. The kubelet
// rotates a container's log at 10 MiB, and returns the newest part only.
const maxEvidence = 4 << 20

// OutcomeWriter writes outcomes as lines of JSON, for [ReadOutcome] on another machine. A failed plan's line has its log and
// its recording, as long as there is space for them.
type OutcomeWriter struct {
	w    io.Writer
	left int
}

// NewOutcomeWriter returns an OutcomeWriter that writes to w, with one call for each line.
func NewOutcomeWriter(w io.Writer) *OutcomeWriter { return &OutcomeWriter{w, maxEvidence} }

// sharedOutcome is an [Outcome] as a line of JSON. Log and Recording are compressed.
type sharedOutcome struct {
	keptOutcome
	Number    int    `json:"number"` // of the plan
	Log       []byte `json:"log,omitempty"`
	Recording []byte `json:"recording,omitempty"`
}

// Write writes a line: the outcome of the plan with a number.
func (w *OutcomeWriter) Write(number int, o Outcome) error {
	line := sharedOutcome{keptOutcome: newKeptOutcome(o), Number: number}
	if o.Verdict != Passed {
		log, err := compress(func(w io.Writer) error { _, err := io.WriteString(w, o.Log); return err })
		if err != nil {
			return err
		}
		recording, err := compress(func(w io.Writer) error { return writeRecording(w, o.History) })
		if err != nil {
			return err
		}
		if size := len(log) + len(recording); size <= w.left {
			w.left -= size
			line.Log, line.Recording = log, recording
		}
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = w.w.Write(append(text, '\n'))
	return err
}

// ReadOutcome reads a line of an [OutcomeWriter].
func ReadOutcome(line []byte) (number int, o Outcome, err error) {
	var shared sharedOutcome
	if err := json.Unmarshal(line, &shared); err != nil {
		return 0, o, err
	}
	number = shared.Number
	if o, err = shared.outcome(); err != nil || o.Verdict == Passed {
		return number, o, err
	}
	if o.History, err = decompressRecording(shared.Recording); err != nil {
		return number, o, fmt.Errorf("the recording: %w", err)
	}
	log, err := decompress(shared.Log)
	if err != nil {
		return number, o, fmt.Errorf("the log: %w", err)
	}
	o.Log = string(log)
	if shared.Recording == nil {
		o.Log = "(Too many plans failed on that machine to keep the logs and recordings of all. Replay the plan to see them.)\n"
	}
	return number, o, nil
}

func compress(write func(io.Writer) error) ([]byte, error) {
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	err := errors.Join(write(z), z.Close())
	return compressed.Bytes(), err
}

func decompress(compressed []byte) ([]byte, error) {
	if len(compressed) == 0 {
		return nil, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// decompressRecording always returns a history of its own, by which failed plans are told apart.
func decompressRecording(compressed []byte) (*history.History, error) {
	text, err := decompress(compressed)
	if err != nil || len(text) == 0 {
		return &history.History{}, err
	}
	return history.Read(bufio.NewReader(bytes.NewReader(text)))
}
