package analyzer

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"
)

// lockCall is a call of a method of a Lock or a MultiLock that may take it, or join a hold of it.
type lockCall struct {
	*ast.CallExpr
	method string
	lock   ast.Expr // that it is a method of
	ctx    ast.Expr
	fn     ast.Expr // of the Do form
}

// methods of a lock that may take it, or join a hold of it, and how many arguments they
// have.
var methods = map[string]int{"Lock": 1, "TryLock": 1, "TryLockFor": 2, "Join": 2, "Do": 2, "TryDo": 2, "DoFor": 3}

// lockCall returns what a call is, nil if it is none.
func (c *checker) lockCall(call *ast.CallExpr) *lockCall {
	fn := c.function(call)
	if fn == nil || receiver(fn) != "Lock" && receiver(fn) != "MultiLock" || methods[fn.Name()] == 0 || len(call.Args) != methods[fn.Name()] {
		return nil
	}
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	found := &lockCall{CallExpr: call, method: fn.Name(), lock: sel.X, ctx: call.Args[0]}
	switch fn.Name() {
	case "Do", "TryDo", "DoFor":
		found.fn = call.Args[len(call.Args)-1]
	}
	return found
}

// guarded returns the function that a call of Guard or GuardDo guards, nil if it is none.
func (c *checker) guarded(call *ast.CallExpr) ast.Expr {
	fn := c.function(call)
	if fn == nil || receiver(fn) != "" || (fn.Name() != "Guard" && fn.Name() != "GuardDo") || len(call.Args) < 2 {
		return nil
	}
	return call.Args[1]
}

// function returns the function or method of package rlock that is called, nil if it is
// another one.
func (c *checker) function(call *ast.CallExpr) *types.Func {
	fn, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Pkg().Path() != library {
		return nil
	}
	return fn
}

// receiver returns the name of the type that a function is a method of.
func receiver(fn *types.Func) string {
	recv := fn.Signature().Recv()
	if recv == nil {
		return ""
	}
	t := recv.Type()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj().Name()
	}
	return ""
}

// calledIn says whether a function of a package is called, and which.
func (c *checker) calledIn(call *ast.CallExpr, path string) string {
	fn, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Pkg().Path() != path {
		return ""
	}
	return fn.Name()
}

// variable returns the variable that an expression names, nil if it is none, or blank.
func (c *checker) variable(e ast.Expr) *types.Var { return variable(c.Pass, e) }

// variable is the method of that name, for what is done before there is a checker.
func variable(pass *analysis.Pass, e ast.Expr) *types.Var {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return nil
	}
	v, _ := pass.TypesInfo.ObjectOf(id).(*types.Var)
	return v
}

// isBlank says whether an expression is the blank identifier.
func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

// mentions says whether a variable is used in a node.
func (c *checker) mentions(n ast.Node, v *types.Var) bool {
	return v != nil && c.find(n, func(m ast.Node) bool {
		id, ok := m.(*ast.Ident)
		return ok && c.TypesInfo.Uses[id] == v // its declaration is no use
	})
}

// find says whether there is such a node.
func (c *checker) find(n ast.Node, is func(ast.Node) bool) (found bool) {
	ast.Inspect(n, func(m ast.Node) bool {
		found = found || m != nil && is(m)
		return !found
	})
	return found
}
