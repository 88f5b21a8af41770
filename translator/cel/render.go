package cel

import (
	"fmt"
	"math"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
)

// Engine says how an engine spells what an expression reads. Each field is CEL text that the engine evaluates to the
// meaning in docs/cel.md; the emitter is responsible for the guards. The text may use any name except v0, v1, …, which the
// user's iteration variables have.
type Engine struct {
	Method, Path, URLPath, Host, Time            string
	MCPMethod, Tool, Prompt, Server, ResourceURI string
	Principal, Identity                          string
	// HeaderValue and HeaderPresent get a lower-case header name and return the text for its value ('' when absent) and
	// for the test whether it was sent.
	HeaderValue, HeaderPresent func(name string) string
}

func (g Engine) names() map[string]string {
	return map[string]string{
		nameMethod: g.Method, namePath: g.Path, nameURLPath: g.URLPath, nameHost: g.Host, nameTime: g.Time,
		nameMCPMethod: g.MCPMethod, nameTool: g.Tool, namePrompt: g.Prompt, nameServer: g.Server,
		nameResource: g.ResourceURI, namePrincipal: g.Principal, nameIdentity: g.Identity,
	}
}

// Render returns the expression as text for an engine. The rewriting is done on the syntax tree, and the text is parsed
// again and compared with the tree before it is returned, so that it means what was checked.
func (e *Expression) Render(engine Engine) (string, error) {
	r := renderer{engine: engine, names: engine.names(), fac: ast.NewExprFactory(), snippets: map[string]ast.Expr{}}
	tree := r.visit(e.tree)
	if r.err != nil {
		return "", r.err
	}
	return unparse(tree)
}

type renderer struct {
	engine Engine
	names  map[string]string
	fac    ast.ExprFactory
	// snippets caches the engine's texts, which an expression often uses more than once.
	snippets map[string]ast.Expr
	err      error
}

func (r *renderer) visit(e ast.Expr) ast.Expr {
	switch e.Kind() {
	case ast.IdentKind:
		if text, ok := r.names[e.AsIdent()]; ok {
			return r.snippet(text)
		}
	case ast.SelectKind:
		return r.fac.NewSelect(0, r.visit(e.AsSelect().Operand()), e.AsSelect().FieldName())
	case ast.CallKind:
		return r.visitCall(e.AsCall())
	case ast.ListKind:
		return r.fac.NewList(0, r.visitAll(e.AsList().Elements()), nil)
	case ast.MapKind:
		var entries []ast.EntryExpr
		for _, entry := range e.AsMap().Entries() {
			m := entry.AsMapEntry()
			entries = append(entries, r.fac.NewMapEntry(0, r.visit(m.Key()), r.visit(m.Value()), false))
		}
		return r.fac.NewMap(0, entries)
	case ast.LiteralKind, ast.StructKind, ast.ComprehensionKind, ast.UnspecifiedExprKind:
	}
	return e
}

func (r *renderer) visitAll(list []ast.Expr) []ast.Expr {
	out := make([]ast.Expr, len(list))
	for i, e := range list {
		out[i] = r.visit(e)
	}
	return out
}

func (r *renderer) visitCall(call ast.CallExpr) ast.Expr {
	args := call.Args()
	switch {
	case call.FunctionName() == operators.Index && isIdent(args[0], nameValues):
		return r.snippet(r.engine.HeaderValue(literal(args[1])))
	case call.FunctionName() == operators.In && isIdent(args[1], namePresent):
		return r.snippet(r.engine.HeaderPresent(literal(args[0])))
	case call.IsMemberFunction():
		return r.fac.NewMemberCall(0, call.FunctionName(), r.visit(call.Target()), r.visitAll(args)...)
	}
	return r.fac.NewCall(0, call.FunctionName(), r.visitAll(args)...)
}

func isIdent(e ast.Expr, name string) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == name }

// literal is only called where the normaliser put a string literal.
func literal(e ast.Expr) string { return string(e.AsLiteral().(types.String)) }

func (r *renderer) snippet(text string) ast.Expr {
	if text == "" {
		r.err = fmt.Errorf("the engine has no text for a name that the expression uses")
		return r.fac.NewUnspecifiedExpr(0)
	}
	if tree, ok := r.snippets[text]; ok {
		return r.fac.CopyExpr(tree)
	}
	parsed, issues := syntaxEnv.Parse(text)
	if err := issues.Err(); err != nil {
		r.err = fmt.Errorf("engine text %q: %w", text, err)
		return r.fac.NewUnspecifiedExpr(0)
	}
	tree := parsed.NativeRep().Expr()
	r.snippets[text] = tree
	return r.fac.CopyExpr(tree)
}

// unparse turns a tree with unexpanded macros into text and makes sure that the text parses to the same tree.
func unparse(tree ast.Expr) (string, error) {
	text, err := parser.Unparse(tree, ast.NewSourceInfo(nil), parser.WrapOnColumn(math.MaxInt32))
	if err != nil {
		return "", err
	}
	parsed, issues := syntaxEnv.Parse(text)
	if err := issues.Err(); err != nil {
		return "", fmt.Errorf("the rewritten text does not parse: %w", err)
	}
	if !equal(tree, parsed.NativeRep().Expr()) {
		return "", fmt.Errorf("the rewritten text means something else")
	}
	return text, nil
}

// equal compares two trees without their ids.
func equal(a, b ast.Expr) bool {
	if a.Kind() != b.Kind() {
		return false
	}
	switch a.Kind() {
	case ast.IdentKind:
		return a.AsIdent() == b.AsIdent()
	case ast.LiteralKind:
		x, y := a.AsLiteral(), b.AsLiteral()
		return x.Type() == y.Type() && x.Equal(y) == types.True
	case ast.SelectKind:
		x, y := a.AsSelect(), b.AsSelect()
		return x.FieldName() == y.FieldName() && x.IsTestOnly() == y.IsTestOnly() && equal(x.Operand(), y.Operand())
	case ast.CallKind:
		x, y := a.AsCall(), b.AsCall()
		return x.FunctionName() == y.FunctionName() && x.IsMemberFunction() == y.IsMemberFunction() &&
			(!x.IsMemberFunction() || equal(x.Target(), y.Target())) && equalAll(x.Args(), y.Args())
	case ast.ListKind:
		return equalAll(a.AsList().Elements(), b.AsList().Elements())
	case ast.MapKind:
		return equalAll(flatten(a.AsMap()), flatten(b.AsMap()))
	case ast.StructKind, ast.ComprehensionKind, ast.UnspecifiedExprKind:
	}
	return false
}

func equalAll(a, b []ast.Expr) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func flatten(m ast.MapExpr) []ast.Expr {
	var out []ast.Expr
	for _, entry := range m.Entries() {
		out = append(out, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
	}
	return out
}
