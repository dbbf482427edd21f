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

// TestInstall installs the command as go install …@version does: from the zip of
// the module, into an empty GOPATH, without the repository.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all: it builds the command, and may download modules")
	}
	version := module.Version{Path: "github.com/go-rlock/rlock", Version: "v0.1.0"}
	dir := t.TempDir()
	proxy := filepath.Join(dir, "proxy")
	versions := filepath.Join(proxy, version.Path, "@v")
	check(t, os.MkdirAll(versions, 0o755))
	var archive bytes.Buffer
	check(t, zip.Create(&archive, version, committed(t, "../..")))
	for name, content := range map[string][]byte{
		"list":                    []byte(version.Version + "\n"),
		version.Version + ".info": []byte(`{"Version": "` + version.Version + `"}`),
		version.Version + ".mod":  read(t, "../..", "go.mod"),
		version.Version + ".zip":  archive.Bytes(),
	} {
		check(t, os.WriteFile(filepath.Join(versions, name), content, 0o600))
	}

	// What the machine has downloaded before is not asked for again.
	settings := strings.Fields(run(t, "go", "env", "GOMODCACHE", "GOPROXY"))
	install := exec.Command("go", "install", version.Path+"/cmd/rlock@"+version.Version)
	install.Dir = dir
	install.Env = append(os.Environ(),
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(settings[0], "cache/download")+","+settings[1],
		"GOPATH="+filepath.Join(dir, "path"), "GOMODCACHE=", "GOBIN="+dir,
		"GOFLAGS=-modcacherw", "GOWORK=off", "GONOSUMDB="+version.Path, "CGO_ENABLED=0")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said := run(t, filepath.Join(dir, "rlock"), "version")
	want := "rlock version " + version.Version + " " + runtime.Version() + " "
	if !strings.HasPrefix(said, want) {
		t.Errorf("got %q, want %q", said, want)
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
