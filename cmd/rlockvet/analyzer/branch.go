package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/types/typeutil"
)

// verdict is what a condition tells of the lock call.
type verdict int

const (
	nothing verdict = iota
	held
	failed
)

// both is what two conditions tell that are both as they are.
func both(a, b verdict) verdict { return max(a, b) }

// either is what two conditions tell of which one is as it is.
func either(a, b verdict) verdict {
	if a == b {
		return a
	}
	return nothing
}

// branch returns what a path knows after a condition.
func (w *walker) branch(before knowledge, cond ast.Expr, outcome bool) knowledge {
	switch w.verdict(before, cond, outcome) {
	case failed:
		return over
	case held:
		return sure
	}
	if before == fresh && !w.isUnderstood(cond) {
		return doubt
	}
	return before
}

// verdict returns what a condition tells by its outcome.
func (w *walker) verdict(before knowledge, cond ast.Expr, outcome bool) verdict {
	switch cond := ast.Unparen(cond).(type) {
	case *ast.UnaryExpr:
		if cond.Op == token.NOT {
			return w.verdict(before, cond.X, !outcome)
		}
	case *ast.BinaryExpr:
		switch cond.Op {
		case token.LAND, token.LOR:
			x, y := w.verdict(before, cond.X, outcome), w.verdict(before, cond.Y, outcome)
			if outcome == (cond.Op == token.LAND) {
				return both(x, y)
			}
			return either(x, y)
		case token.EQL, token.NEQ:
			return w.compared(before, cond, outcome == (cond.Op == token.EQL))
		}
	case *ast.CallExpr: // what it is not, it may still be otherwise
		if w.asks(before) && outcome && w.isErrorsIs(cond) {
			return failed
		}
	}
	return nothing
}

// compared returns what a comparison with nil tells.
func (w *walker) compared(before knowledge, cond *ast.BinaryExpr, isNil bool) verdict {
	v := w.variable(cond.X)
	if v == nil || !w.TypesInfo.Types[cond.Y].IsNil() || v != w.hold && (v != w.err || !w.asks(before)) {
		return nothing
	}
	if isNil == (v == w.err) {
		return held
	}
	return failed
}

// asks says whether the error is still that of the lock call, and not known.
func (w *walker) asks(before knowledge) bool { return before == fresh || before == doubt }

// isUnderstood says whether a condition asks for the error only in ways that verdict
// knows.
func (w *walker) isUnderstood(cond ast.Expr) bool {
	switch cond := ast.Unparen(cond).(type) {
	case *ast.UnaryExpr:
		return w.isUnderstood(cond.X)
	case *ast.BinaryExpr:
		return w.isUnderstood(cond.X) && w.isUnderstood(cond.Y)
	case *ast.Ident:
		return true
	case *ast.CallExpr:
		return w.isErrorsIs(cond) || !w.mentions(cond, w.err)
	default:
		return !w.mentions(cond, w.err)
	}
}

func (w *walker) isErrorsIs(call *ast.CallExpr) bool {
	return w.calledIn(call, "errors") == "Is" && w.err != nil && w.variable(call.Args[0]) == w.err
}

// callee returns the path and name of the function that is called.
func (w *walker) callee(call *ast.CallExpr) string {
	fn, ok := typeutil.Callee(w.TypesInfo, call).(*types.Func)
	if !ok || fn.Pkg() == nil {
		return ""
	}
	return fn.Pkg().Path() + "." + fn.Name()
}
