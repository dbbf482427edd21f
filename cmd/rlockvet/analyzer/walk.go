package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/cfg"
)

// knowledge is what a path knows of a lock call.
type knowledge int

const (
	fresh   knowledge = iota // its error was not looked at
	doubt                    // it was, and what it said is not known
	blind                    // nor can it be known any more
	sure                     // the lock is held, and the error is nil
	reused                   // the lock is held, and the variable has another error
	over                     // the lock is not held, or nothing more is to be found
	refused                  // the lock call has failed, which its error says
	without                  // it has failed, and the variable has another error
	ended                    // the hold is unlocked, and the context of the lock has ended
)

// state is where a path is, and what it knows.
type state struct {
	block    *cfg.Block
	knows    knowledge
	deferred bool // the hold is unlocked in the end
	certain  bool // ... on all ways
	moved    bool // the outer context, or what it comes from, has another value
	unlocked int  // the line of the Unlock, of a hold that is unlocked
}

// walker follows the paths on which a lock is held.
type walker struct {
	*checker
	a         *acquisition
	hold, err *types.Var
	ctx       *types.Var      // of the lock, nil if it is not in a variable of its own
	outer     map[string]bool // the names of what the outer context comes from
	held      section
	seen      map[state]bool
	leaked    bool
	reached   map[ast.Node]bool // with the lock, as far as is known
	failed    []state           // where ways begin on which the lock call has failed
	nested    []*acquisition    // the lock calls of the function
}

// walk follows all ways from a lock call, whose hold may be unlocked in the end by what was
// deferred before.
func (c *checker) walk(fn ast.Node, a *acquisition, all []*acquisition, hold *types.Var, deferred bool) {
	w := &walker{
		checker: c, a: a, hold: hold, err: c.variable(a.err), outer: c.parts(c.origin(a.ctx)),
		held: section{lock: a.lock, outer: a.ctx, inside: "the context that Lock returned"},
		seen: make(map[state]bool), reached: make(map[ast.Node]bool), nested: all,
	}
	if a.held != nil && !isBlank(a.held) && !c.isMoved(a.held) {
		w.ctx = c.variable(a.held)
	}
	s := state{knows: fresh, deferred: deferred}
	switch {
	case isBlank(a.err):
		s.knows = sure
	case w.err == nil: // it is in a field, of which nothing is known
		s.knows = blind
	}
	if isBlank(a.held) {
		w.held.inside = "the context that " + a.method + " returns"
	} else {
		w.held.inside = types.ExprString(a.held)
	}
	name, _ := c.sameLock(a.lock)
	if c.root(a.held) == c.root(a.ctx) || c.owns(a.ctx, name) {
		w.held.outer = nil
	}
	for _, b := range c.graph(fn).Blocks {
		for i, n := range b.Nodes {
			if n == a.stmt {
				s.block = b
				w.follow(s, b.Nodes[i+1:])
				for _, s := range w.failed { // after all others, so that it is known what they share
					w.follow(s, s.block.Nodes)
				}
				return
			}
		}
	}
}

// follow goes on through the rest of a block, and what comes after it.
func (w *walker) follow(s state, nodes []ast.Node) {
	for _, n := range nodes {
		if s = w.node(s, n); s.block == nil {
			return
		}
	}
	if ret := s.block.Return(); ret != nil {
		w.checkReturned(s, ret)
		w.leak(s, ret)
		return
	}
	var cond ast.Expr
	if len(nodes) > 0 && len(s.block.Succs) == 2 {
		if last := nodes[len(nodes)-1]; w.isCondition(last) {
			cond = last.(ast.Expr)
		}
	}
	for i, next := range s.block.Succs {
		to := s
		if cond != nil {
			to.knows = w.branch(s.knows, cond, i == 0)
		}
		to.block = next
		if to.knows == over || w.seen[to] {
			continue
		}
		w.seen[to] = true
		if to.knows == refused && s.knows != refused {
			w.failed = append(w.failed, to)
			continue
		}
		w.follow(to, next.Nodes)
	}
}

// node returns what a path knows after a node; no block if it ends there.
func (w *walker) node(s state, n ast.Node) state {
	switch s.knows {
	case refused, without:
		return w.unguarded(s, n)
	case ended:
		return w.afterEnd(s, n)
	}
	if n == w.a.stmt { // in a loop
		w.leak(s, n)
		return state{}
	}
	w.reached[n] = true
	if s.knows == fresh && w.works(n) {
		w.goesOn(n)
	}
	w.checkShadowed(s, n)
	if w.isKnown(s) && !s.moved && !w.ends(n) {
		w.checkCalls(n, w.held)
	}
	switch {
	case w.defers(n):
		s.deferred, s.certain = true, s.certain || w.unlocks(n)
	case w.ends(n):
		if !w.unlocks(n) || w.ctx == nil {
			return state{}
		}
		s.knows, s.unlocked = ended, w.line(n.Pos()).no
		return s
	}
	return w.passed(s, n)
}

// passed returns what a path knows after a node that does not end it.
func (w *walker) passed(s state, n ast.Node) state {
	assign, ok := n.(*ast.AssignStmt)
	switch {
	case !ok:
		s.knows = w.looked(s.knows, n)
		return s
	case slices.ContainsFunc(assign.Lhs, w.isHold):
		if call, ok := ast.Unparen(assign.Rhs[0]).(*ast.CallExpr); ok && w.lockCall(call) != nil {
			w.leak(s, n)
		}
		return state{}
	}
	looks := slices.ContainsFunc(assign.Rhs, func(e ast.Expr) bool { return w.mentions(e, w.err) })
	switch {
	case slices.ContainsFunc(assign.Lhs, w.isErr):
		s.knows = w.reassigned(s.knows, looks)
	case looks:
		s.knows = w.doubted(s.knows, assign)
	}
	s.moved = s.moved || slices.ContainsFunc(assign.Lhs, func(e ast.Expr) bool { return w.outer[w.same(e)] })
	return s
}

// reassigned returns what is known when the variable of the error has another one, which may
// be made of the one before.
func (w *walker) reassigned(k knowledge, looks bool) knowledge {
	switch {
	case k == fresh && !looks: // as nobody looked, nobody left
		return reused
	case k == fresh, k == doubt:
		return blind
	case k == sure:
		return reused
	}
	return k
}

// looked returns what is known after a node that may look at the error.
func (w *walker) looked(k knowledge, n ast.Node) knowledge {
	if w.isCondition(n) || !w.mentions(n, w.err) || w.isNote(n) {
		return k
	}
	switch n := n.(type) {
	case *ast.ReturnStmt, *ast.DeferStmt: // what is deferred does not look yet
		return k
	case *ast.ExprStmt:
		call, ok := n.X.(*ast.CallExpr)
		if ok && w.asks(k) && strings.HasSuffix(w.callee(call), "/require.NoError") {
			return sure
		}
	}
	return w.doubted(k, n)
}

// doubted returns what is known after a look at the error that is not understood: a way that
// depends on it need not exist, even if the error is known. Who captures the variable may
// also assign it.
func (w *walker) doubted(k knowledge, n ast.Node) knowledge {
	switch {
	case k == sure && w.find(n, func(n ast.Node) bool { return w.captures(n, w.err) }):
		return reused
	case k == sure, k == fresh:
		return doubt
	}
	return k
}

// isKnown says whether the lock may be held, for all that was looked at.
func (w *walker) isKnown(s state) bool {
	return s.knows == fresh || s.knows == sure || s.knows == reused
}

// isCondition says whether a node is a condition, of which branch tells.
func (w *walker) isCondition(n ast.Node) bool {
	cond, ok := n.(ast.Expr)
	if !ok {
		return false
	}
	t := w.TypesInfo.TypeOf(cond)
	if t == nil { // the blank variable of a loop has no type
		return false
	}
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsBoolean != 0
}

// leak reports that a path ends without Unlock.
func (w *walker) leak(s state, at ast.Node) {
	if s.deferred || !w.isKnown(s) || w.leaked || w.leased(w.a.lock) {
		return
	}
	w.leaked = true
	name, lock, no := w.hold.Name(), types.ExprString(w.a.lock), w.Fset.Position(at.Pos()).Line
	switch at.(type) {
	case *ast.ReturnStmt:
		w.report(w.a, "%s of %s.%s is not unlocked before the return in line %d", name, lock, w.a.method, no)
	default:
		w.report(w.a, "%s of %s.%s is not unlocked before it is overwritten in line %d", name, lock, w.a.method, no)
	}
}

// defers says whether a node unlocks the hold when the function ends.
func (w *walker) defers(n ast.Node) bool {
	_, ok := n.(*ast.DeferStmt)
	return ok && w.mentions(n, w.hold)
}

// ends says whether a node uses the hold for more than a question, so that it may be
// unlocked there, or by somebody else.
func (w *walker) ends(n ast.Node) (ends bool) {
	if assign, ok := n.(*ast.AssignStmt); ok {
		for i, e := range assign.Rhs {
			forCompiler := w.isHold(e) && isBlank(assign.Lhs[i]) // _ = hold
			ends = ends || !forCompiler && w.ends(e)
		}
		return ends
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && w.isHold(id) && w.TypesInfo.Uses[id] != nil { // its declaration is no use
			ends = true
		}
		return !ends && !w.isQuestion(n)
	})
	return ends
}

// isQuestion says whether a node only asks about the hold.
func (w *walker) isQuestion(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return (n.Op == token.EQL || n.Op == token.NEQ) && (w.isHold(n.X) || w.isHold(n.Y))
	case *ast.SelectorExpr:
		return w.isHold(n.X) && slices.Contains([]string{"Token", "Owner", "Until", "Proof"}, n.Sel.Name)
	}
	return false
}

func (w *walker) isHold(e ast.Expr) bool { return w.variable(e) == w.hold }

func (w *walker) isErr(e ast.Expr) bool { return w.err != nil && w.variable(e) == w.err }
