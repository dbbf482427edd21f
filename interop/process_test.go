package interop

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// callLimit bounds every answer. No case waits that long on a healthy machine.
const callLimit = 90 * time.Second

// span is when something happened, on the machine's clock.
type span struct{ begun, ended time.Time }

// answer is what a peer says to a request.
type answer struct {
	span
	value string
	err   error
}

// remoteError is an exception in Java, or an error of a Go peer.
type remoteError struct{ class, message string }

func (e *remoteError) Error() string { return e.class + ": " + e.message }

var errGone = errors.New("the peer has ended")

// process is a peer in a process of its own.
type process struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended and all it said is read

	mu     sync.Mutex // guards what follows, and writes to in
	in     io.WriteCloser
	tags   int
	actors int
	asked  map[string]chan answer // by tag; capacity 1; nil once the process is gone
}

// startProcess runs cmd as a peer until the test ends. It ends with its input,
// so it cannot outlive the test binary.
func startProcess(tb testing.TB, cmd *exec.Cmd) *process {
	tb.Helper()
	logFile := filepath.Join(tb.TempDir(), "stderr")
	log, err := os.Create(logFile)
	require.NoError(tb, err)
	defer func() { _ = log.Close() }()
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	require.NoError(tb, err)
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	p := &process{cmd: cmd, in: in, gone: make(chan struct{}), asked: make(map[string]chan answer)}
	go p.read(out)
	tb.Cleanup(func() {
		p.mu.Lock()
		_ = p.in.Close()
		p.mu.Unlock()
		select {
		case <-p.gone:
		case <-time.After(10 * time.Second):
			p.kill()
		}
		if text, _ := os.ReadFile(logFile); tb.Failed() && len(text) > 0 {
			tb.Logf("standard error of %s:\n%s", cmd.Path, bytes.TrimSpace(text[max(0, len(text)-4<<10):]))
		}
	})
	return p
}

// read delivers the answers until the process ends. It is the only sender on the
// channels of asked.
func (p *process) read(out io.Reader) {
	defer close(p.gone)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		tag, a := parseAnswer(strings.TrimSuffix(line, "\n"))
		p.mu.Lock()
		if c := p.asked[tag]; c != nil {
			c <- a
			delete(p.asked, tag)
		}
		p.mu.Unlock()
	}
	_ = p.cmd.Wait() // killed, mostly
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.asked {
		c <- answer{err: errGone}
	}
	p.asked = nil
}

func parseAnswer(line string) (tag string, a answer) {
	word := strings.SplitN(line, " ", 5)
	if len(word) < 5 {
		return "", answer{}
	}
	begun, beginErr := strconv.ParseInt(word[1], 10, 64)
	ended, endErr := strconv.ParseInt(word[2], 10, 64)
	a.span = span{time.UnixMicro(begun), time.UnixMicro(ended)}
	a.value = strings.TrimSpace(word[4])
	a.err = errors.Join(beginErr, endErr)
	if word[3] != "ok" {
		class, message, _ := strings.Cut(word[4], " ")
		a.value, a.err = "", &remoteError{class, message}
	}
	return word[0], a
}

// ask sends a request. The answer comes on the channel, errGone at the latest.
func (p *process) ask(actor, command string, args ...any) <-chan answer {
	c := make(chan answer, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked == nil {
		c <- answer{err: errGone}
		return c
	}
	p.tags++
	tag := strconv.Itoa(p.tags)
	p.asked[tag] = c
	// A failed write means that the process has ended, which read notices.
	_, _ = fmt.Fprintln(p.in, append([]any{tag, actor, command}, args...)...)
	return c
}

// call is ask with the answer.
func (p *process) call(actor, command string, args ...any) answer {
	select {
	case a := <-p.ask(actor, command, args...):
		return a
	case <-time.After(callLimit):
		return answer{err: fmt.Errorf("%s: no answer within %v", command, callLimit)}
	}
}

// newActor returns a name that no other actor or client of the process has.
func (p *process) newActor() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.actors++
	return "n" + strconv.Itoa(p.actors)
}

// kill sends SIGKILL and returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// build makes the Java peer for a version of Redisson and returns how to run it.
// Maven downloads what is not in the local repository.
func build(tb testing.TB, version string) func() *exec.Cmd {
	tb.Helper()
	mvn := exec.Command("mvn", "-q", "-B", "-Dredisson.version="+version, "process-classes")
	mvn.Dir = "java"
	text, err := mvn.CombinedOutput()
	require.NoError(tb, err, "%s\nmake interop needs Maven (mvn), a JDK of at least 17 (java) and Maven Central\n%s", mvn, text)
	dir := filepath.Join("java", "target", version)
	libraries, err := os.ReadFile(filepath.Join(dir, "classpath"))
	require.NoError(tb, err)
	classpath := filepath.Join(dir, "classes") + string(os.PathListSeparator) + strings.TrimSpace(string(libraries))
	return func() *exec.Cmd { return exec.Command("java", "-Xmx256m", "-cp", classpath, "interop.Peer") }
}
