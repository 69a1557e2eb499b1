package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
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
		Use:   "images [NUMBER]...",
		Short: "Build the images of the lessons' controllers",
		Long: `Build the images that the lessons' manifests run, such as workqueue:dev, and write each to a file that
"docker load", "podman load" and "kind load image-archive" read. It needs none of these programs.

The same sources and the same version of Go result in the same bytes. The image contains a list of
what it was built from, in /var/lib/db/sbom.`,
		RunE: func(cmd *cobra.Command, numbers []string) error {
			root, err := cluster.Root(cmd.Context())
			if err != nil {
				return err
			}
			return writeImages(cmd.Context(), root, cmp.Or(dir, filepath.Join(root, ".workshop", "images")), archs, numbers)
		},
	}
	cmd.Flags().StringVar(&dir, "out", "", "`directory` for the files; default: .workshop/images in the repository")
	cmd.Flags().StringSliceVar(&archs, "arch", image.Architectures, "`architectures`")
	return cmd
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
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, l := range lessons {
		images, err := l.Images()
		if err != nil {
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
	}
	return nil
}
