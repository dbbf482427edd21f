package mutation

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every mistake in Go compiles. The run that makes them all says so as well, but takes
// too long to be made after each change of the code that they quote.
func TestMutationsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles what the library imports: make test-all")
	}
	c := newCompiler(t)
	for _, m := range mutations {
		if !m.inScript() {
			t.Run(m.name, func(t *testing.T) { require.NoError(t, c.check(t, m)) })
		}
	}
}

// compiler checks the types of packages of which one file is another.
type compiler struct {
	fset     *token.FileSet
	packages map[string]*listed // by directory, relative to the root
	types    types.Config
}

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string

	parsed map[string]*ast.File // by path
}

// newCompiler has go list compile what the packages import.
func newCompiler(t *testing.T) *compiler {
	c := &compiler{fset: token.NewFileSet(), packages: make(map[string]*listed)}
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}
	for _, m := range mutations {
		if !m.inScript() && c.packages[m.dir] == nil {
			c.packages[m.dir] = new(listed)
			args = append(args, "./"+m.dir)
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	exports := make(map[string]string)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(listed)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		exports[p.ImportPath] = p.Export
		for dir := range c.packages {
			if abs, err := filepath.Abs(filepath.Join(root, dir)); err == nil && abs == p.Dir {
				c.packages[dir] = p
			}
		}
	}
	c.types.Importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c
}

// check compiles the package with the mistake.
func (c *compiler) check(t *testing.T, m mutation) error {
	p := c.packages[m.dir]
	if p.parsed == nil {
		p.parsed = make(map[string]*ast.File)
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			p.parsed[name] = file
		}
	}
	path, text := m.mutated(t)
	var files []*ast.File
	for name, file := range p.parsed {
		if name == filepath.Base(path) {
			var err error
			if file, err = parser.ParseFile(c.fset, path, text, parser.SkipObjectResolution); err != nil {
				return err
			}
		}
		files = append(files, file)
	}
	_, err := c.types.Check(p.ImportPath, c.fset, files, nil)
	return err
}
