package redistest

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// logEnv has the server logs of failed tests printed. They seldom tell why a
// test has failed, and a page of them hides what does.
const logEnv = "REDISTEST_LOG"

// hinted are the tests that have told of logEnv.
var hinted sync.Map

// showLog prints a server's log if its test has failed, or once how to see it.
func showLog(tb testing.TB, of, path string) {
	tb.Helper()
	if !tb.Failed() {
		return
	}
	if os.Getenv(logEnv) != "" {
		tb.Logf("log of redis-server %s:\n%s", of, logTail(path))
		return
	}
	if _, told := hinted.LoadOrStore(tb, true); !told {
		tb.Logf("%s=1 shows the server logs", logEnv)
	}
}

// logTail returns the end of a log file, for the message of a failed test.
func logTail(path string) string {
	const limit = 8 << 10
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(b) > limit {
		return fmt.Sprintf("[%d bytes left out]%s", len(b)-limit, b[len(b)-limit:])
	}
	return string(b)
}
