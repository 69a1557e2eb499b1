package lesson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// Images are the images that a lesson's manifests run.
type Images struct {
	// Programs are the images of the lesson's own programs, sorted: "NAME:dev" is an image of the main package cmd/NAME.
	Programs []string
	// Workloads are all other images, sorted. They are in no way part of the lesson: its Pods only have to run.
	Workloads []string
}

// Package returns the main package, relative to the lesson's directory, that an image is built from, if it is one of the
// lesson's own programs.
func (l Lesson) Package(image string) (pkg string, ok bool) {
	name, isDev := strings.CutSuffix(image, ":dev")
	if !isDev || name == "" || strings.Contains(name, "/") {
		return "", false
	}
	info, err := os.Stat(filepath.Join(l.Dir, "cmd", name))
	return "./cmd/" + name, err == nil && info.IsDir()
}

// Images returns the images in the lesson's manifests, and in the YAML files beside its page.
func (l Lesson) Images() (Images, error) {
	var paths []string
	for _, pattern := range []string{"*.yaml", "manifests/*.yaml"} {
		matches, err := filepath.Glob(filepath.Join(l.Dir, pattern))
		if err != nil {
			return Images{}, err
		}
		paths = append(paths, matches...)
	}
	found := map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return Images{}, err
		}
		documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			var object any
			if err := documents.Decode(&object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return Images{}, fmt.Errorf("read the images in %s: %w", path, err)
			}
			collectImages(object, found)
		}
	}
	var images Images
	for _, image := range slices.Sorted(maps.Keys(found)) {
		if _, own := l.Package(image); own {
			images.Programs = append(images.Programs, image)
		} else {
			images.Workloads = append(images.Workloads, image)
		}
	}
	return images, nil
}

// collectImages adds the images of all containers in value, an object or a part of one, to found.
func collectImages(value any, found map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			if containers, isList := v.([]any); isList && (key == "containers" || key == "initContainers") {
				for _, c := range containers {
					if container, isMap := c.(map[string]any); isMap {
						if image, isString := container["image"].(string); isString {
							found[image] = true
						}
					}
				}
			}
			collectImages(v, found)
		}
	case []any:
		for _, v := range value {
			collectImages(v, found)
		}
	}
}
