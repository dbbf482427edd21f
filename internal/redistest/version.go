package redistest

import (
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// told is what the binary says of itself: "Redis server v=7.0.15 sha=…",
// "Valkey server v=9.1.2 …".
var told = regexp.MustCompile(`^(\w+) server v=((\d+)\.[\d.]+)`)

// version asks the binary once.
var version = sync.OnceValue(func() []string {
	out, _ := exec.Command(binary(), "--version").Output() // Start says what is wrong with it
	return told.FindStringSubmatch(string(out))
})

// before7 reports whether the server lacks what Redis 7.0 has brought. KeyDB is
// compatible with Redis 6; the other forks began later.
func before7() bool {
	v := version()
	if v == nil {
		return false
	}
	major, _ := strconv.Atoi(v[3])
	return (v[1] == "Redis" || v[1] == "KeyDB") && major < 7
}

// Since7 skips a test of what Redis has since 7.0, and its forks since they exist,
// on a server that does not have it.
func Since7(tb testing.TB, what string) {
	tb.Helper()
	if before7() {
		tb.Skipf("%s %s has no %s", version()[1], version()[2], what)
	}
}

// TLS skips a test on a server that was built without TLS.
func TLS(tb testing.TB) {
	tb.Helper()
	if binary() == "none" {
		tb.Skip("needs a redis-server")
	}
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	// Without a certificate it does not start, and says so if it knows what that is.
	out, _ := exec.CommandContext(ctx, binary(), "--port", "0", "--tls-port", "1").CombinedOutput()
	if !strings.Contains(string(out), "tls-cert-file configured") {
		tb.Skip("the server was built without TLS")
	}
}
