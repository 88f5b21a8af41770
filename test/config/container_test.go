package config

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const version = "v0.0.0-as-the-containerfile-links-it"

// instruction is one of the Containerfile, its lines joined.
type instruction struct{ name, arguments string }

// containerfile reads the instructions of each stage of the Containerfile in a folder.
func containerfile(folder string) ([][]instruction, error) {
	text, err := os.ReadFile(filepath.Join(root, folder, "Containerfile"))
	if err != nil {
		return nil, err
	}
	var stages [][]instruction
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	for line := range strings.Lines(joined) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, arguments, _ := strings.Cut(line, " ")
		if name == "FROM" {
			stages = append(stages, nil)
		}
		if len(stages) == 0 {
			return nil, fmt.Errorf("%s before FROM", name)
		}
		last := len(stages) - 1
		stages[last] = append(stages[last], instruction{name, strings.Join(strings.Fields(arguments), " ")})
	}
	if len(stages) != 2 {
		return nil, fmt.Errorf("%d stages; two are expected", len(stages))
	}
	return stages, nil
}

// arguments returns what the instructions of a name say, in order.
func arguments(stage []instruction, name string) []string {
	var found []string
	for _, i := range stage {
		if i.name == name {
			found = append(found, i.arguments)
		}
	}
	return found
}

// sent says whether .containerignore lets a file into the build.
func sent(path string) bool {
	base := filepath.Base(path)
	return strings.HasSuffix(base, ".go") && !strings.HasSuffix(base, "_test.go") || path == "go.mod" || path == "go.sum"
}

// copySources does what the COPY instructions of the first stage do with a folder of the
// checkout, as far as the files are sent.
func copySources(stage []instruction, folder, into string, sent func(path string) bool) error {
	for _, copied := range arguments(stage, "COPY") {
		words := strings.Fields(copied)
		for _, source := range words[:len(words)-1] {
			err := filepath.WalkDir(filepath.Join(root, folder, source), func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				name, err := filepath.Rel(filepath.Join(root, folder), path)
				if err != nil || !sent(name) {
					return err
				}
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				target := filepath.Join(into, name)
				if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
					return err
				}
				return os.WriteFile(target, text, 0o600)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

var mount = regexp.MustCompile(`--mount=\S+ `)

// buildAsContainerfile runs the command of a Containerfile that makes /out/<name>, in
// folder/src, which has the files that it copies, and returns the path of the binary.
func buildAsContainerfile(stages [][]instruction, name, folder string) (string, error) {
	sources := filepath.Join(folder, "src")
	runs, output := arguments(stages[0], "RUN"), regexp.MustCompile(`/out/`+name+`\b`)
	if len(runs) != 1 || !output.MatchString(runs[0]) {
		return "", fmt.Errorf("RUN instructions %q; one that makes /out/%s is expected", runs, name)
	}
	binary := filepath.Join(folder, name)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", output.ReplaceAllString(mount.ReplaceAllString(runs[0], ""), `"$$OUT"`))
	command.Dir = sources
	command.Env = append(os.Environ(), "OUT="+binary, "VERSION="+version, "GOWORK=off", "GOFLAGS=",
		"TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH)
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s\nIs a folder missing from COPY, or is something embedded that .containerignore leaves out?", runs[0], err, out)
	}
	return binary, nil
}

// firstBuild is made once for all tests; TestMain removes it.
var (
	builds     string
	firstBuild = sync.OnceValues(func() (string, error) {
		stages, err := containerfile(".")
		if err != nil {
			return "", err
		}
		folder := filepath.Join(builds, "first")
		if err := copySources(stages[0], ".", filepath.Join(folder, "src"), sent); err != nil {
			return "", err
		}
		return buildAsContainerfile(stages, "manager", folder)
	})
)

func TestMain(m *testing.M) {
	var err error
	if builds, err = os.MkdirTemp("", "accesspolicy-config"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(builds); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func TestTheBinaryIsStaticAndRuns(t *testing.T) {
	binary, err := firstBuild()
	require.NoError(t, err)
	out, err := exec.Command(binary, "--help").CombinedOutput()
	require.NoError(t, err)
	assert.Contains(t, string(out), "--token-audience")

	text, err := os.ReadFile(binary)
	require.NoError(t, err)
	// The linker says nothing when there is no variable of that name.
	assert.True(t, bytes.Contains(text, []byte(version)), "VERSION is not linked in")
	if runtime.GOOS != "linux" {
		t.Logf("whether the binary is static is looked up for linux only, this is %s", runtime.GOOS)
		return
	}
	file, err := elf.NewFile(bytes.NewReader(text))
	require.NoError(t, err)
	libraries, err := file.ImportedLibraries()
	require.NoError(t, err)
	assert.Empty(t, libraries)
	for _, program := range file.Progs {
		assert.NotEqual(t, elf.PT_INTERP, program.Type, "needs a dynamic linker, and the image has none")
	}
	assert.Nil(t, file.Section(".debug_info"), "not stripped")
}

// TestTheBinaryIsReproducible builds in two folders with names of different length:
// neither the folder nor the time is in the bytes.
func TestTheBinaryIsReproducible(t *testing.T) {
	first, err := firstBuild()
	require.NoError(t, err)
	stages, err := containerfile(".")
	require.NoError(t, err)
	// The sources of the first build, since those of the checkout may be edited meanwhile.
	folder := filepath.Join(builds, "second", "in", "another", "folder")
	require.NoError(t, os.CopyFS(filepath.Join(folder, "src"), os.DirFS(filepath.Join(filepath.Dir(first), "src"))))
	second, err := buildAsContainerfile(stages, "manager", folder)
	require.NoError(t, err)
	a, err := os.ReadFile(first)
	require.NoError(t, err)
	b, err := os.ReadFile(second)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(a, b), "two builds of the same sources differ")
	assert.False(t, bytes.Contains(a, []byte(builds)), "the folder is in the bytes")
}

func TestTheImage(t *testing.T) {
	stages, err := containerfile(".")
	require.NoError(t, err)
	imageIsConfined(t, stages, "manager")

	ignore, err := os.ReadFile(filepath.Join(root, ".containerignore"))
	require.NoError(t, err)
	var patterns []string
	for line := range strings.Lines(string(ignore)) {
		if !strings.HasPrefix(line, "#") {
			patterns = append(patterns, strings.TrimSpace(line))
		}
	}
	assert.Equal(t, []string{"**", "!**/*.go", "!go.mod", "!go.sum", "!LICENSE", "**/*_test.go"}, patterns, "what is here has to be in func sent as well")
}

// imageIsConfined: the Go version of go.mod makes a static binary, and the image has
// that and no shell, and does not run as root.
func imageIsConfined(t *testing.T, stages [][]instruction, binary string) {
	t.Helper()
	build, final := stages[0], stages[1]
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	wanted := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(goMod)
	require.NotNil(t, wanted)
	assert.Equal(t, []string{"--platform=$BUILDPLATFORM docker.io/library/golang:" + string(wanted[1]) + " AS build"}, arguments(build, "FROM"))
	for _, flag := range []string{"CGO_ENABLED=0", "-trimpath", "-buildvcs=false", "-s -w"} {
		assert.Contains(t, arguments(build, "RUN")[0], flag)
	}

	assert.Equal(t, []string{"gcr.io/distroless/static:nonroot"}, arguments(final, "FROM"))
	assert.Equal(t, []string{"65532:65532"}, arguments(final, "USER"))
	assert.Equal(t, []string{`["/` + binary + `"]`}, arguments(final, "ENTRYPOINT"))
	assert.Empty(t, arguments(final, "RUN"), "there is no shell")
	assert.Contains(t, arguments(final, "COPY"), "--from=build /out/"+binary+" /"+binary)
}
