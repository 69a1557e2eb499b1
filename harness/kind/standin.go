package kind

import (
	"context"
	"path/filepath"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/image"
)

// StandIns returns an image for each of these names, such as "nginx:1.29", whose program does nothing but run. With them
// loaded, Pods of these images start without a registry and use hardly any memory.
func StandIns(ctx context.Context, names ...string) ([]*image.Image, error) {
	if len(names) == 0 {
		return nil, nil
	}
	root, err := cluster.Root(ctx)
	if err != nil {
		return nil, err
	}
	standin, err := image.Build(ctx, image.Options{
		Name:     "standin:dev",
		Programs: []image.Program{{Dir: filepath.Join(root, "harness"), Package: "./kind/standin"}},
	})
	if err != nil {
		return nil, err
	}
	var images []*image.Image
	for _, name := range names {
		named, err := standin.As(name)
		if err != nil {
			return nil, err
		}
		images = append(images, named)
	}
	return images, nil
}
