package redistest

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Monitor sees every command that the server executes.
type Monitor struct {
	tb    testing.TB
	s     *Server
	conn  net.Conn
	r     *bufio.Reader
	marks int
}

// Command is one line of MONITOR.
type Command struct {
	Time   time.Time // the server's clock
	Client string    // address as the server sees it, or "lua" for a call by a script
	Args   []string
}

// Monitor starts recording. It ends with the test, or with [Monitor.Stop].
func (s *Server) Monitor(tb testing.TB) *Monitor {
	tb.Helper()
	conn, err := net.DialTimeout("unix", s.socket(), limit)
	if err != nil {
		tb.Fatal(err)
	}
	m := &Monitor{tb: tb, s: s, conn: conn, r: bufio.NewReader(conn)}
	tb.Cleanup(m.Stop)
	if _, err := query(conn, m.r, "MONITOR"); err != nil {
		tb.Fatal(err)
	}
	return m
}

// Commands returns what was executed since the last call. Everything that a
// client has a reply for is there: Commands sends a mark behind it and reads on
// until that comes by.
func (m *Monitor) Commands() []Command {
	m.tb.Helper()
	m.marks++
	mark := fmt.Sprintf("monitor-%p-%d", m, m.marks)
	if _, err := m.s.ask("PING " + mark); err != nil {
		m.tb.Fatal(err)
	}
	if err := m.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		m.tb.Fatal(err)
	}
	var commands []Command
	for {
		line, err := m.r.ReadString('\n')
		if err != nil {
			m.tb.Fatalf("monitor: %v", err)
		}
		c, err := parseMonitor(strings.TrimRight(line, "\r\n"))
		switch {
		case err != nil:
			m.tb.Fatal(err)
		case c.Args[len(c.Args)-1] == mark:
			return commands
		case !strings.HasPrefix(c.Client, "unix:"):
			commands = append(commands, c)
		}
	}
}

// Stop ends the recording. What Commands has not fetched is lost.
func (m *Monitor) Stop() { _ = m.conn.Close() }

// parseMonitor reads +1700000000.123456 [0 127.0.0.1:6379] "get" "key".
func parseMonitor(line string) (Command, error) {
	bad := fmt.Errorf("not a line of MONITOR: %q", line)
	stamp, rest, _ := strings.Cut(strings.TrimPrefix(line, "+"), " [")
	source, rest, ok := strings.Cut(rest, "] ")
	_, client, ok2 := strings.Cut(source, " ")
	seconds, micros, _ := strings.Cut(stamp, ".")
	sec, err1 := strconv.ParseInt(seconds, 10, 64)
	usec, err2 := strconv.ParseInt(micros, 10, 64)
	if !ok || !ok2 || err1 != nil || err2 != nil || rest == "" {
		return Command{}, bad
	}
	c := Command{Time: time.Unix(sec, usec*1000), Client: client}
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return Command{}, bad
		}
		arg, err := strconv.Unquote(quoted) // the server's escapes are a subset of Go's
		if err != nil {
			return Command{}, bad
		}
		c.Args = append(c.Args, arg)
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	return c, nil
}
