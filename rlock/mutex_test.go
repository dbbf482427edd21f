package rlock_test

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutexStep is what a function does to a mutex, or a call of another function.
type mutexStep struct {
	op   string // Lock, Unlock, call; return and join surround a branch that does not come back
	what string // the mutex, or the function, as it is written
}

// mutexSteps lists what a function does, in the order of its text. It leaves out an Unlock that is
// deferred, so that the mutex counts as held to the end, and function literals.
func mutexSteps(n ast.Node) (steps []mutexStep) {
	top := n
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.DeferStmt, *ast.FuncLit:
			return false
		case *ast.BlockStmt:
			if n != top && len(n.List) > 0 {
				if _, leaves := n.List[len(n.List)-1].(*ast.ReturnStmt); leaves {
					steps = append(append(append(steps, mutexStep{op: "return"}), mutexSteps(n)...), mutexStep{op: "join"})
					return false
				}
			}
		case *ast.CallExpr:
			for _, arg := range n.Args {
				steps = append(steps, mutexSteps(arg)...)
			}
			switch f := n.Fun.(type) {
			case *ast.Ident:
				steps = append(steps, mutexStep{"call", f.Name})
			case *ast.SelectorExpr:
				if on := types.ExprString(f.X); (f.Sel.Name == "Lock" || f.Sel.Name == "Unlock") && strings.HasSuffix(on, ".mu") {
					steps = append(steps, mutexStep{f.Sel.Name, on})
				} else {
					steps = append(append(steps, mutexSteps(f.X)...), mutexStep{"call", on + "." + f.Sel.Name})
				}
			}
			return false
		}
		return true
	})
	return steps
}

// ofQueues reports whether an expression is the mutex of the queues.
func ofQueues(mu string) bool { return mu == "qs.mu" || strings.HasSuffix(mu, "queues.mu") }

// The order of the mutexes is: queues.mu, grant.mu, that of the watchdog. No function that locks the
// first is called while one of the two is held, and no function unlocks the mutex of its caller. The
// test follows the calls within this package that it can tell by their text: of a receiver that has
// its usual name, or of a name that only one function has.
func TestMutexOrder(t *testing.T) {
	functions, named := make(map[string][]mutexStep), make(map[string][]string)
	for _, file := range sources(t, "rlock") {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				name := f.Name.Name
				if f.Recv != nil && len(f.Recv.List[0].Names) > 0 {
					name = f.Recv.List[0].Names[0].Name + "." + name
				}
				functions[name] = append(functions[name], mutexSteps(f.Body)...)
				named[f.Name.Name] = append(named[f.Name.Name], name)
			}
		}
	}
	for _, steps := range functions {
		for i, s := range steps {
			if s.op != "call" {
				continue
			}
			parts := strings.Split(s.what, ".")
			bare := parts[len(parts)-1]
			for field, usual := range map[string]string{"queues": "qs", "queue": "q", "lock": "l", "grant": "g"} {
				if len(parts) > 1 && parts[len(parts)-2] == field {
					steps[i].what = usual + "." + bare
				}
			}
			if len(parts) > 1 && functions[steps[i].what] == nil && len(named[bare]) == 1 && !ast.IsExported(bare) {
				steps[i].what = named[bare][0]
			}
		}
	}
	locks := make(map[string]string) // the functions that lock queues.mu, and by which call
	for known := -1; known != len(locks); {
		known = len(locks)
		for name, steps := range functions {
			for _, s := range steps {
				if by, calls := locks[s.what]; locks[name] == "" && (s.op == "Lock" && ofQueues(s.what) || s.op == "call" && calls) {
					locks[name] = s.what + " " + by
				}
			}
		}
	}
	require.Contains(t, locks, "g.check", "by lose and ended")
	under := make(map[string]bool) // functions that are called while one of the two is held
	for known := -1; known != len(under); {
		known = len(under)
		for name, steps := range functions {
			var held, before []string
			if under[name] {
				held = []string{"that of its caller"}
			}
			for i, s := range steps {
				switch s.op {
				case "return":
					before = slices.Clone(held)
				case "join":
					held = before
				case "Lock":
					held = append(held, s.what)
				case "Unlock":
					if !slices.Contains(held, s.what) && !slices.Contains(steps[:i], mutexStep{"Lock", s.what}) {
						t.Errorf("%s unlocks %s, which its caller has locked", name, s.what)
					}
					held = slices.DeleteFunc(held, func(mu string) bool { return mu == s.what })
				case "call":
					if len(held) == 0 {
						continue
					}
					under[s.what] = true
					if by, locked := locks[s.what]; locked {
						t.Errorf("%s calls %s, which locks queues.mu (by %s), and holds %v", name, s.what, by, held)
					}
				}
			}
		}
	}
}
