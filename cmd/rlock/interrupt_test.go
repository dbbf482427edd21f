package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// A signal ends the doctor with a status of its own, not with that of a broken server, and
// nothing is left there.
func TestInterruptedDoctor(t *testing.T) {
	t.Parallel()
	for _, sig := range interrupts {
		srv := redistest.Start(t)
		p := begin(t, srv.URL(), "doctor")
		redistest.Eventually(t, "it examines the server", func() bool { return srv.CommandCalls(t)["config|get"] > 0 })
		require.NoError(t, p.cmd.Process.Signal(sig))
		require.Equal(t, exitSignal+int(sig.(syscall.Signal)), p.end().code)
		requireEmpty(t, srv)
	}
}

// A command that goes on until it is interrupted ignores HUP under nohup.
func TestInterruptIgnoredUnderNohup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := launch(t, wrap(prepare(t, f.URL()), `trap '' HUP; exec "$SELF" top --json --interval 100ms`))
	p.says("{")
	p.signal(syscall.SIGHUP)
	for range 3 {
		p.says("{")
	}
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.end().code)
}
