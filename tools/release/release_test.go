// The packages that make release builds, unpacked.
package release_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/blakesmith/ar"
	"github.com/sassoftware/go-rpmutils"
)

func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all: it builds the command and the tool for packages")
	}
	if runtime.GOOS != "linux" {
		t.Skip("the packages are for Linux")
	}
	dist := t.TempDir()
	run(t, "make", "-C", "../..", "release", "DIST="+dist, "RELEASE=linux/"+runtime.GOARCH)
	binary := "rlock-linux-" + runtime.GOARCH
	deb, rpm := only(t, dist, "*.deb"), only(t, dist, "*.rpm")

	var sums strings.Builder
	files, err := os.ReadDir(dist)
	check(t, err)
	for _, file := range files {
		if name := file.Name(); name != "SHA256SUMS" {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(read(t, dist, name)), name)
		}
	}
	same(t, "SHA256SUMS", read(t, dist, "SHA256SUMS"), []byte(sums.String()))

	page, err := gzip.NewReader(bytes.NewReader(read(t, dist, "rlock.1.gz")))
	check(t, err)
	text, err := io.ReadAll(page)
	check(t, err)
	same(t, "rlock.1", text, read(t, "../../docs", "rlock.1"))

	for name, p := range map[string]struct {
		files        map[string][]byte
		zsh, licence string
	}{
		deb: {ofDeb(t, deb), "usr/share/zsh/vendor-completions/_rlock", "usr/share/doc/rlock/copyright"},
		rpm: {ofRPM(t, rpm), "usr/share/zsh/site-functions/_rlock", "usr/share/licenses/rlock/LICENSE"},
	} {
		for inside, want := range map[string][]byte{
			"usr/bin/rlock":                                  read(t, dist, binary),
			"usr/share/man/man1/rlock.1.gz":                  read(t, dist, "rlock.1.gz"),
			"usr/share/bash-completion/completions/rlock":    read(t, "../../cmd/rlock/completion", "rlock.bash"),
			"usr/share/fish/vendor_completions.d/rlock.fish": read(t, "../../cmd/rlock/completion", "rlock.fish"),
			p.zsh:     read(t, "../../cmd/rlock/completion", "rlock.zsh"),
			p.licence: read(t, "../..", "LICENSE"),
		} {
			same(t, name+": "+inside, p.files[inside], want)
			delete(p.files, inside)
		}
		if len(p.files) != 0 {
			t.Errorf("%s has other files: %v", name, p.files)
		}
	}

	if said := run(t, filepath.Join(dist, binary), "version"); !strings.HasPrefix(said, "rlock version ") {
		t.Error(said)
	}
	if list := string(read(t, dist, binary+".cdx.json")); !strings.Contains(list, "pkg:golang/github.com/redis/go-redis/v9@v9.") {
		t.Error(list)
	}
}

// ofDeb returns the files of a package for Debian.
func ofDeb(t *testing.T, name string) map[string][]byte {
	outer := ar.NewReader(open(t, name))
	for {
		header, err := outer.Next()
		check(t, err)
		if !strings.HasPrefix(header.Name, "data.tar.gz") {
			continue
		}
		inner, err := gzip.NewReader(outer)
		check(t, err)
		files, archive := make(map[string][]byte), tar.NewReader(inner)
		for {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				return files
			}
			check(t, err)
			if header.Typeflag == tar.TypeReg {
				files[filepath.Clean(header.Name)], err = io.ReadAll(archive)
				check(t, err)
			}
		}
	}
}

// ofRPM returns the files of a package for Red Hat.
func ofRPM(t *testing.T, name string) map[string][]byte {
	rpm, err := rpmutils.ReadRpm(open(t, name))
	check(t, err)
	payload, err := rpm.PayloadReaderExtended()
	check(t, err)
	files := make(map[string][]byte)
	for {
		info, err := payload.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		check(t, err)
		files[strings.TrimPrefix(info.Name(), "/")], err = io.ReadAll(payload)
		check(t, err)
	}
}

func only(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	check(t, err)
	if len(found) != 1 {
		t.Fatal(pattern, found)
	}
	return found[0]
}

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	check(t, err)
	t.Cleanup(func() { check(t, f.Close()) })
	return f
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	check(t, err)
	return content
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not as it should be: %d bytes, want %d", what, len(got), len(want))
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
