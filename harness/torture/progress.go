package torture

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// tail is the end of a log. If a line before it says that the arguments were wrong, as it does before a long usage text, it is quoted, too.
func tail(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	const last, before = 10, 100
	end := max(0, len(lines)-last)
	text := "its last lines:\n  "
	if at := slices.IndexFunc(lines[max(0, end-before):end], wrongArguments.MatchString); at >= 0 {
		text = "its last lines, and an earlier one:\n  " + lines[max(0, end-before)+at] + "\n  …\n  "
	}
	return text + strings.Join(lines[end:], "\n  ")
}

// wrongArguments matches what programs say of their arguments, before their usage text.
var wrongArguments = regexp.MustCompile(`(?i)^error:|unknown (shorthand )?(flag|command)|flag provided but not defined|flag needs an argument|invalid (argument|value)|required flag`)

// inTurn returns a writer to which several goroutines may write; of nil, one that discards everything.
func inTurn(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	if _, ok := w.(*writerInTurn); ok {
		return w
	}
	return &writerInTurn{to: w}
}

type writerInTurn struct {
	mu sync.Mutex
	to io.Writer
}

func (w *writerInTurn) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(text)
}

// progress prints how far a Run is.
type progress struct {
	out      io.Writer
	total    int // plans
	parallel int
	begin    time.Time
	budget   *budget
	done     int
	failed   int
	printed  time.Time // when the last estimate was
}

// finished counts a plan.
func (p *progress) finished(o Outcome) {
	p.done++
	if o.Verdict != Passed {
		p.failed++
		fmt.Fprintf(p.out, "torture: %s: %s: %s\n", o.Plan.Kind, o.Verdict, o.Message)
	}
	const every = 5 * time.Second
	if p.done < p.total && time.Since(p.printed) < every {
		return
	}
	p.printed = time.Now()
	text := fmt.Sprintf("torture: %d of %d plans done, %d failed", p.done, p.total, p.failed)
	// Plans begin at the same time, so the first to end say nothing of how long the others take.
	switch {
	case p.done < p.total && p.budget.left() <= 0:
		text += "; the budget is over, and what has begun is finished"
	case p.done >= 2*p.parallel && p.done < p.total:
		left := time.Duration(float64(time.Since(p.begin)) / float64(p.done) * float64(p.total-p.done))
		left = max(0, min(left, p.budget.left()))
		text += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	fmt.Fprintln(p.out, text)
}

// count is a number with its noun.
func count(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}
