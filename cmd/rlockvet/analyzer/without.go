package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// checkBlankError reports a lock call whose error is dropped, if the hold does not tell
// either that the call has failed: nobody compares it, or passes it on to somebody who may.
func (c *checker) checkBlankError(body ast.Node, a *acquisition, hold *types.Var) {
	if !isBlank(a.err) {
		return
	}
	methods := make(map[ast.Expr]bool) // what is only called a method of
	looked := c.find(body, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			methods[sel.X] = true
		}
		id, ok := n.(*ast.Ident)
		return ok && c.TypesInfo.Uses[id] == hold && !methods[id]
	})
	if !looked {
		c.report(a, "the error of %s.%s is dropped: without the lock, the work goes on as well", types.ExprString(a.lock), a.method)
	}
}

// checkDeferred reports a deferred Unlock of a hold whose error nobody can get. A nested hold
// is lost with the outer one, whose Unlock tells.
func (c *checker) checkDeferred(body ast.Node, a *acquisition, hold *types.Var) {
	if name, _ := c.sameLock(a.lock); name != "" && c.ownsBeside(a.ctx, name, map[*ast.CallExpr]bool{a.CallExpr: true}) {
		return
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		d, ok := n.(*ast.DeferStmt)
		if !ok || d.Pos() < a.Pos() {
			return true
		}
		drops := c.isUnlock(d.Call, hold)
		if lit, ok := d.Call.Fun.(*ast.FuncLit); ok {
			drops = slices.ContainsFunc(lit.Body.List, func(s ast.Stmt) bool {
				e, ok := s.(*ast.ExprStmt)
				return ok && c.isUnlock(e.X, hold)
			})
		}
		if drops {
			c.report(d, "the error of the deferred %s.Unlock is dropped: nothing else tells that the lock was lost; join it to the result, or write _ = %s.Unlock(...)",
				hold.Name(), hold.Name())
		}
		return true
	})
}

// isUnlock says whether an expression is the Unlock of a hold.
func (c *checker) isUnlock(e ast.Expr, hold *types.Var) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Unlock" && c.variable(sel.X) == hold
}

// unlocks says whether a node unlocks the hold for certain: by a call, or by a deferred
// function, not under a condition.
func (w *walker) unlocks(n ast.Node) bool {
	if d, ok := n.(*ast.DeferStmt); ok {
		if lit, ok := d.Call.Fun.(*ast.FuncLit); ok {
			return slices.ContainsFunc(lit.Body.List, func(s ast.Stmt) bool {
				switch s.(type) {
				case *ast.ExprStmt, *ast.AssignStmt, *ast.ReturnStmt:
					return w.unlocks(s)
				}
				return false
			})
		}
	}
	return w.find(n, func(n ast.Node) bool {
		e, ok := n.(*ast.CallExpr)
		return ok && w.isUnlock(e, w.hold)
	}) && !w.find(n, func(n ast.Node) bool {
		e, ok := n.(*ast.BinaryExpr) // done && hold.Unlock(ctx) == nil
		return w.captures(n, w.hold) || ok && (e.Op == token.LAND || e.Op == token.LOR) && w.mentions(e, w.hold)
	})
}

// goesOn reports work that is also done without the lock, once.
func (w *walker) goesOn(n ast.Node) {
	w.report(w.a, "if %s.%s fails, line %d goes on without the lock: return before, or say why it may",
		types.ExprString(w.a.lock), w.a.method, w.line(n.Pos()).no)
}

// unguarded follows a way on which the lock call has failed. What is done there only, as a
// way out, may be done without the lock. What is done with the lock as well is not: work under
// the context that Lock returned, and a deferred Unlock, which says that work is to come. A way
// on which a variable gets a value may be told by that from the others later.
func (w *walker) unguarded(s state, n ast.Node) state {
	assign, isAssign := n.(*ast.AssignStmt)
	switch {
	case n == w.a.stmt: // another try
		return state{}
	case w.reached[n] && (w.works(n) || w.defers(n) && w.unlocks(n)):
		w.goesOn(n)
		return state{}
	case isAssign && !w.reached[n], isAssign && slices.ContainsFunc(assign.Lhs, w.isHold):
		return state{}
	case isAssign && slices.ContainsFunc(assign.Lhs, w.isErr):
		s.knows = without
	}
	if w.mentions(n, w.err) && !w.isCondition(n) && !w.isNote(n) && !w.isDeferred(n) { // who is given the error may end the process
		return state{}
	}
	if w.assignsCtx(n) {
		return state{}
	}
	return s
}

func (w *walker) isDeferred(n ast.Node) bool {
	_, ok := n.(*ast.DeferStmt)
	return ok
}

// afterEnd follows a way on which the hold is unlocked: its context has ended.
func (w *walker) afterEnd(s state, n ast.Node) state {
	if s.unlocked == 0 || w.isNested() {
		return state{}
	}
	if n == w.a.stmt {
		if w.isOf(w.a.ctx) {
			w.reportEnded(w.a, types.ExprString(w.a.ctx), s)
		}
		return state{}
	}
	if assign, ok := n.(*ast.AssignStmt); ok && slices.ContainsFunc(assign.Lhs, w.isHold) {
		return state{}
	}
	w.eachWork(n, func(call *ast.CallExpr, ctx ast.Expr) { w.reportEnded(call, types.ExprString(ctx), s) })
	if w.assignsCtx(n) {
		return state{}
	}
	return s
}

func (w *walker) reportEnded(at ast.Node, ctx string, s state) {
	w.report(at, "%s has ended, by %s.Unlock in line %d: use the context that was there before the lock", ctx, w.hold.Name(), s.unlocked)
}

// isNested says whether another hold may be taken under the context of the lock, which then
// ends with that hold.
func (w *walker) isNested() bool {
	for _, stmt := range w.nested {
		if w.isOf(stmt.ctx) && stmt.stmt != w.a.stmt {
			return true
		}
	}
	return false
}

// checkReturned reports the context of a lock that is returned, although it has ended then.
func (w *walker) checkReturned(s state, ret *ast.ReturnStmt) {
	if !s.certain || !w.isKnown(s) {
		return
	}
	for _, result := range ret.Results {
		if w.ctx != nil && w.variable(result) == w.ctx {
			w.report(result, "%s ends before it is returned, by the deferred %s.Unlock", types.ExprString(result), w.hold.Name())
		}
	}
}

// checkShadowed reports work under the lock after the block that declared its context, under
// the variable of the same name that was there before.
func (w *walker) checkShadowed(s state, n ast.Node) {
	outer := w.checker.variable(w.a.ctx)
	if !s.deferred || !w.isKnown(s) || s.moved || w.ctx == nil || outer == nil || outer == w.ctx || outer.Name() != w.ctx.Name() ||
		w.ctx.Parent().Contains(n.Pos()) || w.isMoved(w.a.ctx) {
		return
	}
	w.eachCall(n, func(call *ast.CallExpr) {
		if w.isHarmless(call) {
			return
		}
		for _, arg := range call.Args {
			if w.variable(arg) == outer {
				w.report(call, "%s is not the context of %s.%s, which is another variable, of the block from line %d on",
					outer.Name(), types.ExprString(w.a.lock), w.a.method, w.line(w.ctx.Parent().Pos()).no)
			}
		}
	})
}

// works says whether a node works under the context of the lock, without a look at the error in
// the same expression, as in err != nil || work(held) != nil.
func (w *walker) works(n ast.Node) (works bool) {
	if w.find(n, func(n ast.Node) bool {
		e, ok := n.(*ast.BinaryExpr)
		return ok && (e.Op == token.LAND || e.Op == token.LOR) && w.mentions(e, w.err)
	}) {
		return false
	}
	w.eachWork(n, func(*ast.CallExpr, ast.Expr) { works = true })
	return works
}

// eachWork calls a function for each call in a node that is given the context of the lock.
func (w *walker) eachWork(n ast.Node, fn func(call *ast.CallExpr, ctx ast.Expr)) {
	if w.ctx == nil {
		return
	}
	w.eachCall(n, func(call *ast.CallExpr) {
		if w.isHarmless(call) {
			return
		}
		for _, arg := range call.Args {
			if w.isOf(arg) {
				fn(call, arg)
			}
		}
	})
}

// eachCall calls a function for each call in a node, but for those in functions that run at
// another time.
func (w *walker) eachCall(n ast.Node, fn func(*ast.CallExpr)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.DeferStmt:
			return false
		case *ast.CallExpr:
			fn(n)
		}
		return true
	})
}

// isOf says whether an expression is the context of the lock, or was made from it after the
// lock call, so that it ends with it.
func (w *walker) isOf(e ast.Expr) bool {
	v := w.variable(e)
	if v != nil && v == w.ctx {
		return true
	}
	call, _ := ast.Unparen(e).(*ast.CallExpr)
	if v != nil {
		call, _ = w.defs.only(v)
	}
	if call == nil || v != nil && call.Pos() < w.a.End() || len(call.Args) == 0 {
		return false
	}
	name := w.calledIn(call, "context")
	return strings.HasPrefix(name, "With") && name != "WithoutCancel" && w.isOf(call.Args[0])
}

// assignsCtx says whether the variable of the context gets another value.
func (w *walker) assignsCtx(n ast.Node) bool {
	assign, ok := n.(*ast.AssignStmt)
	return ok && w.ctx != nil && slices.ContainsFunc(assign.Lhs, func(e ast.Expr) bool { return w.variable(e) == w.ctx })
}

// isHarmless says whether a call does no work under the context that it is given: it makes
// another context, unlocks a hold, or takes notes.
func (w *walker) isHarmless(call *ast.CallExpr) bool {
	fn := w.callee(call)
	i := strings.LastIndexByte(fn, '.') + 1
	path, name := strings.TrimSuffix(fn[:i], "."), fn[i:]
	switch path {
	case "context":
		return true
	case library:
		return methods[name] == 0
	}
	for _, part := range strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '.' || r == '-' }) {
		switch part {
		case "log", "slog", "zap", "zerolog", "logrus", "logger", "logging", "otel", "trace", "tracing", "metric", "metrics", "pprof":
			return true
		}
	}
	name = strings.ToLower(name)
	for _, verb := range []string{"log", "debug", "info", "warn", "error", "trace", "print", "count", "record", "observe"} {
		if strings.HasPrefix(name, verb) {
			return true
		}
	}
	return strings.HasSuffix(name, "fromcontext")
}

// isNote says whether a node only writes something down, in a log or a response.
func (w *walker) isNote(n ast.Node) bool {
	stmt, ok := n.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := ast.Unparen(stmt.X).(*ast.CallExpr)
	if !ok {
		return false
	}
	switch fn := w.callee(call); {
	case strings.HasPrefix(fn, "log/slog."), fn == "net/http.Error":
		return true
	case strings.HasPrefix(fn, "log.Print"), strings.HasPrefix(fn, "fmt.Print"), strings.HasPrefix(fn, "fmt.Fprint"):
		return true
	}
	return false
}
