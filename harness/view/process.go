package view

import (
	"cmp"
	"slices"

	"example.com/controllers/harness/history"
)

// processes tells the processes apart that have the same name, such as two invocations of kubectl, or a controller and its agents.
//
// A process has one connection at a time. So if a program had two connections that overlapped, each is taken for a process; if it had
// one after the other, they are taken for one process that lost its connection.
func (b *builder) processes(h *history.History) {
	type connection struct {
		program int
		number  int64
	}
	times := map[connection]interval{}
	for i, r := range h.Requests {
		m := b.model.Marks[i]
		c := connection{m.Program, r.Connection}
		t, ok := times[c]
		if !ok {
			t = interval{m.Start, m.End}
		}
		times[c] = interval{min(t.from, m.Start), max(t.to, m.End)}
	}
	ofProgram := map[int][]interval{}
	for c, t := range times {
		ofProgram[c.program] = append(ofProgram[c.program], t)
	}
	several := map[int]bool{}
	for c := range times {
		if c.number == 0 {
			delete(ofProgram, c.program) // not known of all its requests
		}
	}
	for program, all := range ofProgram {
		slices.SortFunc(all, func(x, y interval) int { return cmp.Compare(x.from, y.from) })
		for i := 1; i < len(all); i++ {
			several[program] = several[program] || all[i].from < all[i-1].to
			all[i].to = max(all[i].to, all[i-1].to)
		}
	}
	numbers := map[connection]int{}
	for i, r := range h.Requests {
		c := connection{b.model.Marks[i].Program, r.Connection}
		if !several[c.program] {
			c.number = 0
		}
		if _, ok := numbers[c]; !ok {
			numbers[c] = len(numbers)
		}
		b.process = append(b.process, numbers[c])
	}
	b.numberProcesses()
}

// mostNumbered is how many processes a program may have that are told apart by a number. There are more of kubectl, for example.
const mostNumbered = 9

// numberProcesses numbers the processes of each program that has several, but not many, in the order of their first requests.
func (b *builder) numberProcesses() {
	of := map[int][]int{} // by program
	for i, process := range b.process {
		if program := b.model.Marks[i].Program; !slices.Contains(of[program], process) && len(of[program]) <= mostNumbered {
			of[program] = append(of[program], process)
		}
	}
	b.numbers, b.many = map[int]int{}, map[int]bool{}
	for program, processes := range of {
		b.many[program] = len(processes) > mostNumbered
		for i, process := range processes {
			if len(processes) > 1 && len(processes) <= mostNumbered {
				b.numbers[process] = i + 1
			}
		}
	}
	for i, process := range b.process {
		b.model.Marks[i].Number = b.numbers[process]
	}
}
