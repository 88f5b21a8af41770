package cel_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/cel"
)

func TestNesting(t *testing.T) {
	for text, want := range map[string]int{
		`true`:                                 2,
		`a.b`:                                  4,
		`!a`:                                   4,
		`[1, [2]]`:                             6,
		`{'a': 1}`:                             5,
		`a.f(b.c)`:                             6,
		`a && b && c && d`:                     6, // && is balanced
		strings.Repeat("1 + ", 30) + "1 == 31": 64,
		strings.Repeat("x.f(", 10) + "1" + strings.Repeat(")", 10): 22,
	} {
		got, err := cel.Nesting(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	_, err := cel.Nesting("a &&")
	require.Error(t, err)
}
