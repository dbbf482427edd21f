package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/cfg"
)

// acquisition is a lock call whose results a statement takes.
type acquisition struct {
	*lockCall
	stmt ast.Node // in the control flow
	held ast.Expr // the variable for the context, nil if all results are dropped
	hold ast.Expr
	err  ast.Expr
}

// checkFunc checks the lock calls of a function.
func (c *checker) checkFunc(fn ast.Node) {
	var body *ast.BlockStmt
	switch fn := fn.(type) {
	case *ast.FuncDecl:
		body = fn.Body
	case *ast.FuncLit:
		body = fn.Body
	}
	if body == nil {
		return
	}
	all := c.acquisitions(body)
	for _, a := range all {
		c.checkDropped(a)
		v := c.local(a.hold, fn)
		if v == nil {
			continue
		}
		c.checkBlankError(body, a, v)
		c.checkDeferred(body, a, v)
		if deferred, anytime := c.captured(body, a, v); !anytime {
			c.walk(fn, a, all, v, deferred)
		}
	}
}

// captured says whether the variable of a hold was captured before the lock call, or its
// address was taken, so that the hold may be unlocked where nobody mentions it: when the
// function ends, or at any time.
func (c *checker) captured(body ast.Node, a *acquisition, hold *types.Var) (deferred, anytime bool) {
	captures := func(n ast.Node) bool { return c.captures(n, hold) }
	end := before(body, a, hold)
	ast.Inspect(body, func(n ast.Node) bool {
		if n == nil || n.Pos() >= end {
			return false
		}
		if _, ok := n.(*ast.DeferStmt); ok {
			deferred = deferred || c.find(n, captures)
			return false
		}
		anytime = anytime || captures(n)
		return !anytime
	})
	return deferred, anytime
}

// captures says whether a node is a function literal that uses a variable, or takes its
// address.
func (c *checker) captures(n ast.Node, v *types.Var) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		return c.mentions(n, v)
	case *ast.UnaryExpr:
		return n.Op == token.AND && v != nil && c.variable(n.X) == v
	}
	return false
}

// before returns where that ends which may run before a lock call: there, or after the loops
// that it is in, if they share the variable of the hold.
func before(body ast.Node, a *acquisition, hold *types.Var) token.Pos {
	end := a.Pos()
	ast.Inspect(body, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			if hold.Pos() < n.Pos() && n.Pos() < a.Pos() {
				end = max(end, n.End())
			}
		}
		return true
	})
	return end
}

// graph returns the control flow of a function.
func (c *checker) graph(fn ast.Node) *cfg.CFG {
	graphs := c.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs)
	if decl, ok := fn.(*ast.FuncDecl); ok {
		return graphs.FuncDecl(decl)
	}
	return graphs.FuncLit(fn.(*ast.FuncLit))
}

// acquisitions returns the lock calls in a function, without those of the functions in it,
// whose results are not passed on.
func (c *checker) acquisitions(body *ast.BlockStmt) (all []*acquisition) {
	ast.Inspect(body, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		if value, to := taken(n); value != nil {
			if a := c.acquisition(n, value, to); a != nil {
				all = append(all, a)
			}
		}
		return true
	})
	return all
}

// taken returns the only value of a statement, nil if it has none, and what it is assigned to.
func taken(n ast.Node) (value ast.Expr, to []ast.Expr) {
	var values []ast.Expr
	switch n := n.(type) {
	case *ast.AssignStmt:
		values, to = n.Rhs, n.Lhs
	case *ast.ValueSpec:
		values, to = n.Values, idents(n.Names)
	case *ast.ExprStmt:
		return n.X, nil
	case *ast.GoStmt:
		return n.Call, nil
	case *ast.DeferStmt:
		return n.Call, nil
	}
	if len(values) != 1 {
		return nil, nil
	}
	return values[0], to
}

// acquisition returns the lock call that is the value of a statement, nil if it is none.
func (c *checker) acquisition(stmt ast.Node, value ast.Expr, to []ast.Expr) *acquisition {
	call, ok := ast.Unparen(value).(*ast.CallExpr)
	if !ok {
		return nil
	}
	l := c.lockCall(call)
	if l == nil || l.fn != nil {
		return nil
	}
	a := &acquisition{lockCall: l, stmt: stmt}
	if len(to) == 3 {
		a.held, a.hold, a.err = to[0], to[1], to[2]
	}
	return a
}

// checkDropped reports a lock call whose hold, or whose context, nobody can use.
func (c *checker) checkDropped(a *acquisition) {
	name, _ := c.sameLock(a.lock)
	switch {
	case a.hold == nil || isBlank(a.hold):
		if !c.leased(a.lock) {
			c.report(a, "the hold that %s.%s returns is dropped: nobody can unlock it", types.ExprString(a.lock), a.method)
		}
	case isBlank(a.held) && !c.owns(a.ctx, name):
		c.report(a, "the context that %s.%s returns is dropped: the loss of the lock cannot end the work under it",
			types.ExprString(a.lock), a.method)
	}
}

// local returns the variable of a function that an expression names, nil if it is none, or
// a result, which is returned.
func (c *checker) local(e ast.Expr, fn ast.Node) *types.Var {
	if e == nil || isBlank(e) {
		return nil
	}
	v := c.variable(e)
	if v == nil || v.IsField() || v.Pos() < fn.Pos() || v.Pos() >= fn.End() || c.isResult(v, fn) {
		return nil
	}
	return v
}

func (c *checker) isResult(v *types.Var, fn ast.Node) bool {
	var sig *types.Signature
	switch fn := fn.(type) {
	case *ast.FuncDecl:
		sig, _ = c.TypesInfo.Defs[fn.Name].Type().(*types.Signature)
	case *ast.FuncLit:
		sig, _ = c.TypesInfo.TypeOf(fn).(*types.Signature)
	}
	if sig == nil {
		return true
	}
	for result := range sig.Results().Variables() {
		if result == v {
			return true
		}
	}
	return false
}
