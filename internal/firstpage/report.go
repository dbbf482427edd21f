// Package firstpage measures what a reader meets who follows one call through the library. It runs a free Lock, a free
// Unlock and a Lock behind another client, and has the coverage say which functions they pass.
package firstpage

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Report prints a table of the calls, which are made on the server there: how many functions they pass, and their files,
// packages, lines, branches and types.
func Report(ctx context.Context, out io.Writer, addr string) error {
	met, err := Measure(ctx, addr)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "call\tfunctions\tfiles\tpackages\tlines\tbranches\ttypes\t")
	for _, call := range calls {
		fmt.Fprintf(w, "%s\t%v\t\n%s, without transport\t%v\t\n", call, priceOf(met[call]), call, priceOf(withoutTransport(met[call])))
	}
	return w.Flush()
}

// Measure makes the calls on the server there, and returns the functions that each has passed. It builds a program from
// the source, so it is called in the repository.
func Measure(ctx context.Context, addr string) (met map[string][]Function, err error) {
	dir, err := os.MkdirTemp("", "firstpage-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	packages, err := load(ctx, module+"/rlock")
	if err != nil {
		return nil, err
	}
	var functions []Function
	var paths []string
	for _, p := range packages {
		found, err := p.functions()
		if err != nil {
			return nil, err
		}
		functions = append(functions, found...)
		paths = append(paths, p.ImportPath)
	}
	// Coverage can be cleared and written if that of the command itself is among it.
	const measure = module + "/internal/firstpage/measure"
	covered := "-coverpkg=" + strings.Join(append(paths, measure), ",")
	program := filepath.Join(dir, "walk")
	if err := command(ctx, "go", "build", "-cover", "-covermode=atomic", covered, "-o", program, measure).Run(); err != nil {
		return nil, fmt.Errorf("build with coverage; make build says whether it can be without: %w", err)
	}
	walker := command(ctx, program, "walk", addr, dir)
	walker.Env = append(os.Environ(), "GOCOVERDIR="+dir) // where a process writes at its end, which nobody reads
	if err := walker.Run(); err != nil {
		return nil, fmt.Errorf("walk: %w", err)
	}
	met = make(map[string][]Function)
	for _, call := range calls {
		profile := filepath.Join(dir, call+".txt")
		if err := command(ctx, "go", "tool", "covdata", "textfmt", "-i="+filepath.Join(dir, call), "-o="+profile).Run(); err != nil {
			return nil, fmt.Errorf("covdata: %w", err)
		}
		text, err := os.ReadFile(profile)
		if err != nil {
			return nil, err
		}
		if met[call], err = passed(functions, string(text)); err != nil {
			return nil, err
		}
	}
	return met, nil
}

// command is one whose errors are seen.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	return cmd
}

// Serve starts a server that only this user can reach, at a socket; one inside this process if there is no redis-server.
func Serve(ctx context.Context) (addr string, stop func(), err error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		mini := miniredis.NewMiniRedis()
		if err := mini.Start(); err != nil {
			return "", nil, err
		}
		return mini.Addr(), mini.Close, nil
	}
	dir, err := os.MkdirTemp("", "firstpage-")
	if err != nil {
		return "", nil, err
	}
	addr = filepath.Join(dir, "socket")
	server := command(ctx, "redis-server", "--port", "0", "--unixsocket", addr, "--save", "", "--dir", dir)
	if err := server.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, fmt.Errorf("start a server: %w", err)
	}
	stop = func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		_ = os.RemoveAll(dir)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := rdb.Ping(ctx).Err()
		if err == nil {
			return addr, stop, nil
		}
		if time.Now().After(end) {
			stop()
			return "", nil, fmt.Errorf("the server does not answer at its socket; see whether redis-server starts by itself: %w", err)
		}
	}
}
