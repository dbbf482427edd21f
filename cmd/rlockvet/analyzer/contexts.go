package analyzer

import (
	"go/ast"
	"go/types"
	"strings"
)

// root returns a name for the context that one was made from by package context or
// errgroup, or is a copy of; "" if it has none.
func (c *checker) root(ctx ast.Expr) string { return c.same(c.origin(ctx)) }

// origin returns the first of the contexts that one was made from, as far as they are known.
// A variable that is met again, as its context was made from itself, is the last one.
func (c *checker) origin(ctx ast.Expr) ast.Expr {
	seen := make(map[*types.Var]bool)
	for parent := c.parent(ctx); parent != nil; parent = c.parent(ctx) {
		if v := c.variable(ctx); v != nil {
			if seen[v] {
				break
			}
			seen[v] = true
		}
		ctx = parent
	}
	return ctx
}

// parent returns the context that one was made from, or is a copy of, nil if it is not known.
func (c *checker) parent(ctx ast.Expr) ast.Expr {
	call, ok := ast.Unparen(ctx).(*ast.CallExpr)
	if v := c.variable(ctx); v != nil {
		if defs := c.defs[v]; len(defs) == 1 && c.variable(defs[0].value) != nil {
			return defs[0].value
		}
		call, _ = c.defs.only(v)
		ok = call != nil
	}
	if !ok || len(call.Args) == 0 {
		return nil
	}
	if strings.HasPrefix(c.calledIn(call, "context"), "With") || c.calledIn(call, "golang.org/x/sync/errgroup") == "WithContext" {
		return call.Args[0]
	}
	return nil
}

// isEmpty says whether a context owns nothing for certain.
func (c *checker) isEmpty(ctx ast.Expr) bool {
	ctx = c.origin(ctx)
	call, ok := ast.Unparen(ctx).(*ast.CallExpr)
	if v := c.variable(ctx); v != nil {
		call, _ = c.defs.only(v)
		ok = call != nil
	}
	if !ok {
		return false
	}
	name := c.calledIn(call, "context")
	return name == "Background" || name == "TODO" || c.calledIn(call, library) == "Detach"
}

// noteOwner notes which context a function literal is given that runs under a lock.
func (c *checker) noteOwner(call *ast.CallExpr) {
	l := c.lockCall(call)
	if l == nil || l.fn == nil {
		return
	}
	if lit, ok := ast.Unparen(l.fn).(*ast.FuncLit); ok {
		if id := param(lit); id != nil {
			c.owners[c.same(id)] = call
		}
	}
}

// param returns the name of the context that a function literal is given, nil if it has
// none.
func param(lit *ast.FuncLit) *ast.Ident {
	if params := lit.Type.Params.List; len(params) > 0 && len(params[0].Names) > 0 && params[0].Names[0].Name != "_" {
		return params[0].Names[0]
	}
	return nil
}

// owns says whether a context owns a lock, as far as the calls that it comes from tell.
func (c *checker) owns(ctx ast.Expr, lock string) bool {
	return lock != "" && c.ownsBeside(ctx, lock, make(map[*ast.CallExpr]bool))
}

// ownsBeside is owns, without the calls that were looked at.
func (c *checker) ownsBeside(ctx ast.Expr, lock string, seen map[*ast.CallExpr]bool) bool {
	ctx = c.origin(ctx)
	calls := []*ast.CallExpr{c.owners[c.same(ctx)]}
	if v := c.variable(ctx); v != nil {
		calls = append(calls, c.contexts(v)...)
	}
	for _, call := range calls {
		if call == nil || seen[call] {
			continue
		}
		seen[call] = true
		l := c.lockCall(call)
		if name, _ := c.sameLock(l.lock); name == lock || c.ownsBeside(l.ctx, lock, seen) {
			return true
		}
	}
	return false
}

// contexts returns the lock calls that a variable is the context of.
func (c *checker) contexts(v *types.Var) (calls []*ast.CallExpr) {
	for _, d := range c.defs[v] {
		if call, ok := d.value.(*ast.CallExpr); ok && d.result == 0 && c.lockCall(call) != nil {
			calls = append(calls, call)
		}
	}
	return calls
}
