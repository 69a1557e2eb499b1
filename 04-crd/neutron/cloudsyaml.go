package neutron

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// entry is that of a cloud in clouds.yaml.
type entry map[string]any

// fromFile returns the settings of a cloud in clouds.yaml. As in OpenStack's own client, those in secure.yaml count more, and
// those of a profile in clouds-public.yaml less. Of several regions, the one named region counts, or else the first.
func fromFile(name, region string) (settings, error) {
	path, err := find("clouds", os.Getenv("OS_CLIENT_CONFIG_FILE"))
	if err != nil {
		return settings{}, err
	}
	cloud, err := read(path, "clouds", name)
	if err != nil {
		return settings{}, err
	}
	if cloud == nil {
		return settings{}, fmt.Errorf("there is no cloud %q in %s", name, path)
	}
	if secure, err := find("secure", os.Getenv("OS_CLIENT_SECURE_FILE"), filepath.Dir(path)); err == nil {
		secrets, err := read(secure, "clouds", name)
		if err != nil {
			return settings{}, err
		}
		cloud = merge(cloud, secrets)
	}
	if cloud, err = withProfile(cloud); err != nil {
		return settings{}, err
	}
	if cloud, err = withRegion(cloud, region); err != nil {
		return settings{}, err
	}
	s := settings{map[string]string{}, map[string]string{}}
	s.add(cloud)
	return s, nil
}

// find returns the path of a file: the given one, or else the first NAME.yaml, NAME.yml or NAME.json in the directories, or in
// those of OpenStack's own client if there are none.
func find(name, given string, directories ...string) (string, error) {
	if given != "" {
		return given, nil
	}
	if len(directories) == 0 {
		user := cmp.Or(os.Getenv("XDG_CONFIG_HOME"), filepath.Join(os.Getenv("HOME"), ".config"))
		directories = []string{".", filepath.Join(user, "openstack"), "/etc/openstack"}
	}
	for _, directory := range directories {
		for _, suffix := range []string{".yaml", ".yml", ".json"} {
			path := filepath.Join(directory, name+suffix)
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("there is no %s.yaml in %s", name, strings.Join(directories, ", "))
}

// read returns the entry of that name below a key of a file, or nil if there is none.
func read(path, key, name string) (entry, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var entries map[string]entry
	exact := func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d } // an ID may have digits only
	if err := yaml.Unmarshal(all[key], &entries, exact); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", path, key, err)
	}
	return entries[name], nil
}

// merge returns both entries as one. More counts more than base, also for each key under "auth".
func merge(base, more entry) entry {
	merged := maps.Clone(base)
	for key, value := range more {
		inner, isMap := value.(map[string]any)
		if outer, both := merged[key].(map[string]any); isMap && both {
			value = map[string]any(merge(outer, inner))
		}
		merged[key] = value
	}
	return merged
}

func withProfile(cloud entry) (entry, error) {
	profile, _ := cloud["profile"].(string)
	if profile == "" {
		profile, _ = cloud["cloud"].(string) // its old name
	}
	delete(cloud, "profile")
	delete(cloud, "cloud")
	if profile == "" {
		return cloud, nil
	}
	path, err := find("clouds-public", "")
	if err != nil {
		return nil, fmt.Errorf("profile %q: %w; the profiles that openstacksdk comes with are not known here", profile, err)
	}
	base, err := read(path, "public-clouds", profile)
	if err == nil && base == nil {
		err = fmt.Errorf("there is no profile %q in %s", profile, path)
	}
	return merge(base, cloud), err
}

// withRegion replaces the list "regions" by the name and the values of one of them.
func withRegion(cloud entry, name string) (entry, error) {
	regions, _ := cloud["regions"].([]any)
	delete(cloud, "regions")
	if name == "" {
		name, _ = cloud["region_name"].(string)
	}
	var known []string
	for _, region := range regions {
		values, _ := region.(map[string]any)
		inner, _ := values["values"].(map[string]any)
		is, _ := values["name"].(string)
		if text, isText := region.(string); isText {
			is = text
		}
		if is == name || name == "" {
			return merge(merge(cloud, inner), entry{"region_name": is}), nil
		}
		known = append(known, is)
	}
	if len(known) > 0 {
		return nil, fmt.Errorf("region_name is %q; the regions of this cloud are: %s", name, strings.Join(known, ", "))
	}
	return cloud, nil
}

// add adds an entry, and what is under its key "auth". As in OpenStack's own client, a key may have hyphens.
func (s settings) add(cloud entry) {
	for key, value := range cloud {
		key = strings.ReplaceAll(key, "-", "_")
		switch value := value.(type) {
		case map[string]any:
			if key == "auth" {
				s.add(value)
				continue
			}
			s.values[key] = "a map" // of no use here
		case nil:
		default:
			if text := fmt.Sprint(value); text != "" {
				s.values[key] = text
			}
		}
	}
}
