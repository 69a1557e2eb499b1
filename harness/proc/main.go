package proc

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
)

// Main calls run with the [Context] and the command-line arguments, and is all that a main function needs. If run
// fails, Main prints the error, prefixed with the program's name, and exits with status 1; if the program was
// interrupted, it says so and exits with status 130. An error that wraps [flag.ErrHelp] is a success.
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
