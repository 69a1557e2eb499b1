package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// junitCase is a test case in the format that CI systems read, which JUnit's Ant task began. Jenkins, GitLab and others agree on these parts.
type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Error   *junitMessage `xml:"error,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Seconds  string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

// WriteJUnit writes the report for CI systems: a test case for each way in which the controller failed, which is a failure, and one for
// each kind of fault, which has passed, was skipped if no plan of it was run with its fault, or is an error if none could be run. A failure
// that is not confirmed is none of them. What ended the run early is an error.
func (s *Summary) WriteJUnit(w io.Writer) error {
	suite := junitSuite{Name: "torture", Seconds: fmt.Sprintf("%.3f", s.Duration.Seconds())}
	if s.Scenario != "" {
		suite.Name += " " + s.Scenario
	}
	for _, f := range s.Failures {
		if !f.Confirmed {
			continue
		}
		var text strings.Builder
		f.writeDetails(&text)
		suite.Cases = append(suite.Cases, junitCase{Class: "torture.failures", Name: f.Verdict + ": " + f.Cause,
			Failure: &junitMessage{Message: f.Message, Type: f.Verdict, Text: "\n" + text.String()}})
	}
	for _, k := range s.Kinds {
		one := junitCase{Class: "torture.faults", Name: k.Name}
		switch {
		case k.NotRun > 0 && k.NotRun+k.NotMet == k.Plans:
			one.Error = &junitMessage{Message: fmt.Sprintf("%s could not be run", count(k.NotRun, "plan", "plans"))}
		case k.NotMet == k.Plans:
			one.Skipped = &junitMessage{Message: "the fault did not come in " + count(k.NotMet, "plan", "plans")}
		}
		suite.Cases = append(suite.Cases, one)
	}
	if s.EndedEarly() {
		suite.Cases = append(suite.Cases, junitCase{Class: "torture", Name: "all plans are run", Error: &junitMessage{Message: s.End(), Text: s.Error}})
	}
	for _, one := range suite.Cases {
		suite.Tests++
		switch {
		case one.Failure != nil:
			suite.Failures++
		case one.Error != nil:
			suite.Errors++
		case one.Skipped != nil:
			suite.Skipped++
		}
	}
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return fmt.Errorf("print the report for CI: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}
