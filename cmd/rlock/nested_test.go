package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// wrap makes a command for sh out of one that [prepare] returned.
func wrap(cmd *exec.Cmd, script string) *exec.Cmd {
	sh := exec.Command("sh", "-c", script)
	sh.Env, sh.SysProcAttr = cmd.Env, cmd.SysProcAttr
	return sh
}

// group prints a shell's process group.
const group = `group() { cut -d" " -f5 /proc/$$/stat; }; `

func TestNestedRunReenters(t *testing.T) {
	f := newFixture(t)
	r := outcome(t, f.URL(), "run", "a", "--", "sh", "-c", group+`
		echo "$RLOCK_OWNER $RLOCK_TOKEN $(group)"
		"$SELF" run -n a -- sh -c '`+group+`echo "$RLOCK_OWNER $RLOCK_TOKEN $(group)"; exit 6'
		echo "exit $?"`)
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `^(\S+ \d+ \d+)\n(\S+ \d+ \d+)\nexit 6\n$`, r.stdout)
	lines := strings.Split(r.stdout, "\n")
	require.Equal(t, lines[0], lines[1], "same hold, same process group")
}

func TestNestedRunOfAnotherLockIsAnOrdinaryOne(t *testing.T) {
	f := newFixture(t)
	r := outcome(t, f.URL(), "run", "a", "--", "sh", "-c", `
		a=$RLOCK_OWNER
		"$SELF" run -n b -- sh -c '
			"$SELF" inspect a; "$SELF" inspect b
			"$SELF" run -n a -- sh -c "echo \$RLOCK_NAME \$RLOCK_OWNER"'
		echo "a $a"
		"$SELF" --prefix p: run -n a -- sh -c 'echo p $RLOCK_NAME; "$SELF" --prefix p: inspect a >/dev/null && "$SELF" ls'`)
	require.Zero(t, r.code, r.stderr)
	lines := strings.Split(r.stdout, "\n")
	require.Contains(t, lines, "p a")
	require.Contains(t, lines, "lock     a")
	require.Contains(t, lines, "lock     b")
	for i, line := range lines {
		if len(line) > 2 && line[:2] == "a " {
			require.Equal(t, line, lines[i+1], "the outermost owner, past the lock between")
			break
		}
	}
	require.Regexp(t, `(?m)^p:a +`, r.stdout)
}

// A run that needs a further lock still tells its command about the first name.
func TestNestedRunOfAFurtherName(t *testing.T) {
	f := newFixture(t)
	const tells = `echo "$RLOCK_NAME $RLOCK_OWNER $RLOCK_TOKEN"`
	r := outcome(t, f.URL(), "run", "a", "--", "sh", "-c",
		tells+`; "$SELF" run a b -- sh -c '`+tells+`; "$SELF" inspect -q a b; echo $?'; "$SELF" run b a -- sh -c 'echo $RLOCK_NAME'`)
	require.Zero(t, r.code, r.stderr)
	lines := strings.Split(r.stdout, "\n")
	require.Len(t, lines, 5, r.stdout)
	require.Equal(t, lines[0], lines[1])
	require.Equal(t, []string{"0", "b", ""}, lines[2:])
}

// What the outer run shares, the inner one cannot have alone, whatever its kind.
func TestNestedRunUnderASharedLock(t *testing.T) {
	f := newFixture(t)
	r := outcome(t, f.URL(), "run", "-s", "a", "--", "sh", "-c", `
		for kind in "" --fair --exclusive --shared; do "$SELF" run -n $kind a -- echo ran; echo $?; done`)
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "64\n64\n64\nran\n0\n", r.stdout)
	require.Equal(t, 3, strings.Count(r.stderr, "shares it"), r.stderr)
}

func TestNestedRunOnAnotherServer(t *testing.T) {
	f, other := newFixture(t), newFixture(t)
	r := outcome(t, f.URL(), "run", "a", "--", "sh", "-c",
		`"$SELF" --url `+other.URL()+` run -n a -- "$SELF" --url `+other.URL()+` inspect a`)
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `(?m)^owner `, r.stdout)
}

func TestNestedRunUnderALostLock(t *testing.T) {
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "a", "--", "sh", "-c", `echo ready; read x; "$SELF" run -n a -- echo ran; echo "exit $?"`)
	p.says("ready")
	require.NoError(t, f.Client(t).Del(t.Context(), "a").Err())
	f.hold("a") // somebody else is in by now
	p.tell("")
	require.Equal(t, "79", p.says("exit "))
	r := p.end()
	require.Equal(t, exitLost, r.code)
	require.NotContains(t, r.stdout, "ran")
	require.Contains(t, r.stderr, "the rlock run around this one has lost it")
}

func TestEnclosingLocksInTheEnvironment(t *testing.T) {
	t.Setenv(heldVar, "")
	t.Setenv(proofVar, "")
	for _, name := range []string{"RLOCK_NAME", "RLOCK_OWNER", "RLOCK_TOKEN"} {
		t.Setenv(name, "")
	}
	a := enclosing{"a b&=;%\n", "h:1/0", "p:a b&=;%\n", "x:1", 1763655000123456, true, ""}
	b := enclosing{"b", "h:1/0", "b", "y:2", 2, false, ""}
	a.export()
	b.export()
	require.Equal(t, []enclosing{b, a}, enclosingLocks(os.Getenv(heldVar)))
	require.Equal(t, "b", os.Getenv("RLOCK_NAME"))
	require.Equal(t, "2", os.Getenv("RLOCK_TOKEN"))
	require.Empty(t, enclosingLocks(""))
	require.Len(t, enclosingLocks("%zz key=k"), 1)
}

// A program joins the lock that the run around it holds.
func TestProofInTheEnvironment(t *testing.T) {
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "a", "b", "--", "sh", "-c", `echo "ready $RLOCK_TOKEN"; echo "proof $RLOCK_PROOF"; read x`)
	token, err := strconv.ParseInt(p.says("ready "), 10, 64)
	require.NoError(t, err)
	proof := p.says("proof ")
	require.Len(t, strings.Fields(proof), 2)
	for _, name := range []string{"a", "b"} {
		mu := f.client.NewLock(name, rlock.WithFencing())
		joined, hold, err := mu.Join(t.Context(), proof)
		require.NoError(t, err)
		if name == "a" {
			require.Equal(t, token, hold.Token())
		}
		require.NoError(t, hold.Unlock(joined))
	}
	p.tell("")
	require.Zero(t, p.end().code)
	_, _, err = f.client.NewLock("a").Join(t.Context(), proof)
	require.ErrorIs(t, err, rlock.ErrNotHeld)
}

// A program that holds the lock, and starts a run of it, would wait for itself.
func TestRunBelowAProgramThatHoldsTheLock(t *testing.T) {
	f := newFixture(t)
	held, hold, err := f.client.NewLock("a").Lock(t.Context())
	require.NoError(t, err)
	proof := hold.Proof()
	below := func(args ...string) result {
		cmd := prepare(t, f.URL(), args...)
		cmd.Env = append(cmd.Env, proofVar+"="+proof)
		return launch(t, cmd).end()
	}
	r := below("run", "a", "--", "echo", "ran")
	require.Equal(t, exitUsage, r.code)
	require.NotContains(t, r.stdout, "ran")
	require.Contains(t, r.stderr, "the program above this one holds it")
	r = below("run", "b", "--", "echo", "ran")
	require.Zero(t, r.code, r.stderr)
	require.NoError(t, hold.Unlock(held))
	r = below("run", "a", "--", "echo", "ran")
	require.Zero(t, r.code, "the proof is of a hold that is over: %s", r.stderr)
}

// What the kernel would refuse to pass to the command is refused before any lock is taken.
func TestNamesHaveToFitIntoTheEnvironment(t *testing.T) {
	nowhere := "redis://127.0.0.1:1" // 69 if it were asked
	many := []string{"run", "-n"}
	for i := range 2000 {
		many = append(many, "name-"+strconv.Itoa(i))
	}
	for _, args := range [][]string{
		append(many, "--", "true"),
		{"run", "-n", strings.Repeat("a", longestString/2), "--", "true"},
	} {
		r := begin(t, nowhere, args...).end()
		require.Equal(t, exitUsage, r.code, r.stderr)
		require.Contains(t, r.stderr, "too long or too many")
	}
	f := newFixture(t)
	r := outcome(t, f.URL(), "run", "-n", strings.Repeat("a", longestString/2-500), "--", "true")
	require.Equal(t, result{}, r)
	below := prepare(t, nowhere, "run", "-n", "a", "--", "true")
	below.Env = append(below.Env, heldVar+"="+strings.Repeat("a", longestString-20))
	require.Equal(t, exitUsage, launch(t, below).end().code)
}
