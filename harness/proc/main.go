package proc

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
)

// Main is the rest of a program's main: it runs it with the [Context] and its arguments, says what is wrong, and
// exits with the status for that.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx := Context()
	err := run(ctx, os.Args[1:])
	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "%s: interrupted; everything it started has been stopped\n", name)
		os.Exit(130)
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
