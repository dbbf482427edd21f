// Firstpage measures the price of the first page: what a reader meets who follows one call through the library. It runs a
// free Lock, a free Unlock and a Lock behind another client, has the coverage say which functions they pass, and prints
// how many there are, and their files, packages, lines, branches and types. It only reports.
//
//	go run ./internal/firstpage
package main

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

	"github.com/redis/go-redis/v9"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "firstpage:", err)
		os.Exit(1)
	}
}

// run reports, or is one of the processes that a report needs.
func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 0:
		addr, stop, err := serve(ctx)
		if err != nil {
			return err
		}
		defer stop()
		return report(ctx, os.Stdout, addr)
	case len(args) == 3 && args[0] == "walk":
		return walk(ctx, args[1], args[2])
	case len(args) == 3 && args[0] == "hold":
		return hold(ctx, args[1], args[2])
	}
	return fmt.Errorf("unknown arguments %q: call it without any", args)
}

// report prints a table of the calls, which are made on the server there. It builds a program from the source, so it is
// called in the repository.
func report(ctx context.Context, out io.Writer, addr string) error {
	dir, err := os.MkdirTemp("", "firstpage-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	packages, err := load(ctx, module+"/rlock")
	if err != nil {
		return err
	}
	var functions []function
	var paths []string
	for _, p := range packages {
		found, err := p.functions()
		if err != nil {
			return err
		}
		functions = append(functions, found...)
		paths = append(paths, p.ImportPath)
	}
	// Coverage can be cleared and written if that of the command itself is among it.
	covered := "-coverpkg=" + strings.Join(append(paths, module+"/internal/firstpage"), ",")
	program := filepath.Join(dir, "walk")
	if err := command(ctx, "go", "build", "-cover", "-covermode=atomic", covered, "-o", program, module+"/internal/firstpage").Run(); err != nil {
		return fmt.Errorf("build with coverage; make build says whether it can be without: %w", err)
	}
	walker := command(ctx, program, "walk", addr, dir)
	walker.Env = append(os.Environ(), "GOCOVERDIR="+dir) // where a process writes at its end, which nobody reads
	if err := walker.Run(); err != nil {
		return fmt.Errorf("walk: %w", err)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "call\tfunctions\tfiles\tpackages\tlines\tbranches\ttypes\t")
	for _, call := range calls {
		profile := filepath.Join(dir, call+".txt")
		if err := command(ctx, "go", "tool", "covdata", "textfmt", "-i="+filepath.Join(dir, call), "-o="+profile).Run(); err != nil {
			return fmt.Errorf("covdata: %w", err)
		}
		text, err := os.ReadFile(profile)
		if err != nil {
			return err
		}
		met, err := passed(functions, string(text))
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%v\t\n%s, without transport\t%v\t\n", call, priceOf(met), call, priceOf(withoutTransport(met)))
	}
	return w.Flush()
}

// command is one whose errors are seen.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	return cmd
}

// serve starts a server that only this user can reach, at a socket.
func serve(ctx context.Context) (addr string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "firstpage-")
	if err != nil {
		return "", nil, err
	}
	addr = filepath.Join(dir, "socket")
	server := command(ctx, "redis-server", "--port", "0", "--unixsocket", addr, "--save", "", "--dir", dir)
	if err := server.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, fmt.Errorf("start a server; make redis installs one: %w", err)
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
