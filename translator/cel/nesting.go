package cel

import "github.com/google/cel-go/common/ast"

// Nesting returns how deep the messages are nested in which an expression travels as a syntax tree (cel.expr.Expr): two for
// each node, three for a map with its entries. A chain of + is as deep as it is long. Protocol buffers are read to a depth of
// 100 by default. The error is the parser's.
func Nesting(text string) (int, error) {
	parsed, issues := syntaxEnv.Parse(text)
	if err := issues.Err(); err != nil {
		return 0, err
	}
	return nesting(parsed.NativeRep().Expr()), nil
}

func nesting(e ast.Expr) int {
	own, below := 2, 0
	for _, part := range partsOf(e) {
		below = max(below, nesting(part))
	}
	if e.Kind() == ast.MapKind {
		own++
	}
	return own + below
}

// partsOf returns the expressions that stand directly below one.
func partsOf(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.CallKind:
		if call := e.AsCall(); call.IsMemberFunction() {
			return append([]ast.Expr{call.Target()}, call.Args()...)
		}
		return e.AsCall().Args()
	case ast.ListKind:
		return e.AsList().Elements()
	case ast.MapKind:
		return flatten(e.AsMap())
	case ast.IdentKind, ast.LiteralKind, ast.StructKind, ast.ComprehensionKind, ast.UnspecifiedExprKind:
	}
	return nil
}
