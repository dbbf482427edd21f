// Flaky runs tests again and again, with the race detector, on 1, 2 and 4 processors and beside other load, and prints
// which of them have failed, how often and where. It builds each package once, and stops by itself.
//
//	go run ./internal/flaky -n 50 -d 10m -run FakeTime ./rlock ./watchdog
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Each run has the next of these, and with each round of them the next load.
var processors = []int{1, 2, 4}

// failed matches the line of a test that has failed. Lines of subtests are indented.
var failed = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)

// pkg is the test of a package.
type pkg struct{ path, dir, binary string }

// failure is how often a test has failed.
type failure struct {
	test, at, log string // where it failed first, and what it said there
	times         int
}

func main() {
	n := flag.Int("n", 50, "runs of each package")
	d := flag.Duration("d", 10*time.Minute, "stop after this time, whatever is left")
	run := flag.String("run", "", "only the tests that match this")
	count := flag.Int("count", 1, "how often a run makes each test")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := flaky(ctx, *n, *d, []string{"-test.short", "-test.timeout=10m", "-test.run=" + *run, fmt.Sprint("-test.count=", *count)}, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "flaky:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// flaky reports whether all runs have passed.
func flaky(ctx context.Context, n int, d time.Duration, args, patterns []string) (ok bool, err error) {
	dir, err := os.MkdirTemp("", "flaky-")
	if err != nil {
		return false, err
	}
	all, err := build(ctx, dir, patterns)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	found, runs := make(map[string]*failure), 0
	for i := range n {
		procs, load := processors[i%len(processors)], i/len(processors)%(runtime.NumCPU()+1)
		for _, p := range all {
			output, err := once(ctx, p, args, procs, load)
			if ctx.Err() != nil {
				break // what was cut short says nothing
			}
			runs++
			if err != nil {
				note(found, p, fmt.Sprintf("GOMAXPROCS=%d, load %d", procs, load), dir, output)
			}
		}
	}
	fmt.Printf("%d runs of %d packages, %d failing tests\n", runs, len(all), len(found))
	if len(found) == 0 {
		return true, os.RemoveAll(dir)
	}
	for _, p := range all {
		err = errors.Join(err, os.Remove(p.binary)) // the logs stay
	}
	list(found)
	return false, err
}

// build compiles the tests of the packages that have any.
func build(ctx context.Context, dir string, patterns []string) (all []pkg, err error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}`}, patterns...)...)
	list.Stderr = os.Stderr
	text, err := list.Output()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		path, home, _ := strings.Cut(strings.TrimSpace(line), " ")
		p := pkg{path, home, filepath.Join(dir, strings.ReplaceAll(path, "/", "-")+".test")}
		if text, err := exec.CommandContext(ctx, "go", "test", "-race", "-c", "-o", p.binary, path).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", path, err, text)
		}
		all = append(all, p)
	}
	return all, nil
}

// once runs the test of a package on so many processors, beside so many busy loops.
func once(ctx context.Context, p pkg, args []string, procs, load int) (output []byte, err error) {
	busy, idle := context.WithCancel(ctx)
	defer idle()
	for range load {
		go func() {
			for busy.Err() == nil {
			}
		}()
	}
	cmd := exec.CommandContext(ctx, p.binary, args...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), fmt.Sprint("GOMAXPROCS=", procs))
	return cmd.CombinedOutput()
}

// note counts the tests that have failed in a run, and keeps the output of the first of each.
func note(found map[string]*failure, p pkg, at, dir string, output []byte) {
	tests := []string{"(none of its tests)"} // the detector, a leak, a crash
	if lines := failed.FindAllSubmatch(output, -1); lines != nil {
		tests = nil
		for _, line := range lines {
			tests = append(tests, string(line[1]))
		}
	}
	for _, test := range tests {
		test = p.path + " " + test
		f := found[test]
		if f == nil {
			f = &failure{test: test, at: at, log: filepath.Join(dir, fmt.Sprint(len(found)+1, ".log"))}
			found[test] = f
			if err := os.WriteFile(f.log, output, 0o600); err != nil {
				f.log = err.Error()
			}
			fmt.Println("failed:", test, f.log)
		}
		f.times++
	}
}

// list prints what was found, the most frequent first.
func list(found map[string]*failure) {
	var all []*failure
	for _, f := range found {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *failure) int { return cmp.Or(cmp.Compare(b.times, a.times), cmp.Compare(a.test, b.test)) })
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PACKAGE AND TEST\tFAILED\tFIRST AT\tOUTPUT")
	for _, f := range all {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", f.test, f.times, f.at, f.log)
	}
	_ = w.Flush()
}
