package coverage_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReasons wants each reason in the documentation and in the lines of a case.
func TestReasons(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "coverage.md"))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join("testdata", "*", "coverage.txt"))
	require.NoError(t, err)
	var lines strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		lines.Write(text)
	}
	reasons := reasonsOf(t)
	require.Greater(t, len(reasons), 20)
	for _, reason := range reasons {
		assert.Contains(t, string(page), "| `"+reason+"` |", "docs/coverage.md does not explain it")
		assert.Contains(t, lines.String(), " "+reason+": ", "no golden case has it")
	}
}

// reasonsOf reads the constants out of the source, so that none can be left out here.
func reasonsOf(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "coverage.go", nil, 0)
	require.NoError(t, err)
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) == 0 {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		if value, err := strconv.Unquote(literal.Value); err == nil && value == spec.Names[0].Name {
			out = append(out, value)
		}
		return true
	})
	return out
}
