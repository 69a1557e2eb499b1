package guess

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// Count is how many people were right.
type Count struct{ Right, Of int }

// String returns "3 of 7".
func (c Count) String() string { return fmt.Sprintf("%d of %d", c.Right, c.Of) }

func (c *Count) add(a Attempt) {
	c.Of += a.people()
	if a.Right {
		c.Right += a.people()
	}
}

// first returns the first guess of each question: what was thought before the answer was known. In a room, these are all guesses
// of the same moment.
func first(attempts []Attempt) []Attempt {
	begun := map[string]Attempt{}
	var result []Attempt
	for _, a := range attempts {
		earlier, ok := begun[a.Question]
		if !ok {
			begun[a.Question] = a
		}
		if !ok || earlier.Hands > 0 && earlier.At.Equal(a.At) {
			result = append(result, a)
		}
	}
	return result
}

// WriteScore writes how many first guesses were right: by topic, and of those that somebody was sure of.
func WriteScore(w io.Writer, questions []Question, attempts []Attempt) error {
	topics := map[string]string{}
	for _, q := range questions {
		topics[q.Name] = q.Topic
	}
	var all, sure Count
	byTopic := map[string]Count{}
	for _, a := range first(attempts) {
		topic, ok := topics[a.Question]
		if !ok { // a question that is no longer there
			continue
		}
		all.add(a)
		count := byTopic[topic]
		count.add(a)
		byTopic[topic] = count
		if a.Sure != nil && *a.Sure >= verySure {
			sure.add(a)
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
		fmt.Fprintf(table, "  %s\t%s\n", topic, byTopic[topic])
	}
	fmt.Fprintf(table, "  all\t%s\n", all)
	if err := table.Flush(); err != nil || sure.Of == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "Of the guesses that you were at least %d %% sure of, %s were right.\n", verySure, sure)
	return err
}

// verySure is from how many percent on somebody is sure.
const verySure = 80

// WriteTally writes, for each question that was asked, how many of a room were right, and what most of the others thought. all has
// the guesses of each file.
func WriteTally(w io.Writer, questions []Question, all ...[]Attempt) error {
	type row struct {
		Count
		wrong map[string]int
	}
	rows := map[string]*row{}
	for _, attempts := range all {
		for _, a := range first(attempts) {
			r := rows[a.Question]
			if r == nil {
				r = &row{wrong: map[string]int{}}
				rows[a.Question] = r
			}
			r.add(a)
			if !a.Right {
				r.wrong[a.Guess] += a.people()
			}
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RIGHT\tMOST OF THE OTHERS\tQUESTION")
	for _, q := range questions {
		r := rows[q.Name]
		if r == nil {
			continue
		}
		others := "-"
		if len(r.wrong) > 0 {
			guesses := slices.SortedFunc(maps.Keys(r.wrong), func(a, b string) int {
				return cmp.Or(cmp.Compare(r.wrong[b], r.wrong[a]), cmp.Compare(a, b))
			})
			others = fmt.Sprintf("%s (%d)", guesses[0], r.wrong[guesses[0]])
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.Count, others, q.Name)
	}
	return table.Flush()
}

// WriteList writes all questions, and what became of the last guess of each.
func WriteList(w io.Writer, questions []Question, p *Progress) error {
	marks := map[string]string{}
	for _, a := range p.Attempts {
		marks[a.Question] = map[bool]string{true: "right", false: "missed"}[a.Right]
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LESSON\tTOPIC\tNAME\tLAST GUESS")
	for _, q := range questions {
		name := q.Name
		if q.Needs != "" {
			name += " (needs " + q.Needs + ")"
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", q.Lesson, q.Topic, name, cmp.Or(marks[q.Name], "-"))
	}
	return table.Flush()
}
