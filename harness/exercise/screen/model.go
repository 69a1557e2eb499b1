// Package screen is the terminal program of the exercises: it shows the current exercise, checks the participant's copy at
// every save, and shows the verdict.
package screen

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"example.com/controllers/harness/exercise"
)

// Options are what the screen works with.
type Options struct {
	Catalogue *exercise.Catalogue
	Progress  *exercise.Progress
	// Check checks the participant's copy of an exercise.
	Check func(context.Context, exercise.Exercise) (exercise.Result, error)
	// Drawing returns the URL of a page that draws the last check that was recorded, and follows. It may be called again.
	Drawing func() (url string, err error)
	// Path returns how to show a path to the participant.
	Path func(string) string
	// Color is false if the participant wants no color.
	Color bool
}

// mode is what the keys are for.
type mode int

const (
	working mode = iota
	listing
	confirmingReset
)

// Model is the state of the screen.
type Model struct {
	Options
	ctx           context.Context
	width, height int
	mode          mode
	current       exercise.Exercise
	page          string
	hints         []string // all hints of the current exercise; as many as progress says are shown
	solution      string   // path of the solution, once it has been shown
	typed         string   // number of an exercise, as far as it has been typed in the list
	verdict       *exercise.Result
	status        string // what is being done, such as building the control plane
	problem       error  // something other than the participant's code that is wrong
	cursor        int    // the selected line in the list
	offset        int    // lines of the body that are scrolled away
	drawing       string // URL of the page that draws the last check, once it has been asked for

	started  time.Time          // when the check that is running was started
	changed  bool               // the code of the last check differs from the exercise as shipped
	checking int                // number of the check that is running; 0 if none is
	checks   int                // number of checks so far
	cancel   context.CancelFunc // of the check that is running
	checked  string             // fingerprint of the code that the last check was for
}

// Messages.
type (
	// verdictMsg is the result of a check.
	verdictMsg struct {
		number  int
		verdict exercise.Result
		err     error
	}
	// SavedMsg is sent when files of the participant may have changed.
	SavedMsg struct{}
	// tickMsg is sent once a second, so that the screen shows how long a check has been running.
	tickMsg struct{}
	// StatusMsg is sent with what is being done, such as building the control plane, and with "" when it is over.
	StatusMsg string
)

// New returns the screen with the current exercise.
func New(ctx context.Context, o Options) (*Model, error) {
	m := &Model{Options: o, ctx: ctx, width: 80, height: 24}
	e, _ := o.Progress.CurrentOf(o.Catalogue)
	return m, m.open(e)
}

// Current returns the exercise that is shown.
func (m *Model) Current() exercise.Exercise { return m.current }

// open shows an exercise, and makes the participant's copy if there is none.
func (m *Model) open(e exercise.Exercise) error {
	m.stopCheck()
	if _, err := e.Copy(); err != nil {
		return err
	}
	page, err := e.Page()
	if err != nil {
		return err
	}
	hints, err := e.Hints()
	if err != nil {
		return err
	}
	m.current, m.page, m.hints = e, page, hints
	m.verdict, m.solution, m.problem, m.offset, m.mode, m.checked = nil, "", nil, 0, working, ""
	return nil
}

// Init implements tea.Model.
func (m *Model) Init() tea.Cmd { return m.check() }

// check starts a check, in place of one that is running.
func (m *Model) check() tea.Cmd {
	m.stopCheck()
	e := m.current
	m.checked, m.changed = e.Fingerprint(), e.IsChanged()
	ctx, cancel := context.WithCancel(m.ctx)
	m.checks++
	number := m.checks
	m.checking, m.cancel, m.started = number, cancel, time.Now()
	return func() tea.Msg {
		defer cancel()
		v, err := m.Check(ctx, e)
		return verdictMsg{number, v, err}
	}
}

func (m *Model) stopCheck() {
	if m.cancel != nil {
		m.cancel()
	}
	m.checking, m.cancel, m.status = 0, nil, ""
}

// Update implements tea.Model.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case StatusMsg:
		m.status = string(msg)
	case SavedMsg:
		// Without a fingerprint, the copy is gone, and may be about to be replaced. r makes a new one.
		if now := m.current.Fingerprint(); now != "" && now != m.checked {
			return m, m.check()
		}
	case verdictMsg:
		return m, m.conclude(msg)
	case tea.KeyPressMsg:
		return m, m.press(msg.String())
	}
	return m, nil
}

// conclude shows the result of a check.
func (m *Model) conclude(msg verdictMsg) tea.Cmd {
	if msg.number != m.checking {
		return nil // another check has taken its place
	}
	m.stopCheck()
	m.problem = msg.err
	if errors.Is(msg.err, context.Canceled) {
		m.problem = nil
		return nil
	}
	if msg.err != nil {
		return nil
	}
	m.verdict, m.offset = &msg.verdict, 0
	if !m.verdict.Passed() {
		m.solution = ""
		return nil
	}
	m.problem = m.Progress.Update(func(p *exercise.Progress) { p.Pass(m.current, time.Now()) })
	m.showSolution()
	return nil
}

func (m *Model) showSolution() {
	solution, err := m.current.ShowSolution()
	if err != nil {
		m.problem = errors.Join(m.problem, err)
		return
	}
	m.solution = solution
}

// press handles a key.
func (m *Model) press(key string) tea.Cmd {
	if key == "ctrl+c" {
		m.stopCheck()
		return tea.Quit
	}
	switch m.mode {
	case listing:
		return m.pressInList(key)
	case confirmingReset:
		m.mode = working
		if key == "y" {
			return m.reset()
		}
		return nil
	}
	switch key {
	case "q":
		m.stopCheck()
		return tea.Quit
	case "r":
		return m.check()
	case "n":
		return m.next()
	case "h":
		m.hint()
	case "l":
		m.mode, m.typed = listing, ""
		m.cursor = m.index()
	case "v":
		m.draw()
	case "x":
		m.mode = confirmingReset
	case "up", "k":
		m.scroll(-1)
	case "down", "j":
		m.scroll(1)
	case "pgup", "b":
		m.scroll(-m.bodyHeight())
	case "pgdown", "space":
		m.scroll(m.bodyHeight())
	case "home", "g":
		m.offset = 0
	case "end", "G":
		m.scroll(len(m.body()))
	}
	return nil
}

func (m *Model) scroll(lines int) {
	m.offset = max(0, min(m.offset+lines, len(m.body())-m.bodyHeight()))
}

// index returns the place of the current exercise among all.
func (m *Model) index() int {
	return slices.IndexFunc(m.Catalogue.Exercises, func(e exercise.Exercise) bool { return e.Name == m.current.Name })
}

// next opens the next exercise that has not passed, or else the next one.
func (m *Model) next() tea.Cmd {
	all := m.Catalogue.Exercises
	here := m.index()
	next := all[(here+1)%len(all)]
	for step := range all {
		if e := all[(here+1+step)%len(all)]; m.Progress.Passed[e.Name].IsZero() {
			next = e
			break
		}
	}
	return m.choose(next)
}

// choose opens an exercise and checks it.
func (m *Model) choose(e exercise.Exercise) tea.Cmd {
	if err := m.open(e); err != nil {
		m.problem = err
		return nil
	}
	m.problem = m.Progress.Update(func(p *exercise.Progress) { p.Current = e.Name })
	return m.check()
}

// hint shows one more hint.
func (m *Model) hint() {
	shown := min(m.Progress.Hints[m.current.Name]+1, len(m.hints))
	m.problem = m.Progress.Update(func(p *exercise.Progress) { p.Hints[m.current.Name] = shown })
	// The page may be so long that the new hint is out of sight.
	heading := slices.IndexFunc(m.body(), func(line string) bool { return strings.HasPrefix(ansi.Strip(line), hintHeading(shown, len(m.hints))) })
	const lines = 4 // of a hint
	if heading+lines > m.offset+m.bodyHeight() || heading < m.offset {
		m.offset = 0
		m.scroll(heading)
	}
}

// draw shows where the last check is drawn.
func (m *Model) draw() {
	url, err := m.Drawing()
	if err != nil {
		m.problem = err
		return
	}
	m.drawing, m.offset = url, 0
}

func (m *Model) reset() tea.Cmd {
	m.stopCheck()
	if err := m.current.Reset(); err != nil {
		m.problem = err
		return nil
	}
	if m.problem = m.Progress.Update(func(p *exercise.Progress) { p.Again(m.current) }); m.problem != nil {
		return nil
	}
	return m.choose(m.current)
}

func (m *Model) pressInList(key string) tea.Cmd {
	last := len(m.Catalogue.Exercises) - 1
	if len(key) == 1 && key >= "0" && key <= "9" {
		m.jump(key)
		return nil
	}
	m.typed = ""
	switch key {
	case "q", "l", "esc":
		m.mode = working
	case "up", "k":
		m.cursor = max(0, m.cursor-1)
	case "down", "j":
		m.cursor = min(last, m.cursor+1)
	case "home", "g":
		m.cursor = 0
	case "end", "G":
		m.cursor = last
	case "enter":
		return m.choose(m.Catalogue.Exercises[m.cursor])
	}
	return nil
}

// jump selects the exercise whose number has been typed. A digit with which there would be no such number begins a new one.
func (m *Model) jump(digit string) {
	for _, typed := range []string{m.typed + digit, digit} {
		number, _ := strconv.Atoi(typed) // they are digits
		at := slices.IndexFunc(m.Catalogue.Exercises, func(e exercise.Exercise) bool { return e.Number == number })
		if at >= 0 {
			m.cursor, m.typed = at, typed
			return
		}
	}
	m.typed = digit // as in 07
}

// Run shows the screen until the participant quits, and returns when no check is running any more. It calls started, which may
// be nil, with a function that shows what is being done, such as building the control plane.
func Run(ctx context.Context, o Options, started func(status func(string)), options ...tea.ProgramOption) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.RWMutex // held for reading by the check that is running
	defer func() {
		cancel()
		running.Lock()
		defer running.Unlock()
	}()
	check := o.Check
	o.Check = func(ctx context.Context, e exercise.Exercise) (exercise.Result, error) {
		running.RLock()
		defer running.RUnlock()
		if ctx.Err() != nil {
			return exercise.Result{}, context.Cause(ctx)
		}
		return check(ctx, e)
	}
	m, err := New(ctx, o)
	if err != nil {
		return err
	}
	program := tea.NewProgram(m, append([]tea.ProgramOption{tea.WithContext(ctx), tea.WithoutSignalHandler()}, options...)...)
	if started != nil {
		started(func(status string) { program.Send(StatusMsg(status)) })
	}
	go func() {
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for {
			select {
			case <-second.C:
				program.Send(tickMsg{})
			case <-ctx.Done():
				return
			}
		}
	}()
	go Watch(ctx, filepath.Join(o.Catalogue.Dir, "my"), func() { program.Send(SavedMsg{}) })
	_, err = program.Run()
	if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("show the exercises: %w", err)
	}
	return nil
}
