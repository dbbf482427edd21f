package rlock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/go-rlock/rlock"

// library are the packages that end up in a user's program.
var library = []string{"rlock", "lua", "pubsub", "watchdog", "election", "internal/companion", "internal/janitor", "internal/kind", "internal/reach", "internal/record", "internal/report", "internal/request"}

// golist runs go list in the module's root and returns the lines it prints.
func golist(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = ".."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return strings.Fields(string(out))
}

// deps returns what the packages compile in, less the standard library.
func deps(t *testing.T, packages ...string) []string {
	t.Helper()
	return golist(t, append([]string{"-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, packages...)...)
}

// inModule returns the import paths of packages.
func inModule(packages ...string) []string {
	for i := range packages {
		packages[i] = module + "/" + packages[i]
	}
	return packages
}

// The arrows go one way: rlock, then kinds and the janitor, then requests, then scripts. The
// queue in memory knows neither Redis nor a lock.
func TestDependencies(t *testing.T) {
	t.Parallel()
	goRedis := deps(t, "github.com/redis/go-redis/v9")
	for name, allowed := range map[string][]string{
		"watchdog": nil,
		"lua":      goRedis,
		"pubsub":   slices.Concat(goRedis, inModule("internal/request")),
		"rlock": slices.Concat(goRedis, deps(t, "github.com/rs/xid"), inModule(
			"internal/janitor", "internal/kind", "internal/reach", "internal/record", "internal/report", "internal/request", "lua", "pubsub", "watchdog",
		)),
		// What stands on the lock compiles nothing but the library.
		"internal/companion": slices.Concat(goRedis, deps(t, "./rlock")),
		"election":           slices.Concat(goRedis, deps(t, "./rlock"), inModule("internal/companion")),

		"internal/request": goRedis,
		"internal/janitor": slices.Concat(goRedis, inModule("internal/request")),
		"internal/kind":    slices.Concat(goRedis, inModule("internal/request", "lua", "pubsub")),
		"internal/reach":   slices.Concat(goRedis, inModule("internal/request", "lua", "pubsub")),
		"internal/record":  nil,
		"internal/report":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			allowed := append(allowed, module+"/"+name)
			for _, dep := range deps(t, "./"+name) {
				require.Contains(t, allowed, dep)
			}
		})
	}
}

// No program contains what is there for tests.
func TestTestPackagesInTestsOnly(t *testing.T) {
	importers := golist(t, "-f", `{{$p := .ImportPath}}{{range .Imports}}{{$p}}>{{.}}{{"\n"}}{{end}}`, "./...")
	require.Contains(t, importers, module+"/rlock>"+module+"/lua", "the list is what it should be")
	forTests := inModule("internal/redistest", "internal/netfault", "internal/verify")
	for _, line := range importers {
		importer, imported, _ := strings.Cut(line, ">")
		require.False(t, slices.Contains(forTests, imported) && !slices.Contains(forTests, importer),
			"%s is imported by %s", imported, importer)
	}
}

// sources are the parsed non-test files of a package, by base name.
func sources(t *testing.T, name string) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", name, "*.go"))
	require.NoError(t, err)
	files := make(map[string]*ast.File)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		files[filepath.Base(path)] = file
	}
	require.NotEmpty(t, files)
	return files
}

func imports(file *ast.File) (paths []string) {
	for _, spec := range file.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, `"`))
	}
	return paths
}

// Only the sources of pubsub know Redis, and lua has no clock and no goroutines.
func TestFileBorders(t *testing.T) {
	for name, file := range sources(t, "pubsub") {
		if !slices.Contains([]string{"redis.go", "sharded.go", "both.go"}, name) {
			require.NotContains(t, imports(file), "github.com/redis/go-redis/v9", name)
		}
	}
	for name, file := range sources(t, "lua") {
		for _, forbidden := range []string{"sync", "log/slog"} {
			require.NotContains(t, imports(file), forbidden, name)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("lua/%s starts a goroutine", name)
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				clock := []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "NewTimer", "NewTicker", "Tick"}
				if ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					t.Errorf("lua/%s looks at the clock: time.%s", name, n.Sel.Name)
				}
			}
			return true
		})
	}
}

// What callers set and read, and what is learned from the server, compiles without the rest of
// the package: it does not know what a lock is.
func TestFilesThatKnowNoLock(t *testing.T) {
	t.Parallel()
	build := exec.Command("go", "build", "-o", os.DevNull,
		"options.go", "sharded.go", "polling.go", "replicas.go", "identity.go", "errors.go", "trace.go", "outcome.go", "stats.go",
		"news.go", "moment.go")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
}

// What is at package level never changes: errors, embedded scripts and the
// calls made of them, assertions. Nothing runs before main. The exception is how package rlock lets other
// packages of this module reach the server of a lock.
func TestNoPackageState(t *testing.T) {
	for _, pkg := range library {
		for name, file := range sources(t, pkg) {
			if name := pkg + "/" + name; name == "rlock/script.go" || name == "internal/reach/reach.go" {
				continue
			}
			for _, decl := range file.Decls {
				switch decl := decl.(type) {
				case *ast.FuncDecl:
					if decl.Recv == nil && decl.Name.Name == "init" {
						t.Errorf("%s/%s has an init function", pkg, name)
					}
				case *ast.GenDecl:
					if decl.Tok != token.VAR {
						continue
					}
					for _, spec := range decl.Specs {
						spec := spec.(*ast.ValueSpec)
						if !constant(decl, spec) {
							t.Errorf("%s/%s: variable %s", pkg, name, spec.Names[0])
						}
					}
				}
			}
		}
	}
}

func constant(decl *ast.GenDecl, spec *ast.ValueSpec) bool {
	if spec.Names[0].Name == "_" {
		return true
	}
	if len(spec.Values) == 0 {
		return decl.Doc != nil && strings.HasPrefix(decl.Doc.List[len(decl.Doc.List)-1].Text, "//go:embed ")
	}
	for _, value := range spec.Values {
		call, ok := value.(*ast.CallExpr)
		if !ok {
			return false
		}
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			if fun.Name != "newScript" && fun.Name != "newJoint" {
				return false
			}
		case *ast.SelectorExpr:
			if x, ok := fun.X.(*ast.Ident); ok && fun.Sel.Name == "NewScript" && (x.Name == "companion" || x.Name == "rlock") {
				continue
			}
			if x, ok := fun.X.(*ast.Ident); !ok || x.Name != "errors" && x.Name != "fmt" || fun.Sel.Name != "New" && fun.Sel.Name != "Errorf" {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// A user of rlock meets no type of the packages below it.
func TestExportsOwnTypesOnly(t *testing.T) {
	foreign := func(where string, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && (slices.Contains(library, x.Name) || x.Name == "report") {
					t.Errorf("%s exports %s.%s", where, x.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
	for _, file := range sources(t, "rlock") {
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Name.IsExported() && (decl.Recv == nil || exportedReceiver(decl)) {
					foreign(decl.Name.Name, decl.Type)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					spec, ok := spec.(*ast.TypeSpec)
					if !ok || !spec.Name.IsExported() {
						continue
					}
					fields, ok := spec.Type.(*ast.StructType)
					if !ok {
						foreign(spec.Name.Name, spec.Type)
						continue
					}
					for _, field := range fields.Fields.List {
						if len(field.Names) == 0 || field.Names[0].IsExported() {
							foreign(spec.Name.Name, field.Type)
						}
					}
				}
			}
		}
	}
}

func exportedReceiver(decl *ast.FuncDecl) bool {
	typ := decl.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	name, ok := typ.(*ast.Ident)
	return ok && name.IsExported()
}

// TestImporter makes a program that imports the library, and lists the modules that
// it needs for that: what is there for tests, benchmarks and the command is not
// downloaded.
func TestImporter(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module example.com/importer\n\ngo 1.26.0\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n")
	write("main.go", "package main\n\nimport _ \""+module+"/rlock\"\n\nfunc main() {}\n")
	sums, err := os.ReadFile("../go.sum")
	require.NoError(t, err)
	write("go.sum", string(sums))
	run := func(args ...string) []string {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, stderr.String())
		return strings.Fields(string(out))
	}
	modules := make(map[string]bool)
	for _, name := range run("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".") {
		modules[name] = true
	}
	require.Equal(t, map[string]bool{
		"example.com/importer":         true,
		module:                         true,
		"github.com/redis/go-redis/v9": true,
		"github.com/rs/xid":            true,
		"github.com/cespare/xxhash/v2": true, // go-redis'
		"go.uber.org/atomic":           true, // go-redis'
		"golang.org/x/sys":             true, // go-redis'
	}, modules)
	// What go mod graph has for it: what the library requires of others for tests and
	// commands is named there, and not what those require in turn.
	graph := make(map[string][]string)
	edges := run("mod", "graph")
	for i := 0; i < len(edges); i += 2 {
		from, _, _ := strings.Cut(edges[i], "@")
		to, _, _ := strings.Cut(edges[i+1], "@")
		graph[from] = append(graph[from], to)
	}
	require.ElementsMatch(t, []string{
		"go", module, "github.com/redis/go-redis/v9", "github.com/rs/xid",
		"github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys",
	}, graph["example.com/importer"])
	require.ElementsMatch(t, []string{
		"go", "github.com/redis/go-redis/v9", "github.com/rs/xid",
		"github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys", // go-redis'
		"github.com/urfave/cli/v3",                                          // the command
		"github.com/mattn/go-runewidth", "github.com/clipperhouse/uax29/v2", // likewise
		"github.com/HdrHistogram/hdrhistogram-go",                        // bench
		"github.com/alicebob/miniredis/v2", "github.com/yuin/gopher-lua", // rlocktest and the demo
		"github.com/stretchr/testify", "go.yaml.in/yaml/v3", "go.uber.org/goleak", "github.com/anishathalye/porcupine", "pgregory.net/rapid", // tests
	}, graph[module])
	require.Subset(t, []string{"example.com/importer", module, "github.com/redis/go-redis/v9", "go.uber.org/atomic", "golang.org/x/sys", "go"}, slices.Collect(maps.Keys(graph)))

	// What the go command writes down for such a program.
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	for line := range strings.Lines(string(mod)) {
		if name, indirect := strings.CutSuffix(strings.TrimSpace(line), " // indirect"); indirect {
			name, _, _ = strings.Cut(strings.TrimPrefix(name, "require "), " ")
			require.Contains(t, modules, name)
		}
	}
}
