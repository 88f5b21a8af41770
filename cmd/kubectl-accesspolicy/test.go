package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"accesspolicy-operator/translator/plan"
	"accesspolicy-operator/translator/requests"
)

// requestFile is the name that a folder's request file has, optionsFile that of its configuration.
const (
	requestFile  = "requests.yaml"
	optionsFile  = "options.yaml"
	manifestFile = "in.yaml"
)

// suite is one request file and what came of it.
type suite struct {
	// name is how it is shown: the folder, or the file where it has another name than requests.yaml.
	name     string
	file     string
	outcomes []requests.Outcome
	// refused are the policies' faults, shown beside failures: they are the likely cause.
	refused []diagnostic
	took    time.Duration
	err     error
}

func (s *suite) failures() int {
	n := 0
	for _, o := range s.outcomes {
		if o.Failure != "" {
			n++
		}
	}
	return n
}

func (a *app) testCommand(display string) *cobra.Command {
	var enforcer, output string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "test [FILE | FOLDER | FOLDER/...]",
		Short: "Run request files: calls and the verdict that is expected of each",
		Long: `Run request files: calls and the verdict that is expected of each (docs/requests.md).

An argument is a request file, a folder with a requests.yaml, or FOLDER/... for every requests.yaml
in it and below; left out, the current folder. A file's policies are those that it names, relative
to itself, or in.yaml beside it. An options.yaml beside it is its configuration; flags go before it.
With -f, more manifests are read for every file.

` + exitCodes,
		Example: fmt.Sprintf("  %[1]s test\n  %[1]s test ./policies/... --enforcer kuadrant -o junit", display),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", output, "text", "json", "junit"); err != nil {
				return err
			}
			if err := oneOf(flagEnforcer, enforcer, against()...); err != nil {
				return err
			}
			return a.test(cmd, args, printerFor(output, a.stdout, verbose), requests.Against(enforcer))
		},
	}
	cmd.Flags().StringVar(&enforcer, flagEnforcer, string(requests.AgainstPlan), againstHelp)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT`: text, json or junit")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show what passes as well")
	return cmd
}

func (a *app) test(cmd *cobra.Command, args []string, out printer, against requests.Against) error {
	files, err := requestFiles(args)
	if err != nil {
		return err
	}
	failed, broken := false, false
	for _, file := range files {
		begin := a.now()
		s := a.runFile(cmd, file, against)
		s.took = a.now().Sub(begin)
		if s.err != nil {
			broken = true
			a.fault(s.err)
		}
		failed = failed || s.failures() > 0
		if err := errors.Join(out.suite(s), a.stdout.Flush()); err != nil {
			return fmt.Errorf("the output could not be written: %w", err)
		}
	}
	if err := out.end(); err != nil {
		return err
	}
	switch {
	case broken:
		return exitCode(exitUsage)
	case failed:
		return exitCode(exitDenied)
	}
	return nil
}

// requestFiles finds the files that the arguments mean, each once.
func requestFiles(args []string) ([]string, error) {
	if len(args) == 0 {
		args = []string{"."}
	}
	var out []string
	seen := map[string]bool{}
	add := func(file string) {
		if file = filepath.Clean(file); !seen[file] {
			seen[file] = true
			out = append(out, file)
		}
	}
	for _, arg := range args {
		if folder, below := strings.CutSuffix(arg, "..."); below && (folder == "" || strings.HasSuffix(folder, "/")) {
			if err := findBelow(filepath.Clean(folder), add); err != nil {
				return nil, err
			}
			continue
		}
		info, err := os.Stat(arg)
		if err != nil {
			return nil, plainError(err)
		}
		if !info.IsDir() {
			add(arg)
			continue
		}
		file := filepath.Join(arg, requestFile)
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("%s: no %s in this folder; write %s to look below it, too", arg, requestFile, filepath.Join(arg, "..."))
		}
		add(file)
	}
	return out, nil
}

func findBelow(folder string, add func(string)) error {
	files, err := below(folder, func(name string) bool { return name == requestFile })
	if err == nil && len(files) == 0 {
		return fmt.Errorf("%s: no %s in this folder or below", folder, requestFile)
	}
	for _, file := range files {
		add(file)
	}
	return err
}

func (a *app) runFile(cmd *cobra.Command, path string, against requests.Against) *suite {
	s := &suite{name: path, file: path}
	if filepath.Base(path) == requestFile {
		s.name = filepath.Dir(path)
	}
	t, file, err := a.fileTranslation(cmd, path, against)
	if err != nil {
		s.err = err
		return s
	}
	for _, d := range t.faults {
		if d.Severity == plan.Error {
			s.refused = append(s.refused, d)
		}
	}
	if s.outcomes, err = requests.Run(file, t.result, t.opts, against); err != nil {
		s.err = fmt.Errorf("%s: %w", path, err)
	}
	return s
}

// fileTranslation reads a request file and translates the policies that it speaks of.
func (a *app) fileTranslation(cmd *cobra.Command, path string, against requests.Against) (*translation, *requests.File, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, nil, err
	}
	file, err := requests.Parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	beside, err := settingsBeside(path)
	if err != nil {
		return nil, nil, err
	}
	opts, err := a.config.Options(cmd.Flags(), beside)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Join(filepath.Dir(path), optionsFile), usage("%s", err))
	}
	paths, err := a.policyPaths(path, file)
	if err != nil {
		return nil, nil, err
	}
	l := newLoader(a.stdin)
	if err := l.addAll(append(paths, a.files...)); err != nil {
		return nil, nil, err
	}
	dropOwn(&l.set)
	// Beside a Gateway, one that is missing is part of what is tested.
	if len(l.set.Gateways) == 0 {
		l.set.AssumeGateways()
	}
	decideFor(&opts, against)
	t, err := translate(l, opts)
	return t, file, err
}

// policyPaths are the files that a request file names, or in.yaml beside it. That one may be missing where -f gives others.
func (a *app) policyPaths(path string, file *requests.File) ([]string, error) {
	folder := filepath.Dir(path)
	if len(file.Policies) == 0 {
		beside := filepath.Join(folder, manifestFile)
		if _, err := os.Stat(beside); errors.Is(err, fs.ErrNotExist) {
			if len(a.files) > 0 {
				return nil, nil
			}
			return nil, fmt.Errorf("%s: there is no %s beside it; list the policies under policies:, or name them with -f", path, manifestFile)
		}
		return []string{beside}, nil
	}
	out := make([]string, len(file.Policies))
	for i, p := range file.Policies {
		out[i] = p
		if !filepath.IsAbs(p) {
			out[i] = filepath.Join(folder, p)
		}
	}
	return out, nil
}

func settingsBeside(path string) (requests.Settings, error) {
	name := filepath.Join(filepath.Dir(path), optionsFile)
	text, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return requests.Settings{}, nil
	}
	if err != nil {
		return requests.Settings{}, err
	}
	settings, err := requests.ParseSettings(text)
	if err != nil {
		return settings, fmt.Errorf("%s: %w", name, err)
	}
	return settings, nil
}
