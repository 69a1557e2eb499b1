package image_test

import (
	"context"
	"fmt"
	"log"

	"example.com/controllers/harness/image"
)

// The image of a program of this repository, for another architecture.
func ExampleBuild() {
	built, err := image.Build(context.Background(), image.Options{
		Name:     "bootstrap:dev",
		Programs: []image.Program{{Dir: "..", Package: "./cmd/bootstrap"}},
		Arch:     "arm64",
	})
	if err != nil {
		log.Fatal(err)
	}
	config, err := built.ConfigFile()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(built.Tag, config.Architecture, config.Config.User, config.Config.Entrypoint)
	// Output: bootstrap:dev arm64 65532:65532 [/usr/local/bin/bootstrap]
}
