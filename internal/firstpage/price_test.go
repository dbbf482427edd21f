package firstpage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sample = `package sample

type number int

func (n number) odd() bool {
	// A comment, and an empty line.

	if n < 0 || n%2 == 0 {
		return false
	}
	return n > 0
}

func small(s string) bool {
	switch s {
	case "":
		return true
	default:
		return number(len(s)).odd()
	}
}
`

// sampleFunctions are those of the sample, as a package of the module.
func sampleFunctions(t *testing.T) []Function {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte(sample), 0o600))
	all, err := pkg{ImportPath: module + "/sample", Dir: dir, GoFiles: []string{"a.go"}}.functions()
	require.NoError(t, err)
	return all
}

func TestPrice(t *testing.T) {
	all := sampleFunctions(t)
	require.Equal(t, price{functions: 1, files: 1, packages: 1, lines: 6, branches: 2, types: 1}, priceOf(all[:1]))
	require.Equal(t, price{functions: 1, files: 1, packages: 1, lines: 8, branches: 1, types: 1}, priceOf(all[1:]))
	require.Equal(t, price{functions: 2, files: 1, packages: 1, lines: 14, branches: 3, types: 1}, priceOf(all))
}

func TestPassed(t *testing.T) {
	all := sampleFunctions(t)
	const mode, file = "mode: atomic\n", module + "/sample/a.go"
	for _, c := range []struct {
		what, profile string
		want          []Function
	}{
		{"nothing", "", nil},
		{"what was not run", file + ":5.28,8.24 1 0\n", nil},
		{"from its beginning", file + ":5.28,8.24 1 3\n", all[:1]},
		{"in its middle", file + ":16.10,17.14 1 1\n", all[1:]},
		{"both", file + ":5.28,8.24 1 1\n" + file + ":14.27,15.11 1 1\n", all},
		{"another file", module + "/sample/b.go:5.28,8.24 1 1\n", nil},
		{"before the body", file + ":5.1,5.2 1 1\n", nil},
		{"behind it", file + ":12.2,13.1 1 1\n", nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			met, err := passed(all, mode+c.profile)
			require.NoError(t, err)
			require.Equal(t, withoutUses(c.want), withoutUses(met))
		})
	}
	met, err := passed(all, mode+file+":16.10,17.14 1 1\n"+file+":18.10,19.30 1 0\n")
	require.NoError(t, err)
	require.Empty(t, met[0].uses, "of a part that was not run")
	met, err = passed(all, mode+file+":18.10,19.35 1 1\n")
	require.NoError(t, err)
	require.Equal(t, "number.odd", met[0].uses[0].name)
	_, err = passed(all, mode+"a.go:5\n")
	require.ErrorContains(t, err, "another form")
}

func withoutUses(functions []Function) (all []Function) {
	for _, f := range functions {
		f.uses = nil
		all = append(all, f)
	}
	return all
}

func TestWithoutTransport(t *testing.T) {
	lock, send, hear := Function{pkg: module + "/rlock"}, Function{pkg: module + "/internal/request"}, Function{pkg: module + "/pubsub"}
	require.Equal(t, []Function{lock}, withoutTransport([]Function{send, lock, hear}))
}

func TestReport(t *testing.T) {
	redistest.Long(t, "builds the library with coverage")
	addr := redistest.Start(t).Addr()
	var out strings.Builder
	require.NoError(t, Report(t.Context(), &out, addr))
	rows := make(map[string]string)
	for line := range strings.Lines(out.String()) {
		for _, call := range calls {
			if row, ok := strings.CutPrefix(strings.TrimSpace(line), call+" "); ok {
				rows[call] = row
			}
		}
	}
	require.Len(t, rows, len(calls), out.String())
	for call, row := range rows {
		require.Len(t, strings.Fields(row), 6, call)
		require.NotContains(t, " "+row, " 0", call)
	}
}

// A machine without a redis-server has one inside the process, which serves every call.
func TestServeWithoutRedis(t *testing.T) {
	redistest.Long(t, "builds the library with coverage")
	path := os.Getenv("PATH")
	t.Setenv("PATH", "")
	addr, stop, err := Serve(t.Context())
	require.NoError(t, err)
	defer stop()
	t.Setenv("PATH", path)
	met, err := Measure(t.Context(), addr)
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, Way(&out, met[Contended], "(*Lock).Lock", true))
	require.Contains(t, out.String(), "pubsub.")
}
