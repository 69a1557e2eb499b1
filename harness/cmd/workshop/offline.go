package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/offline"
)

func prefetchCommand() *cobra.Command {
	var part string
	cmd := &cobra.Command{
		Use:   "prefetch",
		Short: "Download and compile everything that the lessons and exercises need, and play lesson 1 without network",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := cluster.Root(cmd.Context())
			if err != nil {
				return err
			}
			if part != "" {
				return offline.PrefetchPart(cmd.Context(), root, offline.Part(part), os.Stderr)
			}
			if err := offline.Prefetch(cmd.Context(), root, os.Stderr); err != nil {
				return err
			}
			fmt.Println("Everything is downloaded and compiled. Lesson 1 follows, without network, as a proof.")
			self, err := os.Executable()
			if err != nil {
				return err
			}
			if err := offline.Prove(cmd.Context(), root, os.Stdout, self, "lesson", "1"); err != nil {
				return err
			}
			fmt.Println("\nThe go command deletes compiled packages that it has not used for five days. If you need them later, run this again then.")
			fmt.Println("\nLesson 1 played without network. The others, and the exercises, need no more.")
			return nil
		},
	}
	cmd.Flags().StringVar(&part, "part", "", "prefetch only this")
	_ = cmd.Flags().MarkHidden("part")
	return cmd
}

func bundleCommand() *cobra.Command {
	var platform, file string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write an archive with all that a machine without network needs for the workshop",
		Long: `Write an archive with all that a machine without network needs for the workshop: the repository's last
commit, Go, all modules, and all programs and packages compiled for the platform. The machine needs make, git
and bash. The first archive takes as long as the workshop's first build.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := cluster.Root(cmd.Context())
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			file, err := filepath.Abs(cmp.Or(file, "workshop-"+strings.ReplaceAll(platform, "/", "-")+".tar.gz"))
			if err != nil {
				return err
			}
			err = offline.Bundle(cmd.Context(), offline.Options{
				Root: root, Platform: platform, File: file, Prefetch: []string{self, "prefetch", "--part"}, Progress: os.Stderr,
			})
			if err != nil {
				return err
			}
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			fmt.Printf("%s (%d MB). On the other machine:\n  tar xf %s\n  cd workshop\n  make lesson 1\n", file, info.Size()/1e6, filepath.Base(file))
			return nil
		},
	}
	cmd.Flags().StringVar(&platform, "platform", offline.HostPlatform(), "operating system and processor of the other machine")
	cmd.Flags().StringVar(&file, "output", "", "`file` name of the archive; default: workshop-OS-ARCHITECTURE.tar.gz")
	return cmd
}
