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
		} else {
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
	byProcess := map[int]*Process{}
	var order []int
	number := map[int]int{} // of processes of a program
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
				program := b.model.Marks[v.Mark].Program
				number[program]++
				p = &Process{Program: program, Number: number[program]}
				byProcess[process] = p
				order = append(order, process)
			}
			if n := len(p.Leads) - 1; process == last {
				p.Leads[n].To = v.To
			} else {
				p.Leads = append(p.Leads, Lead{v.From, v.To, i})
			}
			last = process
		}
	}
	var all []Process
	for _, process := range order {
		p := byProcess[process]
		if number[p.Program] == 1 {
			p.Number = 0
		}
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
