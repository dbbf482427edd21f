package model_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Bounds of a run.
const (
	limit   = 60 * time.Second // of processor time: the machine may be busy
	patient = 5 * time.Minute
	memory  = 4 << 10 // MB
	deepest = 100_000 // steps of a single run of the model; more is an error
)

// The properties, by the assertion that fails.
var properties = map[string]string{
	"user":   "one holder",
	"relies": "one holder",
	"done":   "nobody sleeps",
	"holder": "nothing left",
	"late":   "nothing left",
}

// runs in the order of the table. One with breaks must be found violated there.
var runs = []struct {
	name   string
	model  string
	macros string
	breaks string
}{
	{"3 callers, 2 of them leave", "waking", "LOCALS=3 REMOTES=0 LEAVERS=2", ""},
	{"3 and 1 in two clients", "waking", "LOCALS=3 REMOTES=1 LEAVERS=0", ""},
	{"2 and 1, 2 leave", "waking", "LOCALS=2 REMOTES=1 LEAVERS=2", ""},
	{"2 hand-offs in a row", "waking", "LOCALS=3 REMOTES=0 LEAVERS=1 PASSES=2", ""},
	{"connections break", "waking", "LOCALS=2 REMOTES=1 LEAVERS=1 BREAKS=1", ""},
	{"subscriptions end", "waking", "LOCALS=2 REMOTES=1 LEAVERS=1 LINGERS=1", ""},
	{"a holder dies", "waking", "LOCALS=2 REMOTES=1 LEAVERS=1 CRASHES=1", ""},
	{"removed by force", "waking", "LOCALS=3 REMOTES=0 LEAVERS=1 FORCES=1", ""},
	{"2 grants, 2 faults", "exclusion", "GRANTS=2 FAULTS=2", ""},
	{"2 grants, longer lease", "exclusion", "GRANTS=2 FAULTS=1 LEASE=3 PASSES=2", ""},
	{"3 grants, 1 fault", "exclusion", "GRANTS=3 FAULTS=1 RENEWALS=0 PASSES=0", ""},

	{"no attempt after the subscription", "waking", "LOCALS=2 NO_SECOND_ATTEMPT", "done"},
	{"a leaver keeps its wake-up", "waking", "LOCALS=2 LEAVER_DROPS_WAKEUP", "done"},
	{"a head keeps its wake-up", "waking", "LOCALS=3 REMOTES=0 FORCES=1 HEAD_KEEPS_WAKEUP", "done"},
	{"message before DEL", "waking", "LOCALS=2 LEAVERS=0 MESSAGE_BEFORE_DEL", "done"},
	{"a lost connection goes unnoticed", "waking", "LOCALS=2 LEAVERS=0 BREAKS=1 LOSS_UNNOTICED", "done"},
	{"a leaver drops the grant handed to it", "waking", "LOCALS=2 LEAVER_DROPS_GRANT", "holder"},
	{"window counted from the reply", "exclusion", "GRANTS=2 WINDOW_FROM_REPLY", "relies"},
	{"release without owner check", "exclusion", "GRANTS=3 FAULTS=1 RENEWALS=0 PASSES=0 RELEASE_WITHOUT_OWNER", "relies"},
	{"hand-off with a release in flight", "exclusion", "GRANTS=2 HANDOFF_IN_FLIGHT", "relies"},
	{"an abandoned attempt is not swept", "exclusion", "GRANTS=2 NO_SWEEP", "late"},
}

func TestModel(t *testing.T) {
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-9s  %-38s  %10s  %6s  %6s  %s\n", "model", "variant", "states", "time", "MB", "verdict")
	for _, run := range runs {
		t.Run(run.name, func(t *testing.T) {
			c := check(t, run.model, strings.Fields(run.macros))
			verdict := "holds"
			if c.failed != "" {
				verdict = "found: " + properties[c.failed]
			}
			if c.failed != run.breaks {
				verdict = "UNEXPECTED " + verdict
				t.Errorf("%s, %s: want the assertion on %q to fail, not that on %q:\n%s", run.model, run.macros, run.breaks, c.failed, c.output)
			}
			fmt.Fprintf(&table, "%-9s  %-38s  %10d  %5.1fs  %6.0f  %s\n", run.model, run.name, c.states, c.took.Seconds(), c.megabytes, verdict)
		})
	}
	fmt.Println(table.String())
}

// checked is the outcome of a complete search, or of one that found a violation.
type checked struct {
	states    int
	megabytes float64
	took      time.Duration // of the search alone, processor time
	failed    string        // what the violated assertion is about; "" if none is
	output    string
}

var (
	violation = regexp.MustCompile(`(?m)^pan:\d+: assertion violated\W*(\w+)`)
	stored    = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
	used      = regexp.MustCompile(`(?m)^\s*([\d.]+)\s+total actual memory usage`)
	errorLine = regexp.MustCompile(`(?m)errors: (\d+)$`)
)

// check builds the verifier of a model and runs it to the end.
func check(t *testing.T, model string, macros []string) (c checked) {
	t.Helper()
	source, err := filepath.Abs(model + ".pml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"-a"}
	for _, macro := range macros {
		args = append(args, "-D"+macro)
	}
	command(t, dir, "spin", append(args, source)...)
	command(t, dir, "gcc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", fmt.Sprintf("-DMEMLIM=%d", memory), "-o", "pan", "pan.c")
	c.output, c.took = command(t, dir, "./pan", "-b", fmt.Sprintf("-m%d", deepest))
	if c.took > limit {
		t.Errorf("%s: the search took %v: at most %v", model, c.took, limit)
	}

	errors := errorLine.FindStringSubmatch(c.output)
	states, megabytes := stored.FindStringSubmatch(c.output), used.FindStringSubmatch(c.output)
	if errors == nil || states == nil || megabytes == nil {
		t.Fatalf("%s: the search has no result:\n%s", model, c.output)
	}
	c.states, _ = strconv.Atoi(states[1])
	c.megabytes, _ = strconv.ParseFloat(megabytes[1], 64)
	if found := violation.FindStringSubmatch(c.output); found != nil {
		c.failed = found[1]
	} else if errors[1] != "0" || strings.Contains(c.output, "Search not completed") {
		t.Fatalf("%s: the search was not completed:\n%s", model, c.output)
	}
	return c
}

func command(t *testing.T, dir, name string, args ...string) (output string, took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	text, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() != nil {
		t.Fatalf("%s was not through in %v:\n%s", name, patient, text)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
	return string(text), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}
