package pipeline

import (
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
)

// shimPredicate is a predicate that the wasm-shim evaluates itself. The shim runs
// cel-rust; here it is cel-go, which agrees on the operators, string functions and
// macros that route predicates are made of. Conditions written by people may use
// more than that, so their verdict is an approximation (README.md).
type shimPredicate struct {
	source  string
	program cel.Program
}

// shimAttributes are the variables of such a predicate.
type shimAttributes map[string]any

func (a shimAttributes) host() string {
	host, _ := a["request"].(map[string]any)["host"].(string)

	return host
}

// shimEnvironment has the variables and functions that the shim binds.
// Read in: wasm-shim src/data/cel.rs (commit 0026b6c5), eval, create_context and
// add_extended_capabilities.
var shimEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{ext.Strings(), cel.OptionalTypes(), queryMapFunction()}
	for _, name := range []string{"request", "source", "destination", "auth", "metadata", "connection"} {
		options = append(options, cel.Variable(name, cel.DynType))
	}

	return cel.NewEnv(options...)
})

func queryMapFunction() cel.EnvOption {
	return cel.Function("queryMap", cel.Overload("queryMap_string", []*cel.Type{cel.StringType}, cel.DynType,
		cel.UnaryBinding(func(query ref.Val) ref.Val {
			return types.DefaultTypeAdapter.NativeToValue(queryMap(query.Value().(string)))
		})))
}

// queryMap decodes a query string; of a repeated parameter the first counts.
func queryMap(query string) map[string]string {
	decode := func(text string) string {
		if decoded, err := url.PathUnescape(text); err == nil {
			return decoded
		}

		return text
	}

	parameters := map[string]string{}

	for part := range strings.SplitSeq(query, "&") {
		// The value ends at a second "=", as in the shim.
		name, rest, _ := strings.Cut(part, "=")
		value, _, _ := strings.Cut(rest, "=")

		if _, repeated := parameters[decode(name)]; !repeated {
			parameters[decode(name)] = decode(value)
		}
	}

	return parameters
}

func compileShim(source string) (*shimPredicate, error) {
	environment, err := shimEnvironment()
	if err != nil {
		return nil, fmt.Errorf("CEL environment of the shim: %w", err)
	}

	ast, issues := environment.Compile(source)
	if issues.Err() != nil {
		return nil, fmt.Errorf("predicate %q: %w", source, issues.Err())
	}

	program, err := environment.Program(ast)
	if err != nil {
		return nil, fmt.Errorf("predicate %q: %w", source, err)
	}

	return &shimPredicate{source: source, program: program}, nil
}

func compileWhen(conditions []whenPredicate) ([]*shimPredicate, error) {
	sources := make([]string, 0, len(conditions))
	for _, condition := range conditions {
		sources = append(sources, condition.Predicate)
	}

	return compileEach(sources)
}

func compileRoute(match httpRouteMatch) ([]*shimPredicate, error) {
	return compileEach(routePredicates(match))
}

func compileEach(sources []string) ([]*shimPredicate, error) {
	predicates := make([]*shimPredicate, 0, len(sources))

	for _, source := range sources {
		predicate, err := compileShim(source)
		if err != nil {
			return nil, err
		}

		predicates = append(predicates, predicate)
	}

	return predicates, nil
}

// allTrue stops at the first that is false; an error or a value that is no boolean
// is an error, which the shim answers by refusing the request.
func allTrue(predicates []*shimPredicate, attributes shimAttributes) (bool, error) {
	for _, predicate := range predicates {
		result, _, err := predicate.program.Eval(map[string]any(attributes))
		if err != nil {
			return false, fmt.Errorf("predicate %q: %w", predicate.source, err)
		}

		matches, boolean := result.Value().(bool)
		if !boolean {
			return false, fmt.Errorf("predicate %q: its value is no boolean", predicate.source)
		}

		if !matches {
			return false, nil
		}
	}

	return true, nil
}
