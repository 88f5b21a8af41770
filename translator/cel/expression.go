package cel

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
)

// Limits of a user's expression. They bound what one policy author can cost everybody else on a Gateway: the engines that
// run the expression know no budget of their own (Authorino evaluates it inside Kuadrant's 200 ms for the whole call).
const (
	// MaxExpressionLength is the greatest number of code points in an expression as the user wrote it.
	MaxExpressionLength = 8192
	// MaxExpressionNodes is the greatest number of syntax tree nodes.
	MaxExpressionNodes = 1500
	// maxParserDepth is how deep the user's text may be nested, maxRenderedDepth how deep what is made of it. Authorino's
	// cel-go has 250, and what we wrap around the user's expression needs its share.
	maxParserDepth   = 32
	maxRenderedDepth = 120
)

// Vocabulary says what an expression may use beyond the fixed names of docs/cel.md.
type Vocabulary struct {
	// ForbiddenHeader returns why request.headers may not be read with this lower-case name, or "" when it may.
	ForbiddenHeader func(name string) string
	// Unavailable holds the names (for instance "request.mcp.resource_uri") that the MCP profile in use cannot vouch
	// for, each with the reason.
	Unavailable map[string]string
}

// Uses lists what an expression reads. Emitters and the plan decide with it which guards a rule needs.
type Uses struct {
	Method, MCPMethod, Tool, Prompt, Server, Resource bool
	// Path is set by request.path and request.url_path.
	Path, Host, Time, Principal, Identity bool
	// RegexSize is the sum of regex.Size of all regular expressions.
	RegexSize int
	// Headers are the lower-case names read through request.headers, sorted.
	Headers []string
	// Patterns are the regular expressions, as written.
	Patterns []string
	// Features are the groups of operations, sorted.
	Features []Feature
}

// Input is what an expression is evaluated against by Eval. Every string is already what the vocabulary says it is:
// guarded, lower-cased where docs/cel.md says so, empty when absent.
type Input struct {
	Method, Path, URLPath, Host          string
	MCPMethod, Tool, Prompt, Server, URI string
	Principal                            string
	// Identity is auth.identity.
	Identity map[string]any
	// Headers has lower-case names; a missing one reads as ''.
	Headers map[string]string
	// Time is the start of the request; the zero Time makes request.time an error, as in the engines.
	Time time.Time
}

// Expression is a checked expression of a user. Its zero value is not usable; Compile makes one.
type Expression struct {
	source  string
	uses    Uses
	tree    ast.Expr // over the internal names below, macros not expanded
	program cel.Program
}

// The internal names that a normalised tree uses in place of the vocabulary. Iteration variables of the user's macros are
// renamed to v0, v1, …, so nothing that a user chooses can capture them.
const (
	nameMethod    = "ap_method"
	namePath      = "ap_path"
	nameURLPath   = "ap_url_path"
	nameHost      = "ap_host"
	nameTime      = "ap_time"
	nameMCPMethod = "ap_mcp_method"
	nameTool      = "ap_tool"
	namePrompt    = "ap_prompt"
	nameServer    = "ap_server"
	nameResource  = "ap_resource"
	namePrincipal = "ap_principal"
	nameIdentity  = "ap_identity"
	// nameValues['x'] is a header's value ('' when absent); 'x' in namePresent tells whether it was sent.
	nameValues  = "ap_header_values"
	namePresent = "ap_headers_present"
)

type variable struct {
	public, internal string
	kind             *cel.Type
	use              func(*Uses)
}

var headersType = cel.MapType(cel.StringType, cel.StringType)

// variables is the vocabulary of docs/cel.md; request.headers is treated apart, because only some ways of reading it are
// allowed.
var variables = []variable{
	{"request.method", nameMethod, cel.StringType, func(u *Uses) { u.Method = true }},
	{"request.path", namePath, cel.StringType, func(u *Uses) { u.Path = true }},
	{"request.url_path", nameURLPath, cel.StringType, func(u *Uses) { u.Path = true }},
	{"request.host", nameHost, cel.StringType, func(u *Uses) { u.Host = true }},
	{"request.time", nameTime, cel.TimestampType, func(u *Uses) { u.Time = true }},
	{"request.mcp.method", nameMCPMethod, cel.StringType, func(u *Uses) { u.MCPMethod = true }},
	{"request.mcp.tool_name", nameTool, cel.StringType, func(u *Uses) { u.Tool = true }},
	{"request.mcp.prompt_name", namePrompt, cel.StringType, func(u *Uses) { u.Prompt = true }},
	{"request.mcp.server_name", nameServer, cel.StringType, func(u *Uses) { u.Server = true }},
	{"request.mcp.resource_uri", nameResource, cel.StringType, func(u *Uses) { u.Resource = true }},
	{"source.principal", namePrincipal, cel.StringType, func(u *Uses) { u.Principal = true }},
	{"auth.identity", nameIdentity, cel.DynType, func(u *Uses) { u.Identity = true }},
}

const publicHeaders = "request.headers"

// roots are the first parts of the vocabulary's names; an iteration variable must not hide one.
var roots = []string{"request", "source", "auth"}

// functions are the calls that every engine runs alike. Left out on purpose: replace, join and format (their output can
// be a large multiple of their input), type, dyn and everything that only newer cel-go versions have.
var functions = map[string]bool{
	"_?_:_": true, "_&&_": true, "_||_": true, "!_": true, "-_": true,
	"_==_": true, "_!=_": true, "_<_": true, "_<=_": true, "_>_": true, "_>=_": true,
	"_+_": true, "_-_": true, "_*_": true, "_/_": true, "_%_": true, "_[_]": true, "@in": true,
	"size": true, "contains": true, "startsWith": true, "endsWith": true,
	"int": true, "uint": true, "double": true, "string": true, "bool": true,
	"duration": true, "timestamp": true, "getFullYear": true, "getMonth": true, "getDayOfYear": true,
	"getDayOfMonth": true, "getDate": true, "getDayOfWeek": true, "getHours": true, "getMinutes": true,
	"getSeconds": true, "getMilliseconds": true,
	"charAt": true, "indexOf": true, "lastIndexOf": true, "lowerAscii": true, "upperAscii": true, "split": true,
	"substring": true, "trim": true,
}

// macros are the comprehensions, with the number of arguments each takes.
var macros = map[string][]int{"all": {2}, "exists": {2}, "exists_one": {2}, "filter": {2}, "map": {2, 3}}

var (
	checkEnv  = mustEnv(maxParserDepth, publicDeclarations()...)
	syntaxEnv = mustEnv(maxRenderedDepth, cel.ClearMacros())
	evalEnv   = mustEnv(maxRenderedDepth, internalDeclarations()...)
)

func mustEnv(depth int, opts ...cel.EnvOption) *cel.Env {
	// Version 1 of the string functions is the part that cel-go 0.21 (Authorino) and later ones share.
	base := []cel.EnvOption{ext.Strings(ext.StringsVersion(1)), cel.ParserRecursionLimit(depth),
		cel.ParserExpressionSizeLimit(1 << 20)}
	env, err := cel.NewEnv(append(base, opts...)...)
	if err != nil {
		panic(fmt.Sprintf("cel: environment: %v", err)) // the declarations are constants
	}
	return env
}

func publicDeclarations() []cel.EnvOption {
	opts := []cel.EnvOption{
		cel.Variable(publicHeaders, headersType),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
	}
	for _, v := range variables {
		opts = append(opts, cel.Variable(v.public, v.kind))
	}
	return opts
}

func internalDeclarations() []cel.EnvOption {
	opts := []cel.EnvOption{cel.Variable(nameValues, headersType), cel.Variable(namePresent, headersType)}
	for _, v := range variables {
		opts = append(opts, cel.Variable(v.internal, v.kind))
	}
	return opts
}

// Compile parses and type-checks a user's expression in the vocabulary of docs/cel.md and brings it into the normal form
// that Eval and Render work on. The result must be bool. The error is for the user: it says what is wrong and, where the
// parser knows, at which line and column.
func Compile(source string, vocab Vocabulary) (*Expression, error) {
	if strings.TrimSpace(source) == "" {
		return nil, errors.New("the expression is empty")
	}
	if n := utf8.RuneCountInString(source); n > MaxExpressionLength {
		return nil, fmt.Errorf("the expression has %d code points, %d are allowed", n, MaxExpressionLength)
	}
	checked, issues := checkEnv.Compile(source)
	if err := issues.Err(); err != nil {
		return nil, errors.New(withHint(firstLines(err.Error())))
	}
	if checked.OutputType() != cel.BoolType {
		return nil, fmt.Errorf("the expression gives %s, it must give bool", checked.OutputType())
	}
	parsed, issues := syntaxEnv.Parse(source)
	if err := issues.Err(); err != nil {
		return nil, errors.New(firstLines(err.Error()))
	}
	n := normaliser{vocab: vocab, fac: ast.NewExprFactory()}
	tree := n.visit(parsed.NativeRep().Expr(), nil)
	if n.err != nil {
		return nil, n.err
	}
	slices.Sort(n.uses.Headers)
	n.uses.Headers = slices.Compact(n.uses.Headers)
	e := &Expression{source: source, uses: n.uses, tree: tree}
	if err := e.plan(); err != nil {
		return nil, fmt.Errorf("the expression could not be rewritten: %w", err)
	}
	return e, nil
}

// plan makes the program that Eval runs.
func (e *Expression) plan() error {
	text, err := unparse(e.tree)
	if err != nil {
		return err
	}
	checked, issues := evalEnv.Compile(text)
	if err := issues.Err(); err != nil {
		return err
	}
	e.uses.Features = features(checked)
	e.program, err = evalEnv.Program(checked)
	return err
}

// String returns the expression as the user wrote it.
func (e *Expression) String() string { return e.source }

// Uses returns what the expression reads.
func (e *Expression) Uses() Uses { return e.uses }

// Eval evaluates the expression. An error is what an engine would run into as well (for instance a missing field of
// auth.identity); which way it leans is the caller's decision.
func (e *Expression) Eval(in Input) (bool, error) {
	values := make(map[string]string, len(e.uses.Headers))
	for _, name := range e.uses.Headers {
		values[name] = in.Headers[name]
	}
	activation := map[string]any{
		nameMethod: in.Method, namePath: in.Path, nameURLPath: in.URLPath, nameHost: in.Host,
		nameMCPMethod: in.MCPMethod, nameTool: in.Tool, namePrompt: in.Prompt, nameServer: in.Server, nameResource: in.URI,
		namePrincipal: in.Principal, nameIdentity: in.Identity, nameValues: values, namePresent: in.Headers,
	}
	if !in.Time.IsZero() {
		activation[nameTime] = in.Time.Truncate(time.Second)
	}
	out, _, err := e.program.Eval(activation)
	if err != nil {
		return false, err
	}
	result, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("the expression gave %s, not bool", out.Type())
	}
	return bool(result), nil
}

// withHint says where the names are listed: cel-go reports an unknown name below a root as an unknown root.
func withHint(message string) string {
	if strings.Contains(message, "recursion") {
		return fmt.Sprintf("the expression is nested deeper than %d (%s); write it flatter", maxParserDepth, message)
	}
	if strings.Contains(message, "undeclared reference") {
		names := []string{publicHeaders}
		for _, v := range variables {
			names = append(names, v.public)
		}
		return message + "; the names are " + strings.Join(names, ", ")
	}
	return message
}

// position is how cel-go says where a problem is; line -1 is nowhere.
var position = regexp.MustCompile(`^ERROR: <input>:(-?\d+):(\d+): `)

var manySpaces = regexp.MustCompile(`\s+`)

// firstLines makes one line of the first problem that cel-go reports, without its drawing of the source line.
func firstLines(s string) string {
	first, _, _ := strings.Cut(s, "\n")
	first = strings.TrimSuffix(first, " (in container '')")
	if at := position.FindStringSubmatch(first); at != nil {
		first = first[len(at[0]):]
		if at[1] != "-1" {
			first = "line " + at[1] + ", column " + at[2] + ": " + first
		}
	}
	const limit = 400
	first = manySpaces.ReplaceAllString(first, " ")
	if utf8.RuneCountInString(first) > limit {
		first = string([]rune(first)[:limit]) + "…"
	}
	return first
}
