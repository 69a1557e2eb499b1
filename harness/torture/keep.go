package torture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
)

// outcomesFile is the name of the file with the outcomes in the directory of a [Keep]. Its first line is an [identity],
// and each further line a [keptOutcome].
const outcomesFile = "outcomes.jsonl"

// Keep stores the outcomes of a Run in a directory, so that an interrupted one can be resumed, and for each plan that
// failed the controller's log and the requests.
//
//   - An outcome that has been stored is never changed; a run that resumes another one appends to it.
//   - A directory holds the outcomes of one scenario and one build of the controller, with the same arguments.
//   - After a failure to write, nothing more is stored, and [Keep.Err] says why. The Run goes on.
type Keep struct {
	dir      string // "" until the temporary directory is needed
	identity identity
	waiting  []keptOutcome // those that are not in the file, because there is no directory yet
	file     *os.File      // outcomesFile, open for appending; nil until there is a directory
	earlier  []Outcome     // those that were in the file when it was opened
	failed   int           // the highest number of the files of a failed plan
	// names are the names, without extension, of the files of a failed plan, by its recording, which no two plans share.
	names map[*history.History]string
	err   error
}

// identity tells what the outcomes in a directory belong to. Each field is a hash.
type identity struct {
	Scenario  string `json:"scenario"` // of its file, its manifests, and the sources of the programs outside of the cluster
	Program   string `json:"program"`  // of its file, and of those that its arguments name
	Arguments string `json:"arguments"`
}

// keptOutcome is an [Outcome] as a line of JSON. Its log and recording are in files.
type keptOutcome struct {
	Kind     string    `json:"kind"`
	Faults   []string  `json:"faults"`
	Verdict  Verdict   `json:"verdict"` // "" for a plan that passed
	Cause    string    `json:"cause,omitempty"`
	Message  string    `json:"message,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
	NotMet   bool      `json:"notMet,omitempty"`
	FailedAt time.Time `json:"failedAt,omitzero"`
	Seconds  float64   `json:"seconds"`
	Files    string    `json:"files,omitempty"` // their name without extension; "" for a plan that passed
}

func newKeptOutcome(o Outcome) keptOutcome {
	kept := keptOutcome{
		Kind: o.Plan.Kind, Faults: []string{}, Verdict: o.Verdict, Cause: o.Cause, Message: o.Message, Notes: o.Notes, NotMet: o.NotMet,
		FailedAt: o.FailedAt, Seconds: o.Duration.Seconds(),
	}
	for _, f := range o.Plan.Faults {
		kept.Faults = append(kept.Faults, f.String())
	}
	return kept
}

// outcome returns the outcome, without log and recording.
func (kept keptOutcome) outcome() (Outcome, error) {
	o := Outcome{
		Plan: Plan{Kind: kept.Kind}, Verdict: kept.Verdict, Cause: kept.Cause, Message: kept.Message, Notes: kept.Notes, NotMet: kept.NotMet,
		FailedAt: kept.FailedAt, Duration: time.Duration(kept.Seconds * float64(time.Second)), History: &history.History{},
	}
	for _, text := range kept.Faults {
		fault, err := apiproxy.ParseFault(text)
		if err != nil {
			return o, err
		}
		o.Plan.Faults = append(o.Plan.Faults, fault)
	}
	return o, nil
}

// OpenKeep prepares a directory for the outcomes of a scenario and its programs. If dir is "", it is a new one below
// [os.TempDir], which is created when a plan has failed, or by [Keep.Flush]. With resume, dir must have the outcomes of
// an earlier run of the same scenario and programs; without, it must have none.
func OpenKeep(dir string, scenario *Scenario, commands Commands, resume bool) (*Keep, error) {
	k := &Keep{names: map[*history.History]string{}}
	var err error
	if k.identity, err = identify(scenario, commands); err != nil {
		return nil, err
	}
	switch {
	case dir == "":
		return k, nil
	case resume:
		err = k.resume(dir)
	default:
		err = k.begin(dir)
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Dir returns the directory; "" if there is none yet.
func (k *Keep) Dir() string { return k.dir }

// Err returns why outcomes could not be stored, or nil.
func (k *Keep) Err() error { return k.err }

// Close closes the file of the outcomes. It returns Err.
func (k *Keep) Close() error {
	if k.file != nil {
		k.fail(k.file.Close())
	}
	return k.err
}

// Files returns the path, without extension, of a failed plan's files: .log has the output of the controller, .requests
// the requests as a table, and .jsonl the recording. It returns "" if there are none.
func (k *Keep) Files(o Outcome) string {
	if k == nil || k.names[o.History] == "" {
		return ""
	}
	return filepath.Join(k.dir, k.names[o.History])
}

// Add stores an outcome. It is for [Options.Finished].
func (k *Keep) Add(o Outcome) {
	if k.err != nil {
		return
	}
	kept := newKeptOutcome(o)
	if o.Verdict != Passed {
		if err := k.open(); err != nil {
			k.fail(err)
			return
		}
		if kept.Files = k.addFiles(o); kept.Files == "" {
			return
		}
	}
	k.waiting = append(k.waiting, kept)
	if k.file != nil {
		k.fail(k.write())
	}
}

// addFiles stores the log and the requests of a failed plan. It returns the name of their files, or "" if that failed.
func (k *Keep) addFiles(o Outcome) string {
	k.failed++
	name := fmt.Sprintf("%02d-%s-%s", k.failed, slug(string(o.Verdict)), slug(o.Plan.Kind))
	if err := k.writeFiles(name, o); err != nil {
		k.fail(err)
		return ""
	}
	k.names[o.History] = name
	return name
}

// addUnfit stores the run that failed without faults, and says where in the error.
func (k *Keep) addUnfit(err *UnfitError) {
	if err.run == nil || k.err != nil {
		return
	}
	if openErr := k.open(); openErr != nil {
		k.fail(openErr)
		return
	}
	if k.addFiles(*err.run) != "" {
		files := k.Files(*err.run)
		err.message += fmt.Sprintf("\nlog: %s.log\nrequests: %s.requests, .jsonl", files, files)
	}
}

// addRepetitions stores the log and the requests of the failures that are in the report only because a plan failed with
// another verdict when it was repeated. They are no outcomes of plans, so a resumed run does not know them.
func (k *Keep) addRepetitions(report *Report) {
	isOutcome := map[*history.History]bool{}
	for _, o := range report.Outcomes {
		isOutcome[o.History] = true
	}
	for _, g := range report.Groups() {
		for _, o := range g.Failures {
			if !isOutcome[o.History] && k.Files(o) == "" && k.err == nil && k.file != nil {
				k.addFiles(o)
			}
		}
	}
}

// Flush creates the temporary directory, if there is none yet and anything to store in it.
func (k *Keep) Flush() error {
	if k.err == nil && len(k.waiting) > 0 {
		err := k.open()
		if err == nil {
			err = k.write()
		}
		k.fail(err)
	}
	return k.err
}

func (k *Keep) fail(err error) {
	if err == nil || k.err != nil {
		return
	}
	where := k.dir
	if where == "" {
		where = os.TempDir()
	}
	k.err = fmt.Errorf("keep the outcomes in %s: %w", where, err)
}

// open creates a temporary directory, unless there is a directory already.
func (k *Keep) open() error {
	if k.file != nil {
		return nil
	}
	base := filepath.Join(os.TempDir(), "workshop-torture-"+time.Now().Format("20060102-150405"))
	dir := base
	for n := 2; ; n++ {
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		dir = fmt.Sprintf("%s-%d", base, n)
	}
	return k.begin(dir)
}

// begin creates the file of the outcomes.
func (k *Keep) begin(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the directory for the outcomes: %w", err)
	}
	path := filepath.Join(dir, outcomesFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("create the file for the outcomes: %w", err)
	}
	if err := lock(file); err != nil {
		return errors.Join(err, file.Close())
	}
	has, err := hasOutcomes(file)
	if has {
		err = fmt.Errorf("%s has the outcomes of an earlier run; give --resume to go on with it, or another directory", dir)
	} else if err == nil {
		err = file.Truncate(0) // an earlier run ended before its first plan did
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	k.dir, k.file = dir, file
	if err := k.append(k.identity); err != nil {
		// An empty file would be in the way of the next attempt.
		return errors.Join(fmt.Errorf("create the file for the outcomes: %w", err), os.Remove(file.Name()))
	}
	return nil
}

// lock keeps a file of outcomes for us until it is closed.
func lock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("another torture that still runs keeps its outcomes in %s; give another directory", filepath.Dir(file.Name()))
	}
	if err != nil {
		return fmt.Errorf("lock the file for the outcomes: %w", err)
	}
	return nil
}

// hasOutcomes reports whether there is more in a file of outcomes than whose they are.
func hasOutcomes(file *os.File) (bool, error) {
	text, err := io.ReadAll(file)
	if err != nil {
		return false, fmt.Errorf("read the outcomes of the earlier run: %w", err)
	}
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	return len(rest) > 0, nil
}

// resume reads the outcomes of an earlier run.
func (k *Keep) resume(dir string) error {
	path := filepath.Join(dir, outcomesFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s has no outcomes to resume (no %s); leave out --resume to begin a run there", dir, outcomesFile)
	}
	if err != nil {
		return fmt.Errorf("read the outcomes of the earlier run: %w", err)
	}
	// The earlier run may have been killed while it wrote its last line.
	complete := text[:bytes.LastIndexByte(text, '\n')+1]
	lines := bytes.Split(bytes.TrimSuffix(complete, []byte("\n")), []byte("\n"))
	var of identity
	if err := json.Unmarshal(lines[0], &of); err != nil || of.Scenario == "" {
		return fmt.Errorf("%s is not a file of outcomes: its first line does not name a scenario", path)
	}
	switch {
	case of.Scenario != k.identity.Scenario:
		return fmt.Errorf("the outcomes in %s are those of another scenario, or of this one before its file, its manifests or a program outside of the cluster were changed; begin a new run", dir)
	case of.Arguments != k.identity.Arguments:
		return fmt.Errorf("the outcomes in %s are those of a controller with other arguments; begin a new run", dir)
	case of.Program != k.identity.Program:
		return fmt.Errorf("the outcomes in %s are those of another build of the controller, or of this one before a file that its arguments name was changed; begin a new run", dir)
	}
	k.dir = dir
	for i, line := range lines[1:] {
		o, err := k.readOutcome(line)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, i+2, err)
		}
		k.earlier = append(k.earlier, o)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the outcomes of the earlier run: %w", err)
	}
	for _, entry := range entries { // those of repetitions, too
		k.noteNumber(entry.Name())
	}
	if k.file, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0); err == nil {
		if err := lock(k.file); err != nil {
			return err
		}
		err = k.file.Truncate(int64(len(complete)))
	}
	if err != nil {
		return fmt.Errorf("go on writing outcomes: %w", err)
	}
	return nil
}

// noteNumber makes sure that the number at the beginning of a file's name is not used again.
func (k *Keep) noteNumber(name string) {
	text, _, _ := strings.Cut(name, "-")
	if n, err := strconv.Atoi(text); err == nil {
		k.failed = max(k.failed, n)
	}
}

func (k *Keep) readOutcome(line []byte) (Outcome, error) {
	var kept keptOutcome
	if err := json.Unmarshal(line, &kept); err != nil {
		return Outcome{}, err
	}
	o, err := kept.outcome()
	if err != nil {
		return o, err
	}
	if kept.Files == "" {
		return o, nil
	}
	k.noteNumber(kept.Files)
	if filepath.Base(kept.Files) != kept.Files {
		return o, fmt.Errorf("%q is not the name of a file in this directory", kept.Files)
	}
	path := filepath.Join(k.dir, kept.Files)
	log, err := os.ReadFile(path + ".log")
	if err == nil {
		o.Log = string(log)
		var h *history.History
		if h, err = history.ReadFile(path + ".jsonl"); err == nil {
			o.History = h
		}
	}
	if errors.Is(err, fs.ErrNotExist) { // it has been deleted; the outcome counts all the same
		return o, nil
	}
	k.names[o.History] = kept.Files
	return o, err
}

// write appends the outcomes that are waiting to the file.
func (k *Keep) write() error {
	for len(k.waiting) > 0 {
		if err := k.append(k.waiting[0]); err != nil {
			return err
		}
		k.waiting = k.waiting[1:]
	}
	return nil
}

// append writes a line with a single call, so that a line is incomplete only if it is the last one.
func (k *Keep) append(line any) error {
	text, err := json.Marshal(line)
	if err == nil {
		_, err = k.file.Write(append(text, '\n'))
	}
	return err
}

func (k *Keep) writeFiles(name string, o Outcome) error {
	path := filepath.Join(k.dir, name)
	var table, recording bytes.Buffer
	if err := errors.Join(o.History.WriteRequests(&table), writeRecording(&recording, o.History)); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(path+".log", []byte(o.Log), 0o600),
		os.WriteFile(path+".requests", table.Bytes(), 0o600),
		os.WriteFile(path+".jsonl", recording.Bytes(), 0o600),
	)
}

func writeRecording(w io.Writer, h *history.History) error {
	for _, record := range h.Records() {
		if err := history.Write(w, record); err != nil {
			return err
		}
	}
	return nil
}

var notInSlug = regexp.MustCompile(`[^a-z0-9]+`)

// slug turns text into a part of a file's name.
func slug(text string) string {
	const limit = 60
	text = strings.Trim(notInSlug.ReplaceAllString(strings.ToLower(text), "-"), "-")
	return text[:min(limit, len(text))]
}
