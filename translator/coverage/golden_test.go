package coverage_test

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"accesspolicy-operator/translator/coverage"
)

var update = flag.Bool("update", false, "rewrite the expected lines of the golden cases")

// TestGolden compares the lines of every case with coverage.txt beside it. Whether those are true is asked of Envoy Gateway in
// test/coverage.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*", "in.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			require.FileExists(t, filepath.Join(dir, "README.md"), "a case without words is no documentation")
			objects := readObjects(t, file)
			got := table(t, objects)
			golden(t, filepath.Join(dir, "coverage.txt"), got)
			for range 5 {
				rand.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
				require.Equal(t, string(got), string(table(t, objects)), "the order of the input decides")
			}
		})
	}
}

func readObjects(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	objects, err := coverage.Documents(data)
	require.NoError(t, err)
	return objects
}

func table(t *testing.T, objects []*unstructured.Unstructured) []byte {
	t.Helper()
	var in coverage.Input
	for _, u := range objects {
		require.NoError(t, in.Add(u))
	}
	in.Baselines = in.Written()
	var out bytes.Buffer
	require.NoError(t, coverage.Write(&out, coverage.Compute(in)))
	return out.Bytes()
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "go test ./translator/coverage -update writes it")
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (go test ./translator/coverage -update rewrites it):\n%s", path, diff)
	}
}
