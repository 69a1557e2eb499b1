package view

import (
	"cmp"
	"slices"
	"strings"

	"example.com/controllers/harness/history"
)

// leases is the resource by which processes agree who leads.
const leases = "leases.coordination.k8s.io"

// nodeLeases is the namespace of the Leases by which Nodes say that they live: nobody leads by them.
const nodeLeases = "kube-node-lease/"

// besides enters what is not on the wire.
func (b *builder) besides(h *history.History) {
	for _, s := range h.Steps {
		b.model.Steps = append(b.model.Steps, Step{b.ms(s.Time), s.Name})
	}
	lanes := map[int]*Process{} // by program
	for _, p := range h.Processes {
		program := b.programs[b.processName(p.Program)]
		if lanes[program] == nil {
			lanes[program] = &Process{Program: program}
		}
		states := &lanes[program].States
		at := b.ms(p.Time)
		if n := len(*states) - 1; n >= 0 {
			(*states)[n].To = at
		}
		*states = append(*states, State{at, b.model.End, string(p.State)})
	}
	leads := b.leads()
	several := map[int]int{} // processes of a program that lead
	for _, l := range leads {
		several[l.Program]++
	}
	for _, l := range leads {
		if lane := lanes[l.Program]; lane != nil && several[l.Program] == 1 {
			lane.Leads = l.Leads
			lane.untilItEnds()
		} else {
			for i, lead := range l.Leads {
				l.Leads[i].To = max(lead.From, min(lead.To, l.last))
			}
			if several[l.Program] > 1 && l.Number == 0 { // among many others: all in one row
				b.addLeads(l)
				continue
			}
			b.model.Processes = append(b.model.Processes, l)
		}
	}
	for _, lane := range lanes {
		b.model.Processes = append(b.model.Processes, *lane)
	}
	slices.SortFunc(b.model.Processes, func(x, y Process) int {
		return cmp.Or(cmp.Compare(x.Program, y.Program), cmp.Compare(x.Number, y.Number))
	})
	b.series(h.Samples)
}

// addLeads adds the times in which a process leads to those of other processes of its program.
func (b *builder) addLeads(l Process) {
	at := slices.IndexFunc(b.model.Processes, func(p Process) bool { return p.Program == l.Program && len(p.States) == 0 })
	if at < 0 {
		at = len(b.model.Processes)
		b.model.Processes = append(b.model.Processes, Process{Program: l.Program})
	}
	p := &b.model.Processes[at]
	number := 1
	for _, lead := range p.Leads {
		number = max(number, lead.Number+1)
	}
	for _, lead := range l.Leads {
		lead.Number = number
		p.Leads = append(p.Leads, lead)
	}
	slices.SortFunc(p.Leads, func(x, y Lead) int { return cmp.Compare(x.From, y.From) })
}

// untilItEnds ends the time in which the process leads with the process.
func (p *Process) untilItEnds() {
	for i, l := range p.Leads {
		for _, s := range p.States {
			isOff := s.Is == string(history.Ended) || s.Is == string(history.Killed)
			if isOff && s.To >= l.To && s.From < l.To {
				p.Leads[i].To = max(l.From, s.From)
			}
		}
	}
}

// processName returns the name of a program that a record of its process gives. Where only one program is recorded, it has none.
func (b *builder) processName(name string) string {
	if name == "" && len(b.model.Programs) == 1 {
		return b.model.Programs[0]
	}
	return cmp.Or(name, unnamed)
}

// unnamed is a program whose name is not known.
const unnamed = "controller"

// leads finds which processes wrote Leases, and until when no other did.
func (b *builder) leads() []Process {
	ends := map[int]float64{} // of the last request of a process
	for i, m := range b.model.Marks {
		ends[b.process[i]] = max(ends[b.process[i]], m.End)
	}
	byProcess := map[int]*Process{}
	var order []int
	for i, lane := range b.model.Lanes {
		if lane.Resource != leases || strings.HasPrefix(lane.Name, nodeLeases) {
			continue
		}
		last := -1
		for _, v := range lane.Versions {
			if v.Mark < 0 {
				last = -1
				continue
			}
			process := b.process[v.Mark]
			p := byProcess[process]
			if p == nil {
				p = &Process{Program: b.model.Marks[v.Mark].Program, Number: b.numbers[process]}
				byProcess[process] = p
				order = append(order, process)
			}
			if n := len(p.Leads) - 1; process == last {
				p.Leads[n].To = v.To
			} else {
				p.Leads = append(p.Leads, Lead{From: v.From, To: v.To, Lane: i})
			}
			last = process
		}
	}
	var all []Process
	for _, process := range order {
		p := byProcess[process]
		p.last = ends[process]
		all = append(all, *p)
	}
	return all
}

// series makes series of samples. A value that stays is one point, and the last is repeated at the end.
func (b *builder) series(samples []history.Sample) {
	type key struct {
		program    int
		metric, of string
	}
	all := map[key]*Series{}
	for _, s := range samples {
		k := key{b.programs[b.processName(s.Program)], s.Metric, s.Of}
		of := all[k]
		if of == nil {
			of = &Series{Program: k.program, Metric: s.Metric, Of: s.Of}
			all[k] = of
		}
		of.Most = max(of.Most, s.Value)
		if n := len(of.Points) - 1; n < 0 || of.Points[n][1] != s.Value {
			of.Points = append(of.Points, [2]float64{b.ms(s.Time), s.Value})
		}
	}
	for _, of := range all {
		b.model.Series = append(b.model.Series, *of)
	}
	slices.SortFunc(b.model.Series, func(x, y Series) int {
		return cmp.Or(cmp.Compare(x.Program, y.Program), cmp.Compare(x.Metric, y.Metric), cmp.Compare(x.Of, y.Of))
	})
}
