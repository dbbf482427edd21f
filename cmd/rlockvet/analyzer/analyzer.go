// Package analyzer finds mistakes around locks of package rlock. [Analyzer] can be part
// of any driver of go/analysis; the command rlockvet is one.
//
// # The outer context
//
//	held, hold, err := mu.Lock(ctx)
//	...
//	err = mu.Do(ctx, work)    // the same lock: waits for itself
//	err = other.Do(ctx, work) // not ended by the loss of mu
//
// Found between a lock call and the Unlock, and in a function literal passed to Do,
// DoFor, TryDo, Guard or GuardDo: a lock call under the context that was there before,
// a copy of it, or one made from it by package context or errgroup; of the same lock, under
// context.Background and rlock.Detach too. Two expressions are the same lock if they name
// the same variable or field, or are the same constructor call.
//
// # The dropped context
//
//	_, hold, err := mu.Lock(ctx)
//	err = mu.Do(ctx, func(context.Context) error { return work(ctx) })
//
// Not if ctx owns the lock already: it ends with it.
//
// # The missing Unlock
//
//	ctx, _, err := mu.Lock(ctx)
//
// and each way from a lock call to a return, to the next lock call of a loop, or to one
// that overwrites the hold, on which the hold is not used but for a comparison, or to
// ask for its token, owner, time or proof. A hold that is passed on, stored or captured is
// somebody else's to unlock, and a lock [WithoutRenewal] may be left to its lease.
//
// # Going on without the lock
//
//	ctx, hold, _ := mu.TryLock(ctx)
//	if err != nil { log.Print(err) }
//	if errors.Is(err, rlock.ErrNotAcquired) { return nil } // Redis may also be away
//
// each with work after it that is done with the lock as well: a call that is given the
// context of the lock, or a deferred Unlock. A way out that only such a failure takes may
// work without the lock. So may one on which a variable gets a value, which may tell that way from the
// others later.
//
// # The ended context
//
//	err = hold.Unlock(ctx)
//	...
//	err = notify(ctx)         // ctx was returned by Lock, and has ended
//
// A call that is given the context of a lock after the Unlock, or one made from it; the next
// call of Lock in a loop; and a return of it, with a deferred Unlock. Calls that do not mind
// are left out: of package context, and of functions that log, measure or trace by their name
// or package.
//
// # The context of a branch
//
//	if exclusive {
//		ctx, hold, err := mu.Lock(ctx) // of this block only
//		...
//		defer ...                      // unlocks when the function ends
//	}
//	err = work(ctx)                    // the context that was there before
//
// # The dropped error of Unlock
//
//	defer hold.Unlock(ctx)
//
// and a deferred function literal with such a line. Only the error tells that the lock was lost
// meanwhile. An assignment to _ says that it is dropped on purpose. A nested hold is lost with
// the outer one, so its error may be dropped.
//
// # Join
//
// Lock.Join is a lock call like Lock: its context has to be used, and its hold unlocked,
// which ends the requests that ask whether the lock is still held. Only a Join of a lock
// that is held already may be under any context: it waits for nobody.
//
// # What is not found
//
// What happens in a called function; function values; a context in a variable that a function
// literal assigns which captures it, or that comes from what has another value since the lock
// call; goroutines, which may lock under the outer context, to wait for those who hold it;
// locks behind interfaces and wrappers of one's own; errors in fields, or that are looked at
// in other ways than comparison with nil, errors.Is, and NoError of package require.
// A context of a branch whose Unlock is not deferred there, but stored in a function.
//
// Of tests only a call that waits for its own caller is reported: they drop what they
// expect to be refused, and leave locks to their end.
//
// # What is reported wrongly
//
// A Lock in one "if exclusive" and its Unlock in another one: the ways on which a condition
// has two outcomes are followed, unless it is one on the error or the hold. The second one
// can be "if hold != nil". A lock without which the work may be done as well, as it only saves
// work: a comment says so, see the command.
//
// [WithoutRenewal]: https://pkg.go.dev/github.com/go-rlock/rlock/rlock#WithoutRenewal
package analyzer

import (
	"bytes"
	"go/ast"
	"go/token"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// Analyzer finds the mistakes that the package describes.
var Analyzer = &analysis.Analyzer{
	Name: "rlock",
	Doc: `find mistakes around locks of package rlock

It reports lock calls under a context that does not own the lock which is held there,
dropped contexts of locks, missing calls of Unlock and dropped errors of it, work that goes
on without the lock, and work under a context that has ended or is not that of the lock.`,
	URL:      "https://pkg.go.dev/github.com/go-rlock/rlock/cmd/rlockvet/analyzer",
	Requires: []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer},
	Run:      run,
}

// library is the package whose locks are looked at.
const library = "github.com/go-rlock/rlock/rlock"

func run(pass *analysis.Pass) (any, error) {
	inspected := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	c := &checker{
		Pass:    pass,
		defs:    definitions(pass),
		owners:  make(map[string]*ast.CallExpr),
		ignored: ignored(pass),
		told:    make(map[token.Pos]bool),
	}
	c.moved = c.movedNames()
	inspected.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) { c.noteOwner(n.(*ast.CallExpr)) })
	inspected.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) { c.checkSection(n.(*ast.CallExpr)) })
	inspected.Preorder([]ast.Node{(*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)}, c.checkFunc)
	return nil, nil
}

// checker has what is known of a package.
type checker struct {
	*analysis.Pass
	defs    defs
	moved   map[string]bool          // what function literals assign that did not declare it
	owners  map[string]*ast.CallExpr // the calls whose function literals have these contexts
	ignored map[line]bool
	told    map[token.Pos]bool
}

// report tells of a mistake, but in a test, which may well make it on purpose.
func (c *checker) report(at ast.Node, format string, args ...any) {
	if !strings.HasSuffix(c.line(at.Pos()).file, "_test.go") {
		c.reportAnywhere(at, format, args...)
	}
}

// reportAnywhere tells of a mistake, once.
func (c *checker) reportAnywhere(at ast.Node, format string, args ...any) {
	if c.told[at.Pos()] || c.ignored[c.line(at.Pos())] {
		return
	}
	c.told[at.Pos()] = true
	c.ReportRangef(at, format, args...)
}

// line is one of a file.
type line struct {
	file string
	no   int
}

func (c *checker) line(pos token.Pos) line {
	p := c.Fset.Position(pos)
	return line{p.Filename, p.Line}
}

// ignored returns the lines of which nothing is to be told: those with a comment
// //rlockvet:ignore and a reason, and the one after a comment that has its line for
// itself.
func ignored(pass *analysis.Pass) map[line]bool {
	lines := make(map[line]bool)
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if why, ok := strings.CutPrefix(comment.Text, "//rlockvet:ignore "); !ok || strings.TrimSpace(why) == "" {
					continue
				}
				p := pass.Fset.Position(comment.Pos())
				if alone(pass, p) {
					p.Line++
				}
				lines[line{p.Filename, p.Line}] = true
			}
		}
	}
	return lines
}

// alone says whether nothing but space is before a position in its line.
func alone(pass *analysis.Pass, p token.Position) bool {
	text, err := pass.ReadFile(p.Filename)
	if err != nil || p.Offset > len(text) {
		return false
	}
	before := text[:p.Offset]
	return len(bytes.TrimSpace(before[bytes.LastIndexByte(before, '\n')+1:])) == 0
}
