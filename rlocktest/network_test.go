package rlocktest

import (
	"context"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// connected returns both ends of a connection.
func connected(t *testing.T) (n *network, client, server net.Conn) {
	t.Helper()
	n = newNetwork(func(c net.Conn) { server = c })
	client, err := n.dial(t.Context(), "tcp", "redis")
	require.NoError(t, err)
	return n, client, server
}

func TestConnCarriesBothWays(t *testing.T) {
	_, client, server := connected(t)
	for _, dir := range []struct{ from, to net.Conn }{{client, server}, {server, client}} {
		_, err := dir.from.Write([]byte("hello"))
		require.NoError(t, err)
		got := make([]byte, 5)
		_, err = io.ReadFull(dir.to, got)
		require.NoError(t, err)
		require.Equal(t, "hello", string(got))
	}
}

func TestConnClose(t *testing.T) {
	_, client, server := connected(t)
	_, err := client.Write([]byte("last words"))
	require.NoError(t, err)
	require.NoError(t, client.Close())

	got, err := io.ReadAll(server)
	require.NoError(t, err)
	require.Equal(t, "last words", string(got))
	_, err = server.Write([]byte("too late"))
	require.ErrorIs(t, err, syscall.EPIPE)
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = client.Write([]byte("too late"))
	require.ErrorIs(t, err, syscall.EPIPE)
	require.NoError(t, client.Close())
}

func TestConnDeadline(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, client, server := connected(t)
		start := time.Now()
		require.NoError(t, client.SetDeadline(start.Add(time.Second)))
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))

		_, err = client.Read(make([]byte, 1)) // still over
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		require.NoError(t, client.SetReadDeadline(time.Time{}))
		go func() {
			time.Sleep(time.Hour)
			_ = client.SetReadDeadline(time.Now()) // wakes the reader
		}()
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second+time.Hour, time.Since(start))

		require.NoError(t, client.SetReadDeadline(time.Now().Add(time.Second)))
		_, err = server.Write([]byte("x"))
		require.NoError(t, err)
		_, err = client.Read(make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, client.Close())
	})
}

func TestHangHoldsBack(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		n, client, server := connected(t)
		n.set(hanging)
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, client.Close())
		_, err = n.dial(t.Context(), "tcp", "redis")
		require.NoError(t, err)

		require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err = server.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		require.NoError(t, server.SetReadDeadline(time.Time{}))
		time.AfterFunc(time.Hour, func() { n.set(healthy) })
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Equal(t, "x", string(got))
	})
}

func TestRefuseBreaks(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		n, client, server := connected(t)
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { n.set(refusing) })
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = server.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = client.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)

		_, err = n.dial(context.Background(), "tcp", "redis")
		var dial *net.OpError
		require.ErrorAs(t, err, &dial)
		require.Equal(t, "dial", dial.Op)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)

		n.set(healthy)
		_, err = client.Read(make([]byte, 1)) // stays broken
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = n.dial(context.Background(), "tcp", "redis")
		require.NoError(t, err)
	})
}
