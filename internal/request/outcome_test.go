package request

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// As Redis 7, Redis 6.2 and Redis 6.2 after a pcall say the same.
func TestHasCode(t *testing.T) {
	for _, text := range []string{
		"READONLY You can't write against a read only replica.",
		"ERR Error running script (call to f_fab): @user_script:4: @user_script: 4: -READONLY You can't write",
		"@user_script: 509: -READONLY You can't write against a read only replica.",
	} {
		require.True(t, HasCode(answer(text), "READONLY"), text)
		require.False(t, HasCode(answer(text), "OOM"), text)
		outcome, final := Classify(answer(text))
		require.Equal(t, NotExecuted, outcome, text)
		require.False(t, final, text)
	}
	require.False(t, HasCode(answer("@user_script: 1: no READONLY at the beginning"), "READONLY"))

	// Redis 6.2 wraps what a script raises, whatever is in it: such a script has been executed up to there.
	for _, raised := range []string{"account 7 is READONLY now", "ROOM 12 is taken", "it is BUSY , or LOADING data", "TASK 5 failed"} {
		raised := answer("ERR Error running script (call to f_fab): @user_script:1: user_script:1: " + raised)
		require.False(t, HasCode(raised, "READONLY", "OOM", "BUSY", "LOADING", "ASK"), raised)
		outcome, final := Classify(raised)
		require.Equal(t, Unknown, outcome, raised)
		require.True(t, final, raised)
	}

	// An error of a command in a script, which has been executed up to there.
	full := answer("BUSYGROUP Consumer Group name already exists script: f_fab, on @user_script:1.")
	require.False(t, HasCode(full, "BUSY"))
	outcome, final := Classify(full)
	require.Equal(t, Unknown, outcome)
	require.True(t, final)
}

// An address that cannot be, and another service at the address, are the end: repeating helps neither. A
// name that is not found, and a broken reply on a connection that was set up, may be another moment's.
func TestHopelessAddresses(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	web := errors.New(`redis: can't parse map reply: "HTTP/1.1 400 Bad Request"`)
	for _, tt := range []struct {
		err   error
		final bool
	}{
		{dial(&net.AddrError{Err: "missing port in address"}), true},
		{dial(net.UnknownNetworkError("foo")), true},
		{dial(&net.DNSError{Err: "unknown port", Name: "tcp/foo", IsNotFound: true}), true},
		{dial(&net.DNSError{Err: "no such host", IsNotFound: true}), false},
		{dial(os.ErrDeadlineExceeded), false},
		{&unsentError{web}, true},
		{&unsentError{io.EOF}, false},
	} {
		o, final := Classify(tt.err)
		require.Equal(t, NotExecuted, o, tt.err)
		require.Equal(t, tt.final, final, tt.err)
	}
	o, final := Classify(web)
	require.Equal(t, Unknown, o)
	require.False(t, final)
}
