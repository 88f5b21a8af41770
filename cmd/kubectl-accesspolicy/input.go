package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"accesspolicy-operator/translator/manifest"
)

var manifestExtensions = []string{".yaml", ".yml", ".json"}

// loader reads manifests, each file once however often it is named.
type loader struct {
	stdin io.Reader
	set   manifest.Set
	seen  map[string]bool
	// from names the source of each policy in the set.
	from []string
}

func newLoader(stdin io.Reader) *loader { return &loader{stdin: stdin, seen: map[string]bool{}} }

// addAll reads everything that paths name. The error lists all that cannot be read, not only the first.
func (l *loader) addAll(paths []string) error {
	var faults []error
	for _, path := range paths {
		faults = append(faults, l.add(path))
	}
	return errors.Join(faults...)
}

// add reads a file, a folder with everything below it, or stdin.
func (l *loader) add(path string) error {
	if path == "-" {
		if l.seen["-"] {
			return nil
		}
		l.seen["-"] = true
		return l.read("stdin", l.stdin)
	}
	info, err := os.Stat(path)
	if err != nil {
		return plainError(err)
	}
	if !info.IsDir() {
		return l.file(path)
	}
	files, err := below(path, func(name string) bool {
		return slices.Contains(manifestExtensions, strings.ToLower(filepath.Ext(name)))
	})
	if err == nil && len(files) == 0 {
		return fmt.Errorf("%s: no *.yaml, *.yml or *.json in this folder or below", path)
	}
	faults := []error{err}
	for _, file := range files {
		faults = append(faults, l.file(file))
	}
	return errors.Join(faults...)
}

// below lists the files in a folder and its subfolders whose names are wanted. Names that begin with a dot are passed over:
// in a mounted ConfigMap they are second copies.
func below(folder string, wanted func(name string) bool) ([]string, error) {
	var out []string
	var faults []error
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		hidden := path != folder && strings.HasPrefix(filepath.Base(path), ".")
		switch {
		case err != nil:
			faults = append(faults, plainError(err))
		case hidden && entry.IsDir():
			return fs.SkipDir
		case !hidden && wanted(entry.Name()) && isFile(path, entry):
			out = append(out, path)
		}
		return nil
	})
	return out, errors.Join(faults...)
}

// isFile follows a link: mounted ConfigMaps consist of them. Pipes and devices in a folder are left alone. A link to
// nothing counts, so that opening it says so.
func isFile(name string, entry fs.DirEntry) bool {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.Type().IsRegular()
	}
	info, err := os.Stat(name)
	return err != nil || info.Mode().IsRegular()
}

func (l *loader) file(path string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if l.seen[absolute] {
		return nil
	}
	l.seen[absolute] = true
	data, err := readFile(path)
	if err != nil {
		return err
	}
	return l.take(path, data)
}

func (l *loader) read(name string, r io.Reader) error {
	data, err := readBounded(r)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return l.take(name, data)
}

func (l *loader) take(name string, data []byte) error {
	err := l.set.Add(name, data)
	for len(l.from) < len(l.set.Policies) {
		l.from = append(l.from, name)
	}
	return err
}

// readFile reads a file. One that is too large is told by its size, before any of it is read.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, plainError(err)
	}
	defer func() { _ = file.Close() }() // nothing was written
	if info, err := file.Stat(); err == nil && info.Size() > manifest.MaxSource {
		return nil, fmt.Errorf("%s: %w", path, manifest.ErrTooLarge)
	}
	data, err := readBounded(file)
	if errors.Is(err, manifest.ErrTooLarge) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, plainError(err)
}

// readBounded reads no more than a set takes.
func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, manifest.MaxSource+1))
	if err == nil && len(data) > manifest.MaxSource {
		return nil, manifest.ErrTooLarge
	}
	return data, err
}

// plainError says which file and what, without the name of the system call.
func plainError(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return err
}
