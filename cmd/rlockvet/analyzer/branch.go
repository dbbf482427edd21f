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
	says := w.verdict(before, cond, outcome)
	switch before {
	case refused, without: // a way on which it is held does not exist, and one that is not understood need not
		if says == held || !w.isUnderstood(cond) {
			return over
		}
		return before
	case ended:
		if says == failed {
			return over
		}
		return before
	}
	switch {
	case says == failed && before == fresh:
		return refused
	case says == failed:
		return over
	case says == held && w.asks(before):
		return sure
	case says == held:
		return reused
	}
	if !w.isUnderstood(cond) {
		return w.doubted(before, cond)
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
	e := w.besideNil(cond)
	isErr := w.isErr(e) && w.asks(before)
	if !isErr && !w.isHold(e) {
		return nothing
	}
	if isNil == isErr {
		return held
	}
	return failed
}

// besideNil returns what is compared with nil, nil if nothing is.
func (w *walker) besideNil(cond *ast.BinaryExpr) ast.Expr {
	switch {
	case w.TypesInfo.Types[cond.Y].IsNil():
		return cond.X
	case w.TypesInfo.Types[cond.X].IsNil():
		return cond.Y
	}
	return nil
}

// asks says whether the error is still that of the lock call. If the lock is held, it is nil:
// a way on which it is looked at again, and is not, does not exist.
func (w *walker) asks(before knowledge) bool {
	return before == fresh || before == doubt || before == sure || before == refused
}

// isUnderstood says whether a condition asks for the error only in ways that verdict
// knows.
func (w *walker) isUnderstood(cond ast.Expr) bool {
	switch cond := ast.Unparen(cond).(type) {
	case *ast.UnaryExpr:
		return w.isUnderstood(cond.X)
	case *ast.BinaryExpr:
		if cond.Op == token.LAND || cond.Op == token.LOR {
			return w.isUnderstood(cond.X) && w.isUnderstood(cond.Y)
		}
		return w.isErr(w.besideNil(cond)) || !w.mentions(cond, w.err)
	case *ast.CallExpr:
		return w.isErrorsIs(cond) || !w.mentions(cond, w.err)
	default:
		return !w.mentions(cond, w.err)
	}
}

func (w *walker) isErrorsIs(call *ast.CallExpr) bool {
	return w.calledIn(call, "errors") == "Is" && w.isErr(call.Args[0])
}

// callee returns the path and name of the function that is called.
func (w *walker) callee(call *ast.CallExpr) string {
	fn, ok := typeutil.Callee(w.TypesInfo, call).(*types.Func)
	if !ok || fn.Pkg() == nil {
		return ""
	}
	return fn.Pkg().Path() + "." + fn.Name()
}
