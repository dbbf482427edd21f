package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// outcome is a test that has ended, as far as showLog asks.
type outcome struct {
	testing.TB
	failed bool
	said   []string
}

func (o *outcome) Helper()      {}
func (o *outcome) Failed() bool { return o.failed }

func (o *outcome) Logf(format string, args ...any) {
	o.said = append(o.said, fmt.Sprintf(format, args...))
}

func TestLogsOnDemand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte("Ready to accept connections"), 0o600))
	t.Setenv(logEnv, "")
	passed, failed := &outcome{}, &outcome{failed: true}
	for _, addr := range []string{"a:1", "b:2"} {
		showLog(passed, addr, path)
		showLog(failed, addr, path)
	}
	require.Empty(t, passed.said)
	require.Equal(t, []string{"REDISTEST_LOG=1 shows the server logs"}, failed.said, "once")

	t.Setenv(logEnv, "1")
	asked := &outcome{failed: true}
	showLog(asked, "a:1", path)
	require.Equal(t, []string{"log of redis-server a:1:\nReady to accept connections"}, asked.said)
}
