package redistest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// limit bounds everything that a healthy server does at once. It is generous
// because the race detector and a shared machine are slow.
const limit = 10 * time.Second

// Server is a redis-server process of one test. Its methods without a
// [testing.TB] may be called from any goroutine.
type Server struct {
	tb    testing.TB
	args  []string
	dir   string
	port  int
	claim net.Listener // of the port, also while the server is dead

	mu      sync.Mutex // serialises Kill, Restart, Stop and Cont; guards the rest
	proc    *process
	stopped bool
}

// Start runs a redis-server without persistence and with DEBUG allowed until
// the test ends. args are further options, such as "--appendonly", "yes"; they
// override the defaults, except for port, directory and unix socket.
//
// RLOCK_REDIS_SERVER names another binary, such as valkey-server. A missing
// binary fails the test; only the name none skips it.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return start(tb, append(defaults(), args...))
}

func defaults() []string {
	args := []string{
		"--bind", "127.0.0.1",
		"--protected-mode", "no",
		"--save", "",
		"--appendonly", "no",
	}
	if before7() { // DEBUG is allowed, and a new user hears every channel
		return append(args, "--acl-pubsub-default", "resetchannels")
	}
	return append(args, "--enable-debug-command", "yes")
}

// start runs a redis-server with exactly these arguments, and an address of its own.
func start(tb testing.TB, args []string) *Server {
	tb.Helper()
	if binary() == "none" {
		tb.Skip("needs a redis-server")
	}
	// Not tb.TempDir: it contains the test's name, and the path of a unix
	// socket must stay below 100 bytes.
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, args: args, dir: dir}
	tb.Cleanup(func() {
		s.Kill()
		_ = s.claim.Close()
		showLog(tb, s.Addr(), s.logFile())
		_ = os.RemoveAll(dir)
	})
	for range 10 {
		s.port, s.claim = claimPort()
		if err = s.run(); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			break
		}
		_ = errors.Join(s.claim.Close(), os.Remove(s.logFile()))
	}
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// binary is what serves, or none where there is nothing to serve.
func binary() string { return cmp.Or(os.Getenv("RLOCK_REDIS_SERVER"), "redis-server") }

// claimPort returns a port that is free now, and that no other server of this package gets
// until the listener is closed: a test that asks a dead server would be answered by another
// one. Ports are even; the listener has the one behind it, and accepts nothing.
//
// They lie below the ports that the system gives to outgoing connections, or one of those,
// perhaps a client dialling in vain, could take the place of a killed server before its
// Restart. The bus port of a cluster node, 10000 higher, lies below them as well.
func claimPort() (port int, claim net.Listener) {
	for {
		port = 10000 + 2*rand.IntN(5000)
		claim, err := net.Listen("tcp", loopback(port+1))
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", loopback(port)); err == nil {
			_ = l.Close()
			return port, claim
		}
		_ = claim.Close()
	}
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// run starts the process and waits until it serves. mu is held, or s is new.
func (s *Server) run() error {
	path, err := exec.LookPath(binary())
	if err != nil {
		return fmt.Errorf("%w: run apt-get install redis-server, or make test", err)
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(path, append(s.args[:len(s.args):len(s.args)],
		"--port", strconv.Itoa(s.port), "--dir", s.dir, "--unixsocket", s.socket())...)
	cmd.Stdout, cmd.Stderr = log, log
	_ = os.Remove(s.socket()) // or the previous process's could be taken for the new one's
	p, err := startProcess(cmd)
	if err != nil {
		return err
	}
	s.proc, s.stopped = p, false
	if err := s.awaitReady(p); err != nil {
		p.kill()
		return fmt.Errorf("redis-server did not start: %w\n%s", err, logTail(s.logFile()))
	}
	return nil
}

// awaitReady asks through the unix socket: on the port another process could
// answer. The server opens the socket after the port.
func (s *Server) awaitReady(p *process) error {
	deadline := time.After(limit)
	for {
		_, err := s.ask("PING")
		if err == nil || strings.HasPrefix(err.Error(), "NOAUTH") {
			return nil
		}
		select {
		case <-p.done:
			return errors.Join(errors.New("it has ended"), p.err)
		case <-deadline:
			return err
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *Server) socket() string  { return filepath.Join(s.dir, "sock") }
func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

// Addr returns the server's host:port, the same for the whole test.
func (s *Server) Addr() string { return loopback(s.port) }

// URL returns the address as [redis.ParseURL] wants it.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Pid returns the process id, which changes with [Server.Restart].
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid()
}

// Client returns a client with go-redis's default options, changed by edit.
// It is closed when the test ends.
func (s *Server) Client(tb testing.TB, edit ...func(*redis.Options)) *redis.Client {
	opts := &redis.Options{Addr: s.Addr()}
	for _, f := range edit {
		f(opts)
	}
	rdb := redis.NewClient(opts)
	tb.Cleanup(func() { _ = rdb.Close() }) // the test may have closed it
	return rdb
}

// Kill sends SIGKILL and returns when the process is gone. It works on a
// stopped server, and does nothing to a dead one.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.proc.kill()
	}
}

// Restart kills the server if it still runs and starts it again on the same
// port, in the same directory: empty, unless args have switched on persistence.
func (s *Server) Restart() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.kill()
	if err := s.run(); err != nil {
		s.tb.Error(err)
	}
}

// Stop sends SIGSTOP and returns when the server stands still: connections
// stay open, new ones are accepted by the kernel, nothing is answered.
func (s *Server) Stop() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.stop(); err != nil {
		s.tb.Errorf("stop redis-server: %v", err)
	}
	s.stopped = true
}

// Cont ends a [Server.Stop]. The server executes what has arrived meanwhile.
func (s *Server) Cont() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.cont(); err != nil {
		s.tb.Errorf("continue redis-server: %v", err)
	}
	s.stopped = false
}

// runs reports whether the server should answer: it is neither dead nor stopped.
func (s *Server) runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.proc.done:
		return false
	default:
		return !s.stopped
	}
}
