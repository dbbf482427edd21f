package netfault_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
)

// conversation is a bare connection, on which a test can wait for the end.
type conversation struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, p *netfault.Proxy) *conversation {
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(limit)))
	return &conversation{c, bufio.NewReader(c)}
}

func (c *conversation) send(t *testing.T, requests ...string) {
	_, err := io.WriteString(c, strings.Join(requests, "\r\n")+"\r\n")
	require.NoError(t, err)
}

func (c *conversation) expect(t *testing.T, replies ...string) {
	t.Helper()
	for _, want := range replies {
		got, err := c.r.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, want+"\r\n", got)
	}
}

// refused connects and expects a reset, which may come before dialling is done.
func refused(t *testing.T, p *netfault.Proxy) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		_ = c.Close()
	}
	require.ErrorContains(t, err, "reset by peer")
}

func TestEndsArePassedOn(t *testing.T) {
	s, p := setup(t)
	c := dial(t, p)
	c.send(t, "SET k 1")
	c.expect(t, "+OK")
	require.Len(t, s.Clients(t, "normal"), 1)
	require.NoError(t, c.Close())
	redistest.Eventually(t, "the server sees the client leave", func() bool { return len(s.Clients(t, "normal")) == 0 })
	redistest.Eventually(t, "so does the proxy", func() bool { return p.Connections() == 0 })

	c = dial(t, p)
	c.send(t, "INCR k")
	require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
	c.expect(t, ":2")
	_, err := c.r.ReadByte()
	require.Equal(t, io.EOF, err)

	c = dial(t, p)
	c.send(t, "PING")
	c.expect(t, "+PONG")
	s.Kill()
	_, err = c.r.ReadByte()
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)

	refused(t, p)
	s.Restart()
	c = dial(t, p)
	c.send(t, "PING")
	c.expect(t, "+PONG")
}

func TestEndsAreDropped(t *testing.T) {
	s, p := setup(t)
	c := dial(t, p)
	c.send(t, "PING")
	c.expect(t, "+PONG")
	p.DropUp(true)
	require.NoError(t, c.Close())
	redistest.Eventually(t, "the proxy sees the client leave", func() bool { return p.Connections() == 0 })
	require.Len(t, s.Clients(t, "normal"), 1)
	p.Heal()
	redistest.Eventually(t, "the server sees it", func() bool { return len(s.Clients(t, "normal")) == 0 })

	c = dial(t, p)
	c.send(t, "PING")
	c.expect(t, "+PONG")
	p.DropDown(true)
	s.Kill()
	require.NoError(t, c.SetDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := c.r.ReadByte()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	p.Heal()
	require.NoError(t, c.SetDeadline(time.Now().Add(limit)))
	_, err = c.r.ReadByte()
	require.Equal(t, io.EOF, err)
}

func TestRefuse(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p, once, func(o *redis.Options) { o.PoolSize = 1 })
	require.NoError(t, rdb.Ping(t.Context()).Err())
	p.Refuse(true)
	require.NoError(t, rdb.Ping(t.Context()).Err(), "an open connection stays")
	refused(t, p)
	require.EqualValues(t, 1, p.Stats().Refused)
	p.Heal()
	c := dial(t, p)
	c.send(t, "PING")
	c.expect(t, "+PONG")
}

func TestCutAll(t *testing.T) {
	s, p := setup(t)
	c, d := dial(t, p), dial(t, p)
	for _, c := range []*conversation{c, d} {
		c.send(t, "PING")
		c.expect(t, "+PONG")
	}
	p.CutAll()
	require.Zero(t, p.Connections())
	for _, c := range []*conversation{c, d} {
		_, err := c.r.ReadByte()
		require.ErrorContains(t, err, "reset by peer")
	}
	require.NoError(t, through(t, s, p).Ping(t.Context()).Err())
}

// A forgotten connection is silent, and nobody closes it; a new one is well.
func TestForget(t *testing.T) {
	s := redistest.Start(t)
	p := netfault.New(t, s.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: 200 * time.Millisecond, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	require.NoError(t, rdb.Ping(t.Context()).Err())
	require.Equal(t, 1, p.Forget())
	require.Zero(t, p.Forget())
	err := rdb.Ping(t.Context()).Err()
	var silence net.Error
	require.ErrorAs(t, err, &silence)
	require.True(t, silence.Timeout())
	require.NoError(t, rdb.Ping(t.Context()).Err())
}
