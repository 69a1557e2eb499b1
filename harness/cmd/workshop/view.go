package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/view"
	"example.com/controllers/harness/view/page"
)

func viewCommand() *cobra.Command {
	var out, listen, svg string
	picture := page.Picture{Width: 1100}
	var from, to time.Duration
	cmd := &cobra.Command{
		Use:   "view FILE...",
		Short: "Draw a recording, as a page for your browser",
		Long: `Draw a recording of "workshop proxy" as a page: what the API server had, what each
program had been told of it, what it wrote, and what was broken on purpose.

Several recordings are drawn as one if they were made on one machine, at the same time. A
directory is all recordings in it whose names end in ".jsonl".

The page is served on this machine only, and follows the recording while it grows, until
Ctrl-C. With --out, it is written to a file instead, which opens in any browser, without
network, and can be attached to a bug report. Like a recording, a page has the names of
objects, but nothing of their content, and no credentials.`,
		Example: `  workshop view recording.jsonl
  workshop view recording.jsonl --out recording.html
  workshop view recording.jsonl --svg nodes.svg --filter "nodes stale" --from 2s --to 9s`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			flags := cmd.Flags()
			if out != "" && svg != "" || (out != "" || svg != "") && flags.Changed("listen") {
				return errors.New("give only one of --out, --svg and --listen")
			}
			if svg == "" && (flags.Changed("filter") || flags.Changed("from") || flags.Changed("to") || flags.Changed("dark")) {
				return errors.New("--filter, --from, --to and --dark are for --svg; in the page, you can choose what you see")
			}
			recording, err := page.Open(args...)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, recording.Close()) }()
			picture.From, picture.To = float64(from)/float64(time.Millisecond), float64(to)/float64(time.Millisecond)
			switch {
			case out != "":
				return write(recording, args, out, page.Write)
			case svg != "":
				if picture.To == 0 && picture.From != 0 {
					picture.To = recording.Model().End
				}
				return write(recording, args, svg, picture.Write)
			}
			return servePage(cmd.Context(), recording, strings.Join(args, ", "), listen)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write the page to, instead of serving it")
	cmd.Flags().StringVar(&svg, "svg", "", "file to write a picture to, as an SVG, instead of serving the page")
	cmd.Flags().StringVar(&picture.Query, "filter", "", "what the picture shows, as in the page's filter, such as \"pods object:frontend\" (default: everything)")
	cmd.Flags().DurationVar(&from, "from", 0, "when the picture begins, after the beginning of the recording")
	cmd.Flags().DurationVar(&to, "to", 0, "when the picture ends (default: with the recording)")
	cmd.Flags().BoolVar(&picture.Dark, "dark", false, "a picture for a dark page")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address of this machine to listen on, host:port; port 0 is any free one")
	return cmd
}

// write draws recordings to a file.
func write(recording *page.Recording, paths []string, out string, draw func(io.Writer, *view.Model) error) error {
	if recording.Version() == 0 {
		return fmt.Errorf("%s: no complete record has been written yet; there is nothing to draw", strings.Join(paths, ", "))
	}
	for _, path := range paths {
		if sameFile(path, out) {
			return fmt.Errorf("%s is the recording itself; write to another file", out)
		}
	}
	return replaceFile(out, func(w io.Writer) error { return draw(w, recording.Model()) })
}

// replaceFile writes a file whole, or leaves what was there.
func replaceFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), ".workshop-view-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(file.Name()))
		}
	}()
	if err := errors.Join(write(file), file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// checkReplaceable reports why [replaceFile] would fail.
func checkReplaceable(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("write %s: it is a directory; give the name of a file", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".workshop-view-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// serveWhile serves the page of a recording, or of those in a directory, on any free port until stop is called.
func serveWhile(ctx context.Context, path string) (url string, stop func() error, err error) {
	recording, err := page.Open(path)
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, errors.Join(err, recording.Close())
	}
	server := page.NewServer(recording)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	return "http://" + l.Addr().String() + server.Path(), func() error {
		cancel()
		return errors.Join(<-ended, recording.Close())
	}, nil
}

// servePage serves the page of a recording until ctx is cancelled.
func servePage(ctx context.Context, recording *page.Recording, what, listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen %s: give host:port, such as 127.0.0.1:8080", listen)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--listen %s: the page is for this machine only; give a loopback address, such as 127.0.0.1:0", listen)
	}
	l, err := net.Listen("tcp", listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("the address %s is in use; give another with --listen, or leave it out to use any free port", listen)
	}
	if err != nil {
		return err
	}
	server := page.NewServer(recording)
	fmt.Printf("view: http://%s%s\n", l.Addr(), server.Path())
	fmt.Fprintf(os.Stderr, "view: open this in a browser; it follows %s until Ctrl-C\n", what)
	if err := server.Serve(ctx, l); err != nil {
		return err
	}
	return exitStatus(0) // Ctrl-C is the way to end it
}
