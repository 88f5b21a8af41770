package regex

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhole(t *testing.T) {
	for _, expr := range []string{"[", "a)|(b", `\Qa`, "(?:a", "a{2001}", `a\`, "*", strings.Repeat(".{0,999}", 2), strings.Repeat("a", MaxSize+1)} {
		_, err := Whole(expr)
		require.Error(t, err, "%.40s", expr)
		require.False(t, Matches(expr, "a"), "%.40s", expr)
	}
	require.True(t, Matches("a|b", "b"))
	require.False(t, Matches("a|b", "ab"))
	require.False(t, Matches("a|b", "xb"))
	require.False(t, Matches("^b", "bb"))
	require.False(t, Matches("(?m)^b$", "a\nb"))
}

func TestLongValuesMatchNothing(t *testing.T) {
	require.True(t, Matches("é*", strings.Repeat("é", MaxValue)))
	require.False(t, Matches("é*", strings.Repeat("é", MaxValue+1)))
}
