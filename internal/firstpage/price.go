package firstpage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/go-rlock/rlock"

// pkg is a package of the module, as go list prints it.
type pkg struct {
	ImportPath, Dir, Export string
	GoFiles                 []string

	exports map[string]string // of all packages, by import path
}

// Function is one with a body.
type Function struct {
	Name string // as in Lock or (*Lock).Lock
	Doc  string // the first sentence of what is said of it
	Line int

	pkg, file  string
	start, end position // of the body
	lines      int      // without comments, and those that are empty
	branches   int
	types      []string    // of the module
	uses       []reference // of functions of the module, in the order of the source
}

// Place is where the function is, from the root of the repository.
func (f Function) Place() string {
	return strings.TrimPrefix(f.file, module+"/") + ":" + strconv.Itoa(f.Line)
}

// reference is where a function is called, or named as a value.
type reference struct {
	at        position
	pkg, name string // of a method of an interface the name is that of the method, and pkg is empty
}

// position is a line and a column.
type position struct{ line, column int }

func (p position) before(other position) bool {
	return p.line < other.line || p.line == other.line && p.column < other.column
}

// load finds the packages of the module that a package needs, and itself.
func load(ctx context.Context, root string) (all []pkg, err error) {
	out, err := command(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", root).Output()
	if err != nil {
		return nil, fmt.Errorf("list packages, from the root of the repository: %w", err)
	}
	exports := make(map[string]string)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := pkg{exports: exports}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if ofModule(p.ImportPath) {
			all = append(all, p)
		}
	}
}

func ofModule(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// functions reads the package.
func (p pkg) functions() (all []Function, err error) {
	fset := token.NewFileSet()
	var files []*ast.File
	texts := make(map[*ast.File][]string)
	for _, name := range p.GoFiles {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		texts[file] = strings.Split(string(text), "\n")
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(p.exports[path]) })}
	if _, err := config.Check(p.ImportPath, fset, files, info); err != nil {
		return nil, err
	}
	at := func(pos token.Pos) position { return position{fset.Position(pos).Line, fset.Position(pos).Column} }
	for _, file := range files {
		for _, d := range file.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || d.Body == nil {
				continue
			}
			f := Function{Doc: new(doc.Package).Synopsis(d.Doc.Text()), Line: at(d.Name.Pos()).line, pkg: p.ImportPath, file: path.Join(p.ImportPath, fset.Position(d.Pos()).Filename), start: at(d.Body.Lbrace), end: at(d.End())}
			if fn, ok := info.Defs[d.Name].(*types.Func); ok {
				_, f.Name = nameOf(fn)
			}
			for _, line := range texts[file][at(d.Pos()).line-1 : f.end.line] {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
					f.lines++
				}
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if branches(n) {
					f.branches++
				}
				if id, ok := n.(*ast.Ident); ok {
					if t, ok := info.Uses[id].(*types.TypeName); ok && t.Pkg() != nil && ofModule(t.Pkg().Path()) {
						f.types = append(f.types, t.Pkg().Path()+"."+t.Name())
					}
					if fn, ok := info.Uses[id].(*types.Func); ok && fn.Pkg() != nil && ofModule(fn.Pkg().Path()) {
						pkg, name := nameOf(fn)
						f.uses = append(f.uses, reference{at(id.Pos()), pkg, name})
					}
				}
				return true
			})
			all = append(all, f)
		}
	}
	return all, nil
}

// nameOf returns the package and the name of a function, as a reference has them.
func nameOf(fn *types.Func) (pkg, name string) {
	recv := fn.Signature().Recv()
	if recv == nil {
		return fn.Pkg().Path(), fn.Name()
	}
	if types.IsInterface(recv.Type()) {
		return "", fn.Name()
	}
	t, form := recv.Type(), "%s.%s"
	if p, ok := t.(*types.Pointer); ok {
		t, form = p.Elem(), "(*%s).%s"
	}
	if n, ok := t.(*types.Named); ok {
		return fn.Pkg().Path(), fmt.Sprintf(form, n.Obj().Name(), fn.Name())
	}
	return fn.Pkg().Path(), fn.Name()
}

// branches tells whether there are two ways from a node.
func branches(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
		return true
	case *ast.CaseClause:
		return n.List != nil
	case *ast.CommClause:
		return n.Comm != nil
	case *ast.BinaryExpr:
		return n.Op == token.LAND || n.Op == token.LOR
	}
	return false
}

// block is a part of a file that is run as a whole.
type block struct{ start, end position }

func (b block) has(p position) bool { return !p.before(b.start) && p.before(b.end) }

// passed returns the functions of which a part was run, with the uses in such parts, by a profile: lines such as
// "example.org/m/a/a.go:12.30,14.2 3 1", the last number of which says how often.
func passed(functions []Function, profile string) (met []Function, err error) {
	run := make(map[string][]block)
	for line := range strings.Lines(profile) {
		if strings.HasPrefix(line, "mode:") {
			continue
		}
		file, rest, _ := strings.Cut(line, ":")
		var start, end position
		var statements, times int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &start.line, &start.column, &end.line, &end.column, &statements, &times); err != nil {
			return nil, fmt.Errorf("a line of the coverage, %q, has another form than go tool covdata had when this was written: %w", line, err)
		}
		if times > 0 {
			run[file] = append(run[file], block{start, end})
		}
	}
	for _, f := range functions {
		if slices.ContainsFunc(run[f.file], func(b block) bool { return block{f.start, f.end}.has(b.start) }) {
			f.uses = slices.DeleteFunc(slices.Clone(f.uses), func(r reference) bool {
				return !slices.ContainsFunc(run[f.file], func(b block) bool { return b.has(r.at) })
			})
			met = append(met, f)
		}
	}
	return met, nil
}

func (f Function) transport() bool {
	return f.pkg == module+"/internal/request" || f.pkg == module+"/pubsub"
}

// withoutTransport leaves out how requests and messages travel: for other locks, that is a library.
func withoutTransport(functions []Function) (rest []Function) {
	for _, f := range functions {
		if !f.transport() {
			rest = append(rest, f)
		}
	}
	return rest
}

// price is what several functions have together.
type price struct{ functions, files, packages, lines, branches, types int }

func priceOf(functions []Function) price {
	p := price{functions: len(functions)}
	files, packages, names := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for _, f := range functions {
		files[f.file], packages[f.pkg] = true, true
		p.lines += f.lines
		p.branches += f.branches
		for _, name := range f.types {
			names[name] = true
		}
	}
	p.files, p.packages, p.types = len(files), len(packages), len(names)
	return p
}

func (p price) String() string {
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d", p.functions, p.files, p.packages, p.lines, p.branches, p.types)
}
