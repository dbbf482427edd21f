package docs

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	goBlock    = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	importLine = regexp.MustCompile(`(?m)^import .*\n`)
	dots       = regexp.MustCompile(`(?m)^\s*\.\.\.$`)
)

// around is what the blocks of Go in the documents take for granted: declarations at the
// top level, by name. A block that declares one itself does without.
var around = map[string]string{
	"locks":     `var locks *rlock.Client`,
	"mu":        `var mu *rlock.Lock`,
	"e":         `var e *election.Election`,
	"schedule":  `func schedule(ctx context.Context) error { panic(0) }`,
	"forwardTo": `func forwardTo(addr string) { panic(0) }`,
	"job":       `var job *jobs.Job`,
	"report":    `func report(ctx context.Context, from, to time.Time) error { panic(0) }`,
	"rdb":       `var rdb *redis.Client`,
	"a":         `var a, b, c *rlock.Client`,
	"Order":     `type Order struct{ ID string }`,
	"order":     `var order Order`,
	"orders":    `var orders []Order`,
	"ship":      `func ship(context.Context, Order) error { panic(0) }`,
	"work":      `func work(context.Context) error { panic(0) }`,
	"book":      `var book, show, check, transfer, post = work, work, work, work, work`,
	"db":        `var db *sql.DB`,
	"body":      `var body io.Reader`,
	"send":      `func send(*http.Request) error { panic(0) }`,
	"w":         `var w http.ResponseWriter`,
	"r":         `var r *http.Request`,
	"Label":     `type Label struct{}`,
	"warehouse": `var warehouse interface{ Ship(context.Context, Order) (Label, error) }`,
	"fetch":     `func fetch(ctx context.Context, currency string) ([]byte, error) { panic(0) }`,
	"pay":       `var pay http.Handler`,
	"charge":    `func charge(context.Context) ([]byte, error) { panic(0) }`,
	"payments":  `var payments *once.Group`,
	"accountOf": `func accountOf(*http.Request) string { panic(0) }`,
	"mux":       `var mux *http.ServeMux`,
	"nodes":     `var sentinels, nodes []string`,
}

const imports = `
import (
	"context"
	"database/sql"
	"errors"
	"expvar"
	"io"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/jobs"
	"github.com/go-rlock/rlock/idempotency"
	"github.com/go-rlock/rlock/once"
	"github.com/go-rlock/rlock/rlock"
)
`

// The Go in the documents would compile, among what it takes for granted.
func TestBlocksOfGo(t *testing.T) {
	root := os.DirFS("../..")
	c := newChecker(t)
	n := 0
	for _, name := range files(t, root, ".md") {
		if strings.HasPrefix(name, "integrations/") { // modules of their own, which this one does not know
			continue
		}
		for _, block := range goBlock.FindAllStringSubmatch(read(t, root, name), -1) {
			n++
			require.NoError(t, c.check(block[1]), "%s:\n%s", name, block[1])
		}
	}
	require.Greater(t, n, 15)
}

// What would not compile is found.
func TestCheckBlocks(t *testing.T) {
	c := newChecker(t)
	require.NoError(t, c.check("ctx, hold, err := mu.Lock(ctx)\n...\n"), "unused")
	require.NoError(t, c.check("import \"net\"\n\nfunc ship() net.IP { return nil }\n"), "its own")
	require.ErrorContains(t, c.check("mu.Look(ctx)\n"), "Look")
	require.ErrorContains(t, c.check("err := mu.Do(ctx)\n"), "not enough arguments")
	require.ErrorContains(t, c.check("err := mu.Do(ctx, work\n"), "missing ','")
	require.ErrorContains(t, c.check("func f() { undeclared() }\n"), "undefined")
	require.NoError(t, c.check("import (\n\t\"net\"\n)\n\nfunc f() net.IP { return nil }\n"), "a file")
	require.ErrorContains(t, c.check("import (\n\t\"net\"\n)\n\nvar ctx context.Context\n"), "undefined: context")
}

// checker knows the packages that a block may use, by what the compiler has exported.
type checker struct {
	fset     *token.FileSet
	importer types.Importer
}

func newChecker(t *testing.T) *checker {
	t.Helper()
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}",
		"database/sql", "expvar", "net/http", "testing/synctest", "sync/atomic", "github.com/go-rlock/rlock/election", "github.com/go-rlock/rlock/jobs",
		"github.com/go-rlock/rlock/once", "github.com/go-rlock/rlock/idempotency", "github.com/go-rlock/rlock/rlock", "github.com/go-rlock/rlock/rlocktest")
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	exports := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[name] = file
	}
	fset := token.NewFileSet()
	return &checker{fset, importer.ForCompiler(fset, "gc", func(name string) (io.ReadCloser, error) {
		return os.Open(exports[name])
	})}
}

// check returns why the block does not compile. What is declared need not be used, and a
// line of three dots stands for anything. A block with a group of imports is a file that
// imports nothing else.
func (c *checker) check(block string) error {
	block = dots.ReplaceAllString(block, "panic(0)")
	if strings.HasPrefix(block, "import (") {
		file, err := parser.ParseFile(c.fset, "block", "package docs\n"+block, 0)
		if err != nil {
			return err
		}
		return c.compile(file)
	}
	var own string
	for _, line := range importLine.FindAllString(block, -1) {
		if !strings.Contains(imports, strings.TrimPrefix(line, "import ")) {
			own += line
		}
	}
	block = importLine.ReplaceAllString(block, "")
	file, err := c.parse(own + block)
	if err != nil { // it is no declarations
		file, err = c.parse(own + "func _(ctx context.Context) (_ error) {\n" + block + "\nreturn\n}\n")
	}
	if err != nil {
		return err
	}
	return c.compile(file)
}

// compile returns why the file does not compile beside what it takes for granted.
func (c *checker) compile(file *ast.File) error {
	rest := "package docs\n" + imports
	for name, declaration := range around {
		if file.Scope.Lookup(name) == nil {
			rest += declaration + "\n"
		}
	}
	others, err := parser.ParseFile(c.fset, "around", rest, 0)
	if err != nil {
		return err
	}
	var problems []error
	conf := types.Config{Importer: c.importer, Error: func(err error) {
		if typed, ok := errors.AsType[types.Error](err); !ok || !typed.Soft {
			problems = append(problems, err)
		}
	}}
	_, _ = conf.Check("docs", c.fset, []*ast.File{file, others}, nil)
	return errors.Join(problems...)
}

func (c *checker) parse(text string) (*ast.File, error) {
	return parser.ParseFile(c.fset, "block", "package docs\n"+imports+text, 0)
}
