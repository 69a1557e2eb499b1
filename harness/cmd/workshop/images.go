package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/image"
	"example.com/controllers/harness/lesson"
)

func imagesCommand() *cobra.Command {
	var dir string
	var archs []string
	cmd := &cobra.Command{
		Use:   "images [NUMBER | DIRECTORY]...",
		Short: "Build the images of the lessons' controllers, or of your own",
		Long: `Build the images that the lessons' manifests run, such as workqueue:dev, and write each to a file that
"docker load", "podman load" and "kind load image-archive" read. It needs none of these programs.

DIRECTORY is a Go module of your own, such as one that "workshop new" has written: for an image
NAME:dev in its manifests/, the main package in cmd/NAME is built. The files are written to
images/ there, unless --out is given.

The same sources and the same version of Go result in the same bytes. The image contains a list of
what it was built from, in /var/lib/db/sbom.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			numbers, modules := splitModules(args)
			for _, module := range modules {
				if err := writeModuleImages(cmd.Context(), module, cmp.Or(dir, filepath.Join(module, "images")), archs); err != nil {
					return err
				}
			}
			if len(numbers) == 0 && len(modules) > 0 {
				return nil
			}
			root, err := cluster.Root(cmd.Context())
			if err != nil {
				return err
			}
			return writeImages(cmd.Context(), root, cmp.Or(dir, filepath.Join(root, ".workshop", "images")), archs, numbers)
		},
	}
	cmd.Flags().StringVar(&dir, "out", "", "`directory` for the files; default: .workshop/images in the repository, or images in DIRECTORY")
	cmd.Flags().StringSliceVar(&archs, "arch", image.Architectures, "`architectures`")
	return cmd
}

// splitModules divides arguments into those that are numbers of lessons, and those that are directories.
func splitModules(args []string) (numbers, modules []string) {
	for _, arg := range args {
		if _, err := strconv.Atoi(arg); err == nil {
			numbers = append(numbers, arg)
		} else {
			modules = append(modules, arg)
		}
	}
	return numbers, modules
}

// writeModuleImages writes the images of a directory that has manifests/ and cmd/ as a lesson has.
func writeModuleImages(ctx context.Context, module, dir string, archs []string) error {
	module, err := filepath.Abs(module)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(module, "go.mod")); err != nil {
		return fmt.Errorf("%s is neither the number of a lesson nor a directory with a Go module: %w", module, err)
	}
	own := lesson.Lesson{Dir: module}
	images, err := own.Images()
	if err != nil {
		return err
	}
	if len(images.Programs) == 0 {
		return fmt.Errorf("no manifest in %s has an image that is named after a program there: NAME:dev after the main package in cmd/NAME", module)
	}
	return writeLessonImages(ctx, own, dir, archs)
}

func writeImages(ctx context.Context, root, dir string, archs, numbers []string) error {
	var lessons []lesson.Lesson
	var err error
	if len(numbers) == 0 {
		if lessons, err = lesson.All(root); err != nil {
			return err
		}
	}
	for _, number := range numbers {
		l, err := lesson.Find(root, number)
		if err != nil {
			return err
		}
		lessons = append(lessons, l)
	}
	for _, l := range lessons {
		if err := writeLessonImages(ctx, l, dir, archs); err != nil {
			return err
		}
	}
	return nil
}

func writeLessonImages(ctx context.Context, l lesson.Lesson, dir string, archs []string) error {
	images, err := l.Images()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range images.Programs {
		pkg, _ := l.Package(name)
		for _, arch := range archs {
			start := time.Now()
			built, err := image.Build(ctx, image.Options{Name: name, Programs: []image.Program{{Dir: l.Dir, Package: pkg}}, Arch: arch})
			if err != nil {
				return err
			}
			short, _, _ := strings.Cut(name, ":")
			path := filepath.Join(dir, short+"-"+arch+".tar")
			if err := image.WriteFile(path, built); err != nil {
				return err
			}
			digest, err := built.Digest()
			if err != nil {
				return err
			}
			fmt.Printf("%s for %s, %s: %s (%s)\n", name, arch, digest, path, time.Since(start).Round(100*time.Millisecond))
		}
	}
	return nil
}
