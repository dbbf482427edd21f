package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// CommandCalls returns how often the server has executed each command since it
// started: "evalsha", "client|list". Refused commands count too, commands called
// by a script as well as the script. Questions asked by this package count as
// "info", "client|list", "ping" and "monitor".
func (s *Server) CommandCalls(tb testing.TB) map[string]int64 {
	tb.Helper()
	reply, err := s.ask("INFO commandstats")
	if err != nil {
		tb.Fatal(err)
	}
	calls := make(map[string]int64)
	for line := range strings.Lines(reply) {
		name, stats, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue // the headline
		}
		n, _, _ := strings.Cut(stats, ",")
		if calls[name], err = strconv.ParseInt(n, 10, 64); err != nil {
			tb.Fatal(err)
		}
	}
	return calls
}

// Clients returns the fields of each connection in CLIENT LIST TYPE typ, which
// is "normal" or "pubsub". This package's own are left out.
func (s *Server) Clients(tb testing.TB, typ string) []map[string]string {
	tb.Helper()
	reply, err := s.ask("CLIENT LIST TYPE " + typ)
	if err != nil {
		tb.Fatal(err)
	}
	var clients []map[string]string
	for line := range strings.Lines(reply) {
		fields := make(map[string]string)
		for field := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(field, "=")
			fields[key] = value
		}
		if !strings.Contains(fields["addr"], s.socket()) { // which Valkey 9 puts in brackets
			clients = append(clients, fields)
		}
	}
	return clients
}

// ask sends one inline command on a connection of its own, so that no question
// is left waiting behind a Kill or Restart. An error reply is returned as error.
func (s *Server) ask(command string) (string, error) {
	conn, err := net.DialTimeout("unix", s.socket(), limit)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	return query(conn, bufio.NewReader(conn), command)
}

func query(w io.Writer, r *bufio.Reader, command string) (string, error) {
	if _, err := io.WriteString(w, command+"\r\n"); err != nil {
		return "", err
	}
	line, err := r.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("no answer to %s: %w", command, err)
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch line[0] {
	case '+':
		return line[1:], nil
	case '-':
		return "", errors.New(line[1:])
	case '$':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return "", fmt.Errorf("answer to %s: %q", command, line)
		}
		bulk := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(r, bulk)
		return string(bulk[:n]), err
	}
	return "", fmt.Errorf("answer to %s: %q", command, line)
}

// Eventually calls cond until it is true, and fails the test after 30 s. Unlike
// testify's, it asks at once and in the test's own goroutine, so that cond may
// use functions that call tb.Fatal.
func Eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	inTime(tb, 3*limit, what, cond)
}

func inTime(tb testing.TB, limit time.Duration, what string, cond func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(limit); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("after %v still not true: %s", limit, what)
		}
	}
}

// Goroutines is how many goroutines there are, as the lowest of several readings: while
// the runtime moves dead goroutines between its free lists, 32 of them are counted too.
func Goroutines() int {
	n := runtime.NumGoroutine()
	for range 10 {
		runtime.Gosched()
		n = min(n, runtime.NumGoroutine())
	}
	return n
}
