package api

import (
	"encoding/json"
	"flag"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	// So that go test does not take the result of a time before they changed.
	_ "github.com/go-rlock/rlock/bench"
	_ "github.com/go-rlock/rlock/election"
	_ "github.com/go-rlock/rlock/idempotency"
	_ "github.com/go-rlock/rlock/jobs"
	_ "github.com/go-rlock/rlock/lua"
	_ "github.com/go-rlock/rlock/once"
	_ "github.com/go-rlock/rlock/pubsub"
	_ "github.com/go-rlock/rlock/rlock"
	_ "github.com/go-rlock/rlock/rlocktest"
	_ "github.com/go-rlock/rlock/watchdog"
)

var update = flag.Bool("update", false, "write api/*.txt")

const module = "github.com/go-rlock/rlock/"

var public = []string{"rlock", "watchdog", "pubsub", "lua", "election", "jobs", "once", "idempotency", "rlocktest", "bench"}

func TestAPI(t *testing.T) {
	compiled := exports(t)
	for _, name := range public {
		t.Run(name, func(t *testing.T) {
			pkg, err := compiled.Import(module + name)
			require.NoError(t, err)
			got := strings.Join(surface(pkg), "\n") + "\n"
			file := filepath.Join("..", "..", "api", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), got, "the exported API has changed: make api records it")
		})
	}
}

// exports imports what the go command has compiled of the packages and of all
// that they import.
func exports(t *testing.T) types.Importer {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export"}
	for _, name := range public {
		args = append(args, module+name)
	}
	cmd := exec.Command("go", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	files := make(map[string]string)
	for list := json.NewDecoder(strings.NewReader(string(out))); list.More(); {
		var pkg struct{ ImportPath, Export string }
		require.NoError(t, list.Decode(&pkg))
		files[pkg.ImportPath] = pkg.Export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(files[path])
	})
}

// A change of each sort is one of the surface.
func TestSurface(t *testing.T) {
	pkg := types.NewPackage("example.com/p", "p")
	named := types.NewNamed(types.NewTypeName(token.NoPos, pkg, "T", nil), types.NewStruct([]*types.Var{
		types.NewField(token.NoPos, pkg, "Shown", types.Typ[types.Int], false),
		types.NewField(token.NoPos, pkg, "hidden", types.Typ[types.Int], false),
	}, nil), nil)
	pkg.Scope().Insert(named.Obj())
	pkg.Scope().Insert(types.NewVar(token.NoPos, pkg, "V", named))
	pkg.Scope().Insert(types.NewVar(token.NoPos, pkg, "v", named))
	require.Equal(t, []string{"type T struct", "type T, field Shown int", "type T, with hidden fields", "var V T"}, surface(pkg))
}
