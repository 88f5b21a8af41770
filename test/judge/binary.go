package judge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	binaryVariable = "ACCESSPOLICY_JUDGE"
	modulePath     = "accesspolicy-operator"
	binaryName     = "bin/authorino-judge"
)

// Binary finds the judge: the path in ACCESSPOLICY_JUDGE, or bin/authorino-judge at
// the root of the module that holds the working folder.
func Binary() (string, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		if err := exists(path); err != nil {
			return "", fmt.Errorf("%s=%s: %w; unset it or name the file that `make build` makes", binaryVariable, path, err)
		}

		return path, nil
	}

	root, err := moduleRoot()
	if err != nil {
		return "", err
	}

	path := filepath.Join(root, filepath.FromSlash(binaryName))
	if err := exists(path); err != nil {
		return "", fmt.Errorf("the judge %s is missing (%w); run `make build` in %s", path, err, root)
	}

	return path, nil
}

func exists(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}

	if info.IsDir() {
		return errors.New("is a folder")
	}

	return nil
}

// moduleRoot walks up to the go.mod of this project; nested modules are passed by.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("judge: working folder: %w", err)
	}

	for folder := start; ; {
		content, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("judge: %w", err)
		}

		if firstLine(content) == "module "+modulePath {
			return folder, nil
		}

		parent := filepath.Dir(folder)
		if parent == folder {
			return "", fmt.Errorf("judge: no go.mod of module %s above %s; set %s to the judge's path", modulePath, start, binaryVariable)
		}

		folder = parent
	}
}

func firstLine(content []byte) string {
	for i, b := range content {
		if b == '\n' || b == '\r' {
			return string(content[:i])
		}
	}

	return string(content)
}
