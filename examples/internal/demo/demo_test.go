package demo

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestServer(t *testing.T) {
	opts, stop, err := Server("")
	require.NoError(t, err)
	require.Contains(t, opts.Addr, "127.0.0.1:", "nobody else can use it")
	stop()
	_, _, err = Server("redis://" + opts.Addr)
	require.ErrorContains(t, err, "no Redis at "+opts.Addr)
	_, _, err = Server("127.0.0.1:6379")
	require.Error(t, err)

	_, _, err = Server("redis://:wrong@" + redistest.Start(t, "--requirepass", "right").Addr())
	require.ErrorContains(t, err, "WRONGPASS")
}
