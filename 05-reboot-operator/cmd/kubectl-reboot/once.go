package main

import (
	"fmt"

	"github.com/spf13/pflag"
)

// once makes it an error to set a flag twice, unless it is a list: of two values, the first would be ignored without a word.
func once(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if _, list := f.Value.(pflag.SliceValue); !list {
			f.Value = &onceValue{Value: f.Value, name: f.Name}
		}
	})
}

// onceValue is the value of a flag that may be set once.
type onceValue struct {
	pflag.Value
	name string
	set  bool
}

// Set sets the value.
func (v *onceValue) Set(value string) error {
	if v.set {
		return fmt.Errorf("--%s may be given only once, and was %q before", v.name, v.Value.String())
	}
	v.set = true
	return v.Value.Set(value)
}
