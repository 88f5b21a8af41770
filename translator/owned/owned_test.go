package owned_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"accesspolicy-operator/translator/owned"
)

func free(string) bool { return false }

func TestNames(t *testing.T) {
	whole, skipped := owned.Name("prod", "", free)
	require.Equal(t, "prod-auth", whole, "the published proof of concept's name")
	require.Empty(t, skipped)
	listener, _ := owned.Name("prod", "auth", free)
	again, skipped := owned.Name("prod", "", func(name string) bool { return name == "prod-auth" })
	require.Equal(t, []string{"prod-auth"}, skipped)
	require.NotEqual(t, listener, again, "a listener may be called auth")
	long, _ := owned.Name(strings.Repeat("g", owned.MaxName), "", free)
	require.LessOrEqual(t, len(long), owned.MaxName)
}
