package analyzer

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// section is where a lock is held.
type section struct {
	lock   ast.Expr // nil if it is not known
	outer  ast.Expr // the context that was there before, nil if it is not known
	inside string   // what to use in place of it
	lit    *ast.FuncLit
}

// checkSection checks a function literal that a call runs under a lock.
func (c *checker) checkSection(call *ast.CallExpr) {
	s := section{inside: "the context that the function is given"}
	fn := c.guarded(call)
	if l := c.lockCall(call); l != nil {
		s.lock, s.outer, fn = l.lock, l.ctx, l.fn
		if name, _ := c.sameLock(l.lock); c.owns(l.ctx, name) {
			return
		}
	}
	lit, ok := fn.(*ast.FuncLit)
	if !ok {
		return
	}
	s.lit = lit
	id := param(lit)
	if id != nil {
		s.inside = id.Name
	}
	if !c.checkCalls(lit.Body, s) && (id == nil || !c.mentions(lit.Body, c.variable(id))) {
		c.checkIgnored(call, s)
	}
}

// checkCalls checks the lock calls in a node, but for those in functions that run at
// another time, and says whether it found a mistake.
func (c *checker) checkCalls(n ast.Node, s section) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.DeferStmt, *ast.FuncLit:
			return false
		case *ast.CallExpr:
			if l := c.lockCall(n); l != nil {
				found = c.checkCall(l, s) || found
				if lit, ok := l.fn.(*ast.FuncLit); ok { // runs at once
					found = c.checkCalls(lit.Body, s) || found
				}
			}
		}
		return true
	})
	return found
}

// checkCall reports a lock call under a context that does not own the lock held there.
func (c *checker) checkCall(l *lockCall, s section) bool {
	same := c.isSame(l.lock, s.lock)
	if same && l.method == "Join" { // it does not wait, and its context ends with the loss
		return false
	}
	if !c.isOuter(l.ctx, s) && !(same && c.isEmpty(l.ctx)) {
		return false
	}
	ctx, lock := types.ExprString(l.ctx), types.ExprString(l.lock)
	switch {
	case same && strings.HasPrefix(l.method, "Try"):
		c.report(l, "%s.%s under %s is refused because of the lock that is held here, which %s does not own; use %s",
			lock, l.method, ctx, ctx, s.inside)
	case same:
		c.reportAnywhere(l, "%s.%s under %s waits for the lock that is held here, which %s does not own; use %s",
			lock, l.method, ctx, ctx, s.inside)
	default:
		c.report(l, "%s.%s under %s, which does not own the lock that is held here, does not end with its loss; use %s",
			lock, l.method, ctx, s.inside)
	}
	return true
}

// isSame says whether a call of one lock would wait for the other. Readers do not wait
// for each other.
func (c *checker) isSame(called, held ast.Expr) bool {
	if held == nil {
		return false
	}
	a, reads := c.sameLock(called)
	b, read := c.sameLock(held)
	return a != "" && a == b && !(reads && read) && !c.assignedBetween(held, called)
}

// assignedBetween says whether what one expression consists of may have got another value since
// the other.
func (c *checker) assignedBetween(before, e ast.Expr) bool {
	return c.find(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return false
		}
		v, ok := c.TypesInfo.Uses[id].(*types.Var)
		return ok && v.Pos() < before.Pos() && slices.ContainsFunc(c.defs[v], func(d def) bool {
			return d.value != nil && before.End() <= d.value.Pos() && d.value.Pos() < e.Pos()
		})
	})
}

// isOuter says whether a context was there before the section. It is not known of one that
// comes from what a function literal assigns, which may be that of the section.
func (c *checker) isOuter(ctx ast.Expr, s section) bool {
	root := c.root(ctx)
	if root == "" || c.isEmpty(ctx) || c.isMoved(c.origin(ctx)) {
		return false
	}
	if s.outer != nil {
		return root == c.root(s.outer)
	}
	v := c.variable(ctx) // captured by a function that Guard guards
	return v != nil && s.lit != nil && v.Parent() != c.Pkg.Scope() && !(s.lit.Pos() <= v.Pos() && v.Pos() < s.lit.End())
}

// isMoved says whether a function literal assigns what an expression consists of.
func (c *checker) isMoved(e ast.Expr) bool {
	for name := range c.parts(e) {
		if c.moved[name] {
			return true
		}
	}
	return false
}

// checkIgnored reports a function literal that does not use its context, but another one.
func (c *checker) checkIgnored(call *ast.CallExpr, s section) {
	var used ast.Expr
	ast.Inspect(s.lit.Body, func(n ast.Node) bool {
		if n, ok := n.(*ast.CallExpr); ok && used == nil && len(n.Args) > 0 && c.isContext(n.Args[0]) && c.isOuter(n.Args[0], s) {
			used = n.Args[0]
		}
		return used == nil
	})
	if used != nil {
		c.report(used, "the function does not use the context that it is given, but %s, which does not own the lock, and does not end with its loss",
			types.ExprString(used))
	}
}

// isContext says whether an expression is a context.Context.
func (c *checker) isContext(e ast.Expr) bool {
	named, ok := c.TypesInfo.TypeOf(e).(*types.Named)
	return ok && named.Obj().Name() == "Context" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "context"
}
