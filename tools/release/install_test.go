package release_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// The library and its commands, and the analyzer, which is a module of its own.
var (
	library  = module.Version{Path: "github.com/go-rlock/rlock", Version: "v0.1.0"}
	analyzer = module.Version{Path: library.Path + "/cmd/rlockvet", Version: library.Version}
)

// TestInstall installs the command as go install …@version does: from the zip of
// the module, into an empty GOPATH, without the repository.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all: it builds the command, and may download modules")
	}
	e := newElsewhere(t)
	e.publish(t, library, "../..")
	e.run(t, "go", "install", library.Path+"/cmd/rlock@"+library.Version)
	said := run(t, filepath.Join(e.dir, "rlock"), "version")
	want := "rlock version " + library.Version + " " + runtime.Version() + " "
	if !strings.HasPrefix(said, want) {
		t.Errorf("got %q, want %q", said, want)
	}
}

// TestInstallAnalyzer runs the analyzer as go run …@version does, and as a tool of go
// vet, over a program that uses the library, with the three mistakes in it.
func TestInstallAnalyzer(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all: it builds the analyzer, and may download modules")
	}
	e := newElsewhere(t)
	e.publish(t, library, "../..")
	e.publish(t, analyzer, "../../cmd/rlockvet")
	three := read(t, "../../cmd/rlockvet/analyzer/testdata/src/three", "three.go")
	check(t, os.WriteFile(filepath.Join(e.dir, "three.go"), three, 0o600))
	check(t, os.WriteFile(filepath.Join(e.dir, "go.mod"), []byte("module three\n\ngo 1.26.0\n"), 0o600))
	e.run(t, "go", "get", library.Path+"/rlock@"+library.Version)
	e.run(t, "go", "install", analyzer.Path+"@"+analyzer.Version)
	for _, command := range [][]string{
		{"go", "run", analyzer.Path + "@" + analyzer.Version, "./..."},
		{"go", "vet", "-vettool=" + filepath.Join(e.dir, "rlockvet"), "./..."},
	} {
		out, err := e.command(command...).CombinedOutput()
		if err == nil {
			t.Errorf("%v: no mistake found", command)
		}
		for _, want := range []string{"waits for the lock that is held here", "returns is dropped", "is not unlocked"} {
			if strings.Count(string(out), want) != 1 {
				t.Fatalf("%v: not once %q:\n%s", command, want, out)
			}
		}
	}
}

// elsewhere is a directory with an empty GOPATH and a proxy of modules.
type elsewhere struct {
	dir, proxy string
	env        []string
}

func newElsewhere(t *testing.T) elsewhere {
	t.Helper()
	e := elsewhere{dir: t.TempDir(), proxy: filepath.Join(t.TempDir(), "proxy")}
	// What the machine has downloaded before is not asked for again.
	settings := strings.Fields(run(t, "go", "env", "GOMODCACHE", "GOPROXY"))
	e.env = append(os.Environ(),
		"GOPROXY=file://"+e.proxy+",file://"+filepath.Join(settings[0], "cache/download")+","+settings[1],
		"GOPATH="+filepath.Join(t.TempDir(), "path"), "GOMODCACHE=", "GOBIN="+e.dir,
		"GOFLAGS=-modcacherw -trimpath", "GOWORK=off", "GONOSUMDB="+library.Path, "CGO_ENABLED=0")
	return e
}

// publish makes the zip of a module what the proxy has of it.
func (e elsewhere) publish(t *testing.T, version module.Version, root string) {
	t.Helper()
	versions := filepath.Join(e.proxy, version.Path, "@v")
	check(t, os.MkdirAll(versions, 0o755))
	var archive bytes.Buffer
	check(t, zip.Create(&archive, version, committed(t, root)))
	for name, content := range map[string][]byte{
		"list":                    []byte(version.Version + "\n"),
		version.Version + ".info": []byte(`{"Version": "` + version.Version + `"}`),
		version.Version + ".mod":  read(t, root, "go.mod"),
		version.Version + ".zip":  archive.Bytes(),
	} {
		check(t, os.WriteFile(filepath.Join(versions, name), content, 0o600))
	}
}

func (e elsewhere) command(args ...string) *exec.Cmd {
	command := exec.Command(args[0], args[1:]...)
	command.Dir, command.Env = e.dir, e.env
	return command
}

func (e elsewhere) run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := e.command(args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// committed returns the files of a repository, and those that could be added.
func committed(t *testing.T, root string) (files []zip.File) {
	t.Helper()
	list := run(t, "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	for path := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil { // not removed
			files = append(files, inRepository{root, path})
		}
	}
	return files
}

type inRepository struct{ root, path string }

func (f inRepository) Path() string                { return f.path }
func (f inRepository) Lstat() (os.FileInfo, error) { return os.Lstat(filepath.Join(f.root, f.path)) }

func (f inRepository) Open() (io.ReadCloser, error) {
	return os.Open(filepath.Join(f.root, f.path))
}
