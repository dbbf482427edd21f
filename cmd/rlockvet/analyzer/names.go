package analyzer

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// def is where a variable gets a value: a result of an expression, nil if it is not known.
type def struct {
	value  ast.Expr
	result int
}

type defs map[*types.Var][]def

// definitions returns where the variables of a package get their values.
func definitions(pass *analysis.Pass) defs {
	all := make(defs)
	for _, file := range pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := pass.TypesInfo.Implicits[n].(*types.Var); ok { // in a clause of a type switch
				all[v] = append(all[v], def{})
			}
			to, values := assigned(n)
			for i, e := range to {
				v := variable(pass, e)
				switch {
				case v == nil:
				case len(values) == len(to):
					all[v] = append(all[v], def{values[i], 0})
				case len(values) == 1:
					all[v] = append(all[v], def{values[0], i})
				}
			}
			return true
		})
	}
	return all
}

// movedNames returns the names of what function literals assign without having declared it:
// which value that has elsewhere depends on when they run.
func (c *checker) movedNames() map[string]bool {
	all := make(map[string]bool)
	for _, file := range c.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.FuncLit); ok {
				c.noteMoved(lit, all)
			}
			return true
		})
	}
	return all
}

// noteMoved notes the names of what a function literal assigns without having declared it.
func (c *checker) noteMoved(lit *ast.FuncLit, all map[string]bool) {
	ast.Inspect(lit.Body, func(n ast.Node) bool {
		to, _ := assigned(n)
		for _, e := range to {
			v := c.variable(e) // nil for a field
			if name := c.same(e); name != "" && (v == nil || v.Pos() < lit.Pos() || v.Pos() >= lit.End()) {
				all[name] = true
			}
		}
		return true
	})
}

// assigned returns to what a node assigns, and what: one value for all, or for each.
func assigned(n ast.Node) (to, values []ast.Expr) {
	unknown := []ast.Expr{nil}
	switch n := n.(type) {
	case *ast.AssignStmt:
		return n.Lhs, n.Rhs
	case *ast.ValueSpec:
		return idents(n.Names), n.Values
	case *ast.Field: // the caller gives it one
		return idents(n.Names), unknown
	case *ast.RangeStmt:
		return []ast.Expr{n.Key, n.Value}, unknown
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			return []ast.Expr{n.X}, unknown
		}
	}
	return nil, nil
}

func idents(names []*ast.Ident) (all []ast.Expr) {
	for _, name := range names {
		all = append(all, name)
	}
	return all
}

// only returns the call that a variable has its only value from, and which result.
func (d defs) only(v *types.Var) (*ast.CallExpr, int) {
	if len(d[v]) != 1 || d[v][0].value == nil {
		return nil, 0
	}
	call, _ := ast.Unparen(d[v][0].value).(*ast.CallExpr)
	return call, d[v][0].result
}

// same returns a name for the value of an expression, which equal ones share; "" if there
// is none.
func (c *checker) same(e ast.Expr) string {
	if tv := c.TypesInfo.Types[e]; tv.Value != nil {
		return tv.Value.ExactString()
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if obj := c.TypesInfo.ObjectOf(e); obj != nil {
			return fmt.Sprintf("%s@%d", e.Name, obj.Pos())
		}
	case *ast.SelectorExpr:
		if x := c.same(e.X); x != "" {
			return x + c.through(e) + "." + e.Sel.Name
		}
	case *ast.StarExpr:
		return c.same(e.X)
	case *ast.BinaryExpr:
		if x, y := c.same(e.X), c.same(e.Y); x != "" && y != "" {
			return x + e.Op.String() + y
		}
	case *ast.CallExpr:
		names := []string{c.same(e.Fun)}
		for _, arg := range e.Args {
			names = append(names, c.same(arg))
		}
		if !slices.Contains(names, "") {
			return names[0] + "(" + strings.Join(names[1:], ",") + ")"
		}
	}
	return ""
}

// through names the embedded fields by which a selector finds what it names: s.mu may be s.base.mu.
func (c *checker) through(e *ast.SelectorExpr) (path string) {
	found := c.TypesInfo.Selections[e]
	if found == nil { // of a package
		return ""
	}
	t := found.Recv()
	for _, i := range found.Index()[:len(found.Index())-1] {
		if p, ok := t.Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		field := t.Underlying().(*types.Struct).Field(i)
		path, t = path+"."+field.Name(), field.Type()
	}
	return path
}

// parts returns the names of an expression and of those in it: if one of them has another
// value, the expression may have one, too.
func (c *checker) parts(e ast.Expr) map[string]bool {
	names := make(map[string]bool)
	ast.Inspect(e, func(n ast.Node) bool {
		if part, ok := n.(ast.Expr); ok {
			if name := c.same(part); name != "" {
				names[name] = true
			}
		}
		return true
	})
	return names
}

// sameLock is same for a lock, in which plain and fair locks are equal, and readers and
// writers of a read/write lock.
func (c *checker) sameLock(e ast.Expr) (name string, reader bool) {
	if v := c.variable(e); v != nil {
		if call, _ := c.defs.only(v); call != nil {
			if name, reader = c.constructed(call); name != "" {
				return name, reader
			}
		}
	}
	if call, ok := ast.Unparen(e).(*ast.CallExpr); ok && c.function(call) != nil {
		return c.constructed(call)
	}
	return c.same(e), false
}

// constructed is sameLock for what a function of the library returns, "" if that is no lock
// with a name.
func (c *checker) constructed(call *ast.CallExpr) (name string, reader bool) {
	fn := c.function(call)
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if fn == nil || !ok {
		return "", false
	}
	switch fn.Name() {
	case "Reader", "Writer":
		name, _ = c.sameLock(sel.X)
		return name, fn.Name() == "Reader"
	case "NewLock", "NewFairLock", "NewRWLock":
		client, key := c.same(sel.X), c.same(call.Args[0])
		if client != "" && key != "" {
			return fmt.Sprintf("%s.New%t(%s)", client, fn.Name() == "NewRWLock", key), false
		}
	}
	return "", false
}

// leased says whether a lock is known to have a fixed lease, which may be left to end.
func (c *checker) leased(lock ast.Expr) bool {
	call, _ := ast.Unparen(lock).(*ast.CallExpr)
	if v := c.variable(lock); v != nil {
		call, _ = c.defs.only(v)
	}
	return call != nil && c.find(call, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		return ok && id.Name == "WithoutRenewal"
	})
}
