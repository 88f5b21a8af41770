package requests

import (
	"errors"
	"fmt"
	"io/fs"

	"accesspolicy-operator/translator"
	"accesspolicy-operator/translator/manifest"
)

// Case is a golden case: manifests, requests and the configuration under which they hold.
type Case struct {
	Set     manifest.Set
	File    *File
	Options translator.Options
}

// LoadCase reads in.yaml, requests.yaml and, where it is there, options.yaml of a folder. The error names the file.
func LoadCase(dir fs.FS) (*Case, error) {
	var c Case
	in, err := fs.ReadFile(dir, "in.yaml")
	if err != nil {
		return nil, err
	}
	if err := c.Set.Add("in.yaml", in); err != nil {
		return nil, err
	}
	text, err := fs.ReadFile(dir, "requests.yaml")
	if err != nil {
		return nil, err
	}
	if c.File, err = Parse(text); err != nil {
		return nil, fmt.Errorf("requests.yaml: %w", err)
	}
	options, err := fs.ReadFile(dir, "options.yaml")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	settings, err := ParseSettings(options)
	if err != nil {
		return nil, fmt.Errorf("options.yaml: %w", err)
	}
	if c.Options, err = settings.Options(); err != nil {
		return nil, fmt.Errorf("options.yaml: %w", err)
	}
	return &c, nil
}
