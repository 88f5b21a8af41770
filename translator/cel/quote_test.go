package cel

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/require"
)

// hostileStrings is what people put into tool names, header values, paths and hosts when they want to leave a literal.
var hostileStrings = []string{
	"", "'", `\`, `\'`, `'\`, `"`, "`", "a'||true||''=='", "' || true || '", `\' || true || \'`, "\n", "\r\n", "\t", "\x00", "\x7f",
	`\u0027`, `\x27`, `\047`, "\u2028", "\u2029", "\u202e", "\u0301a", "ｅ", "😀", "'''", `"""`, "r'x'", "{request.headers}",
	"${x}", "// comment", "/* */", strings.Repeat("'", 1000), strings.Repeat(`\`, 999), "\xff\xfe", "a\xc3", "\ufeff",
}

func evalLiteral(t testing.TB, literal string) string {
	t.Helper()
	env, err := cel.NewEnv()
	require.NoError(t, err)
	checked, issues := env.Compile(literal)
	require.NoError(t, issues.Err(), "%s", literal)
	program, err := env.Program(checked)
	require.NoError(t, err)
	out, _, err := program.Eval(map[string]any{})
	require.NoError(t, err)
	value, ok := out.Value().(string)
	require.True(t, ok, "%s is not one string", literal)
	return value
}

func TestQuoteIsOneLiteral(t *testing.T) {
	for _, s := range hostileStrings {
		quoted := Quote(s)
		require.Equal(t, string([]rune(s)), evalLiteral(t, quoted), "%q", s)
		require.NotContains(t, strings.ReplaceAll(quoted[1:len(quoted)-1], `\'`, ""), "'", "%q", s)
	}
}

func TestQuoteList(t *testing.T) {
	require.Equal(t, `['a','b\'c','\u00e9']`, QuoteList([]string{"a", "b'c", "é"}))
}

func FuzzQuote(f *testing.F) {
	for _, s := range hostileStrings {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := Quote(s)
		for _, r := range quoted {
			if r < 0x20 || r > 0x7e {
				t.Fatalf("%q holds %U", quoted, r)
			}
		}
		if got := evalLiteral(t, quoted); utf8.ValidString(s) && got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
}
