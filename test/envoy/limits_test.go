package envoy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"accesspolicy-operator/test/stack"
	"accesspolicy-operator/translator/cel"
	"accesspolicy-operator/translator/envoygateway"
	"accesspolicy-operator/translator/regex"
)

// TestRegularExpressionsAtTheLimit has Envoy take expressions of many kinds that are as big as the emitter writes them. It must
// refuse some that are bigger: otherwise there is no limit to keep to.
func TestRegularExpressionsAtTheLimit(t *testing.T) {
	var expressions []string
	for _, part := range []string{"a", "é", ".", "[a-z]", "[^,]", "(?i:k)", "a*", "(ab|cd)", "[0-9]{2}"} {
		expressions = append(expressions, longest(t, envoygateway.MaxProgram, regex.ProgramSize, func(n int) string { return "^" + strings.Repeat(part, n) + "$" }))
	}
	taken := len(expressions)
	expressions = append(expressions, strings.Repeat("a", 101), `\pL`)
	objects := []*unstructured.Unstructured{stack.GatewayClass()}
	for i, expression := range expressions {
		namespace := fmt.Sprintf("n%d", i)
		objects = append(objects, offlineGateway(namespace, facts, map[string]any{"name": "l", "port": int64(8080), "protocol": "HTTP"})...)
		objects = append(objects, inNamespace(namespace, expressionPolicy("l", "request.path.matches("+cel.Quote(expression)+")")))
	}
	translated := stack.TranslateOffline(t, objects...)
	for i, expression := range expressions {
		config, ok := translated.Envoys[fmt.Sprintf("n%d/%s", i, facts)]
		require.True(t, ok, expression)
		if why := config.Refusal(t); i < taken {
			assert.Empty(t, why, expression)
		} else {
			assert.Contains(t, why, "exceeded RE2 max program size", expression)
		}
	}
}

// longest is the longest text within a limit.
func longest(t *testing.T, limit int, size func(string) (int, error), write func(int) string) string {
	t.Helper()
	for n := 1; ; n++ {
		got, err := size(write(n))
		require.NoError(t, err)
		if got > limit {
			require.Greater(t, n, 1, "%q alone is too long", write(1))
			return write(n - 1)
		}
	}
}
