package cel

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"accesspolicy-operator/translator/regex"
)

// normaliser rewrites the syntax tree of a user's expression (macros not expanded) into the normal form: vocabulary names
// become internal names, iteration variables are renamed, every reading of request.headers becomes one of two shapes. It
// keeps the first error only.
type normaliser struct {
	vocab     Vocabulary
	fac       ast.ExprFactory
	uses      Uses
	nodes     int
	id        int64
	variables int
	loops     int
	err       error
}

// scope maps the iteration variables that are visible at a place to their new names.
type scope map[string]string

func (n *normaliser) fail(format string, args ...any) ast.Expr {
	if n.err == nil {
		n.err = fmt.Errorf(format, args...)
	}
	return n.fac.NewIdent(0, nameMethod)
}

func (n *normaliser) next() int64 {
	n.id++
	return n.id
}

func (n *normaliser) visit(e ast.Expr, in scope) ast.Expr {
	n.nodes++
	if n.nodes > MaxExpressionNodes {
		return n.fail("the expression has more than %d parts", MaxExpressionNodes)
	}
	switch e.Kind() {
	case ast.LiteralKind:
		return n.fac.NewLiteral(n.next(), e.AsLiteral())
	case ast.IdentKind, ast.SelectKind:
		return n.visitName(e, in)
	case ast.CallKind:
		return n.visitCall(e, in)
	case ast.ListKind:
		if len(e.AsList().OptionalIndices()) > 0 {
			return n.fail("optional list elements are not part of the vocabulary")
		}
		return n.fac.NewList(n.next(), n.visitAll(e.AsList().Elements(), in), nil)
	case ast.MapKind:
		return n.visitMap(e, in)
	case ast.StructKind, ast.ComprehensionKind, ast.UnspecifiedExprKind:
	}
	return n.fail("only names, literals, lists, maps, operators and functions can be used")
}

func (n *normaliser) visitAll(list []ast.Expr, in scope) []ast.Expr {
	out := make([]ast.Expr, len(list))
	for i, e := range list {
		out[i] = n.visit(e, in)
	}
	return out
}

func (n *normaliser) visitMap(e ast.Expr, in scope) ast.Expr {
	entries := e.AsMap().Entries()
	out := make([]ast.EntryExpr, 0, len(entries))
	for _, entry := range entries {
		m := entry.AsMapEntry()
		if m.IsOptional() {
			return n.fail("optional map entries are not part of the vocabulary")
		}
		out = append(out, n.fac.NewMapEntry(n.next(), n.visit(m.Key(), in), n.visit(m.Value(), in), false))
	}
	return n.fac.NewMap(n.next(), out)
}

// visitName resolves an identifier or a chain of selections.
func (n *normaliser) visitName(e ast.Expr, in scope) ast.Expr {
	if e.Kind() == ast.IdentKind {
		name := e.AsIdent()
		if renamed, ok := in[name]; ok {
			return n.fac.NewIdent(n.next(), renamed)
		}
		return n.fail("%q is not part of the vocabulary", name)
	}
	path, ok := dotted(e)
	if ok && slices.Contains(roots, strings.SplitN(path, ".", 2)[0]) {
		if path == publicHeaders {
			return n.fail("request.headers can only be read one header at a time, by a literal name: " +
				"request.headers['x-name'] or 'x-name' in request.headers")
		}
		for _, v := range variables {
			if v.public == path {
				return n.visitVariable(v)
			}
		}
	}
	sel := e.AsSelect()
	if isHeaders(sel.Operand()) {
		return n.headerValue(sel.FieldName())
	}
	return n.selectField(sel, in)
}

// fieldName is what every CEL version reads as a field; newer ones also take others in back quotes.
var fieldName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// reserved words of the CEL specification cannot be fields either.
var reserved = strings.Fields("as break const continue else false for function if import in let loop package namespace null return true var void while")

func (n *normaliser) selectField(sel ast.SelectExpr, in scope) ast.Expr {
	if field := sel.FieldName(); !fieldName.MatchString(field) || slices.Contains(reserved, field) {
		return n.fail("%q cannot be selected as a field in every engine; write ['%s']", field, field)
	}
	return n.fac.NewSelect(n.next(), n.visit(sel.Operand(), in), sel.FieldName())
}

func (n *normaliser) visitVariable(v variable) ast.Expr {
	if why := n.vocab.Unavailable[v.public]; why != "" {
		return n.fail("%s cannot be used: %s", v.public, why)
	}
	v.use(&n.uses)
	return n.fac.NewIdent(n.next(), v.internal)
}

func (n *normaliser) visitCall(e ast.Expr, in scope) ast.Expr {
	call := e.AsCall()
	name, args := call.FunctionName(), call.Args()
	switch {
	case name == "has" && !call.IsMemberFunction() && len(args) == 1:
		return n.visitHas(args[0], in)
	case name == operators.Index && isHeaders(args[0]):
		return n.headerLookup(args[1], n.headerValue)
	case name == operators.In && isHeaders(args[1]):
		return n.headerLookup(args[0], n.headerPresent)
	case call.IsMemberFunction() && slices.Contains(macros[name], len(args)):
		return n.visitMacro(call, in)
	case n.loops > 0 && (name == operators.Add || name == "matches"):
		return n.fail("%s inside a comprehension is not allowed: it would run for every element", strings.Trim(name, "_"))
	case name == "matches":
		return n.visitMatches(call, in)
	case !functions[name]:
		return n.fail("the function %q is not part of the vocabulary", strings.Trim(name, "_@"))
	case call.IsMemberFunction():
		return n.fac.NewMemberCall(n.next(), name, n.visit(call.Target(), in), n.visitAll(args, in)...)
	}
	return n.fac.NewCall(n.next(), name, n.visitAll(args, in)...)
}

// visitMatches takes only an expression that is written out, so that no client chooses it, and sums up what it costs.
func (n *normaliser) visitMatches(call ast.CallExpr, in scope) ast.Expr {
	args := call.Args()
	last := args[len(args)-1]
	expr, ok := "", false
	if last.Kind() == ast.LiteralKind {
		var s types.String
		s, ok = last.AsLiteral().(types.String)
		expr = string(s)
	}
	if !ok {
		return n.fail("the regular expression of matches must be a literal")
	}
	size, err := regex.Size(expr)
	if err != nil {
		return n.fail("%v", err)
	}
	n.uses.RegexSize += size
	n.uses.Patterns = append(n.uses.Patterns, expr)
	if call.IsMemberFunction() {
		return n.fac.NewMemberCall(n.next(), "matches", n.visit(call.Target(), in), n.visitAll(args, in)...)
	}
	return n.fac.NewCall(n.next(), "matches", n.visitAll(args, in)...)
}

// visitHas keeps has(a.b) on what a user can have in hand (auth.identity, iteration variables) and turns
// has(request.headers.name) into the test for presence.
func (n *normaliser) visitHas(arg ast.Expr, in scope) ast.Expr {
	if arg.Kind() != ast.SelectKind {
		return n.fail("has() takes a field selection")
	}
	sel := arg.AsSelect()
	if isHeaders(sel.Operand()) {
		return n.headerPresent(sel.FieldName())
	}
	return n.fac.NewCall(n.next(), "has", n.selectField(sel, in))
}

func (n *normaliser) visitMacro(call ast.CallExpr, in scope) ast.Expr {
	args := call.Args()
	if args[0].Kind() != ast.IdentKind {
		return n.fail("the first argument of %s() must be a name", call.FunctionName())
	}
	name := args[0].AsIdent()
	if slices.Contains(roots, name) {
		return n.fail("%q hides a name of the vocabulary: use another iteration variable", name)
	}
	target := n.visit(call.Target(), in)
	if n.loops > 0 {
		return n.fail("a comprehension inside another is not allowed: its cost is the product of both")
	}
	n.loops++
	defer func() { n.loops-- }()
	renamed := fmt.Sprintf("v%d", n.variables)
	n.variables++
	inner := scope{name: renamed}
	body := []ast.Expr{n.fac.NewIdent(n.next(), renamed)}
	return n.fac.NewMemberCall(n.next(), call.FunctionName(), target, append(body, n.visitAll(args[1:], inner)...)...)
}

func (n *normaliser) headerLookup(key ast.Expr, shape func(string) ast.Expr) ast.Expr {
	if key.Kind() == ast.LiteralKind {
		if name, ok := key.AsLiteral().(types.String); ok {
			return shape(string(name))
		}
	}
	return n.fail("request.headers can only be read by a literal name")
}

func (n *normaliser) headerValue(name string) ast.Expr {
	return n.fac.NewCall(n.next(), operators.Index, n.fac.NewIdent(n.next(), nameValues), n.header(name))
}

func (n *normaliser) headerPresent(name string) ast.Expr {
	return n.fac.NewCall(n.next(), operators.In, n.header(name), n.fac.NewIdent(n.next(), namePresent))
}

func (n *normaliser) header(name string) ast.Expr {
	name = strings.ToLower(name)
	if !ValidHeaderName(name) {
		return n.fail("%q is not a header name", name)
	}
	if n.vocab.ForbiddenHeader != nil {
		if why := n.vocab.ForbiddenHeader(name); why != "" {
			return n.fail("request.headers[%q] cannot be read: %s", name, why)
		}
	}
	n.uses.Headers = append(n.uses.Headers, name)
	return n.fac.NewLiteral(n.next(), types.String(name))
}

// ValidHeaderName reports whether name is an HTTP field name (RFC 9110, token) and so no pseudo header.
func ValidHeaderName(name string) bool {
	if name == "" || len(name) > 256 {
		return false
	}
	for _, c := range []byte(name) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return true
}

func isHeaders(e ast.Expr) bool {
	path, ok := dotted(e)
	return ok && path == publicHeaders
}

// dotted returns a chain of selections as text, a.b.c.
func dotted(e ast.Expr) (string, bool) {
	if e.Kind() == ast.IdentKind {
		return e.AsIdent(), true
	}
	if e.Kind() != ast.SelectKind || e.AsSelect().IsTestOnly() {
		return "", false
	}
	prefix, ok := dotted(e.AsSelect().Operand())
	return prefix + "." + e.AsSelect().FieldName(), ok
}
