package netfault_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
)

const limit = 10 * time.Second

func setup(t *testing.T) (*redistest.Server, *netfault.Proxy) {
	s := redistest.Start(t)
	return s, netfault.New(t, s.Addr())
}

func once(o *redis.Options) { o.MaxRetries = -1 }

func impatient(o *redis.Options) {
	o.MaxRetries, o.ReadTimeout = -1, 250*time.Millisecond
}

// through returns a client behind p.
func through(t *testing.T, s *redistest.Server, p *netfault.Proxy, edit ...func(*redis.Options)) *redis.Client {
	return s.Client(t, append([]func(*redis.Options){func(o *redis.Options) { o.Addr = p.Addr() }}, edit...)...)
}

func get(t *testing.T, s *redistest.Server, key string) string {
	t.Helper()
	v, err := s.Client(t).Get(t.Context(), key).Result()
	if err != redis.Nil {
		require.NoError(t, err)
	}
	return v
}

func eventually(t *testing.T, s *redistest.Server, key, want string) {
	t.Helper()
	rdb := s.Client(t)
	redistest.Eventually(t, key+" = "+want, func() bool { return rdb.Get(t.Context(), key).Val() == want })
}

func TestPassThrough(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			s, p := setup(t)
			rdb := through(t, s, p, func(o *redis.Options) { o.Protocol = protocol })
			large := strings.Repeat("\r\n$5*", 1<<20)
			require.NoError(t, rdb.Set(t.Context(), "large", large, 0).Err())
			got, err := rdb.Get(t.Context(), "large").Result()
			require.NoError(t, err)
			require.True(t, got == large)

			sub := rdb.Subscribe(t.Context(), "a", "b")
			defer func() { require.NoError(t, sub.Close()) }()
			for range 2 {
				_, err := sub.Receive(t.Context())
				require.NoError(t, err)
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 50 {
						_, err := rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
							for range 10 {
								pipe.Incr(t.Context(), "n")
							}
							pipe.Publish(t.Context(), "a", "x")
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			require.Equal(t, "4000", get(t, s, "n"))
			for range 8 * 50 {
				m, err := sub.ReceiveMessage(t.Context())
				require.NoError(t, err)
				require.Equal(t, "x", m.Payload)
			}
			require.NoError(t, sub.Ping(t.Context()))
			_, err = sub.Receive(t.Context())
			require.NoError(t, err)

			require.Equal(t, 1, p.Connections("subscribe"))
			require.Greater(t, p.Connections(), 1)
			stats := p.Stats()
			require.GreaterOrEqual(t, stats.Requests, int64(8*50*11))
			require.EqualValues(t, p.Connections(), stats.Accepted)
			require.Equal(t, netfault.Stats{Accepted: stats.Accepted, Requests: stats.Requests}, stats)
		})
	}
}

func TestCutReplies(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*redis.Options)
		cuts int
		want string
		ok   bool
	}{
		{"sent once", once, 1, "1", false},
		{"sent again", func(*redis.Options) {}, 1, "2", true},
		{"sent four times", func(*redis.Options) {}, 9, "4", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, p := setup(t)
			rdb := through(t, s, p, tc.edit)
			p.CutReplies(tc.cuts, netfault.Command("INCR"))
			require.NoError(t, rdb.Ping(t.Context()).Err(), "not meant")
			err := rdb.Incr(t.Context(), "n").Err()
			require.Equal(t, tc.ok, err == nil, err)
			require.Equal(t, tc.want, get(t, s, "n"))
			require.Positive(t, p.Stats().RepliesCut)
			p.Heal()
			require.NoError(t, rdb.Incr(t.Context(), "n").Err())
		})
	}
}

func TestCutRepliesOfAnyRequest(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p, once)
	p.CutReplies(1, nil)
	require.Error(t, rdb.Ping(t.Context()).Err())
	require.EqualValues(t, 1, p.Stats().RepliesCut)
	require.NoError(t, rdb.Ping(t.Context()).Err())
}

func TestCutRepliesInsideAPipeline(t *testing.T) {
	s, p := setup(t)
	p.CutReplies(1, netfault.Arg("b"))
	c := dial(t, p)
	c.send(t, "INCR a", "INCR b", "INCR c")
	c.expect(t, ":1") // what came before the cut arrives
	_, err := c.r.ReadByte()
	require.ErrorContains(t, err, "reset by peer")
	require.Equal(t, "1", get(t, s, "b"))
}

func TestCutRepliesOfSubscribe(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p)
	p.CutReplies(1, netfault.Command("subscribe"))
	sub := rdb.Subscribe(t.Context(), "a", "b")
	defer func() { require.NoError(t, sub.Close()) }()
	redistest.Eventually(t, "the cut subscription is repeated", func() bool {
		_, err := sub.ReceiveTimeout(t.Context(), limit)
		return err == nil && p.Stats().RepliesCut == 1
	})
}

func TestCutRandom(t *testing.T) {
	run := func(seed uint64) (failed string) {
		s, p := setup(t)
		rdb := through(t, s, p, once)
		p.CutRandom(0.3, seed, netfault.Command("incr"))
		for range 50 {
			if rdb.Incr(t.Context(), "n").Err() == nil {
				failed += "."
			} else {
				failed += "x"
			}
		}
		require.Equal(t, "50", get(t, s, "n"))
		require.EqualValues(t, strings.Count(failed, "x"), p.Stats().RepliesCut)
		return failed
	}
	first := run(1)
	require.Contains(t, first, "x")
	require.Contains(t, first, ".")
	require.Equal(t, first, run(1))
	require.NotEqual(t, first, run(2))
}

func TestHoldOutlivesTheClient(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p, impatient)
	h := p.Hold(netfault.Command("incr"))
	require.Error(t, h.Deliver(t.Context()), "nothing caught yet")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, h.Wait(canceled), context.Canceled)

	require.ErrorIs(t, rdb.Incr(t.Context(), "n").Err(), os.ErrDeadlineExceeded)
	require.NoError(t, h.Wait(t.Context()))
	require.Equal(t, []string{"incr", "n"}, h.Args())
	redistest.Eventually(t, "the client has closed", func() bool { return p.Connections() == 0 })
	p.CutAll()
	p.Heal()
	require.Empty(t, get(t, s, "n"))

	require.NoError(t, through(t, s, p).IncrBy(t.Context(), "n", 10).Err(), "only one is held")
	require.NoError(t, h.Deliver(t.Context()))
	require.Equal(t, "11", get(t, s, "n"))
	require.NoError(t, h.Deliver(t.Context()), "once is enough")
	require.Equal(t, "11", get(t, s, "n"))
	require.EqualValues(t, 1, p.Stats().Held)
	require.EqualValues(t, 1, p.Stats().HeldReplied)
}

func TestHoldWithPatientClient(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p)
	h := p.Hold(netfault.Arg("b"))
	pipe := rdb.Pipeline()
	a, b, c := pipe.Incr(t.Context(), "a"), pipe.Incr(t.Context(), "b"), pipe.Incr(t.Context(), "c")
	done := make(chan error)
	go func() {
		_, err := pipe.Exec(context.Background())
		done <- err
	}()
	require.NoError(t, h.Wait(t.Context()))
	eventually(t, s, "a", "1")
	require.Empty(t, get(t, s, "b"))
	require.NoError(t, h.Deliver(t.Context()))
	require.NoError(t, <-done)
	for _, cmd := range []*redis.IntCmd{a, b, c} {
		require.EqualValues(t, 1, cmd.Val())
	}
}

func TestHoldLosesItsServer(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p, impatient)
	h := p.Hold(netfault.Command("incr"))
	require.Error(t, rdb.Incr(t.Context(), "n").Err())
	s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, h.Deliver(ctx), context.DeadlineExceeded)
	s.Kill()
	require.ErrorContains(t, h.Deliver(t.Context()), "connection lost")
}

func TestLateRandom(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p, once)
	p.LateRandom(1, 50*time.Millisecond, 100*time.Millisecond, 1, netfault.Command("incr"))
	start := time.Now()
	require.Error(t, rdb.Incr(t.Context(), "n").Err())
	p.Heal()
	require.NoError(t, rdb.IncrBy(t.Context(), "n", 10).Err())
	eventually(t, s, "n", "11")
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
	redistest.Eventually(t, "the server has answered", func() bool { return p.Stats().LateReplied == 1 })
	require.EqualValues(t, 1, p.Stats().Late)
	require.Zero(t, p.Stats().LatePending)
}

func TestLateRequestLosesItsServer(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p, once)
	p.LateRandom(1, time.Hour, time.Hour, 1, netfault.Command("incr"))
	require.Error(t, rdb.Incr(t.Context(), "n").Err())
	require.EqualValues(t, 1, p.Stats().LatePending)
	s.Kill()
	redistest.Eventually(t, "the request is lost", func() bool { return p.Stats().LatePending == 0 })
	require.Zero(t, p.Stats().LateReplied)
}

// Whatever happens to a request, it is executed once or counted.
func TestNothingIsLostUnseen(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p, once)
	p.CutRandom(0.1, 1, netfault.Command("incr"))
	p.LateRandom(0.1, 0, 5*time.Millisecond, 2, netfault.Command("incr"))
	p.Delay(0, time.Millisecond)
	var answered atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if rdb.Incr(t.Context(), "n").Err() == nil {
					answered.Add(1)
				}
			}
		})
	}
	wg.Wait()
	redistest.Eventually(t, "nothing is late any more", func() bool { return p.Stats().LatePending == 0 })
	stats := p.Stats()
	require.Positive(t, stats.RepliesCut)
	require.Positive(t, stats.LateReplied)
	require.EqualValues(t, 8*50, answered.Load()+stats.RepliesCut+stats.LateReplied)
	require.Equal(t, "400", get(t, s, "n"))
}

func TestDropUp(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p, impatient)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	p.DropUp(true)
	for range 2 { // a connection that was open, and a new one
		require.ErrorIs(t, rdb.Incr(t.Context(), "n").Err(), os.ErrDeadlineExceeded)
	}
	p.DropUp(false)
	require.NoError(t, through(t, s, p).IncrBy(t.Context(), "n", 10).Err())
	require.Equal(t, "10", get(t, s, "n"))
	require.GreaterOrEqual(t, p.Stats().Dropped, int64(2))
}

func TestDropDown(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p, impatient)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	p.DropDown(true)
	require.ErrorIs(t, rdb.Incr(t.Context(), "n").Err(), os.ErrDeadlineExceeded)
	eventually(t, s, "n", "1")
	require.ErrorIs(t, rdb.Incr(t.Context(), "n").Err(), os.ErrDeadlineExceeded, "a new connection")
	p.Heal()
	require.NoError(t, through(t, s, p).IncrBy(t.Context(), "n", 10).Err())
	require.Equal(t, "11", get(t, s, "n"), "the new connection got no answer to HELLO")
}

func TestDropDownOfPubSubOnly(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p, impatient)
	sub := rdb.Subscribe(t.Context(), "a")
	defer func() { require.NoError(t, sub.Close()) }()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)

	p.DropDown(true, "subscribe")
	n, err := rdb.Publish(t.Context(), "a", "lost").Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	redistest.Eventually(t, "the message is swallowed", func() bool { return p.Stats().Dropped == 1 })

	p.Heal()
	require.NoError(t, rdb.Publish(t.Context(), "a", "behind the gap").Err())
	redistest.Eventually(t, "and what follows", func() bool { return p.Stats().Dropped == 2 })
	require.Equal(t, 1, p.Connections("subscribe"))
	p.CutAll("subscribe")
	require.Equal(t, 0, p.Connections("subscribe"))
	require.Equal(t, 1, p.Connections())
	redistest.Eventually(t, "it has subscribed again", func() bool {
		_, err := sub.ReceiveTimeout(t.Context(), limit)
		return err == nil
	})
}

// witness is a test that may fail.
type witness struct {
	testing.TB
	errors chan string
}

func (w *witness) Errorf(format string, args ...any) { w.errors <- fmt.Sprintf(format, args...) }

func TestForeignTrafficFailsTheTest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	w := &witness{TB: t, errors: make(chan string, 1)}
	c := dial(t, netfault.New(w, l.Addr().String()))
	server, err := l.Accept()
	require.NoError(t, err)
	defer func() { _ = server.Close() }()
	_, err = io.WriteString(server, "HTTP/1.1 400 Bad Request\r\n")
	require.NoError(t, err)
	require.Contains(t, <-w.errors, "malformed RESP")
	_, err = c.r.ReadByte()
	require.Equal(t, io.EOF, err)
}

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

func TestDelay(t *testing.T) {
	_, p := setup(t)
	for _, tc := range []struct{ up, down time.Duration }{
		{30 * time.Millisecond, 0},
		{0, 30 * time.Millisecond},
		{20 * time.Millisecond, 20 * time.Millisecond},
	} {
		p.Delay(tc.up, tc.down)
		c := dial(t, p)
		start := time.Now()
		c.send(t, "PING")
		c.expect(t, "+PONG")
		require.GreaterOrEqual(t, time.Since(start), tc.up+tc.down)
	}
}

func TestDelayKeepsThroughput(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p)
	const delay, batch = 20 * time.Millisecond, 1000
	p.Delay(delay, delay)
	start := time.Now()
	cmds, err := rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for range batch {
			pipe.Incr(t.Context(), "n")
		}
		return nil
	})
	require.NoError(t, err)
	for i, cmd := range cmds {
		require.EqualValues(t, i+1, cmd.(*redis.IntCmd).Val())
	}
	require.GreaterOrEqual(t, time.Since(start), 2*delay)
	require.Less(t, time.Since(start), batch*delay/4, "one after the other it would take 40 s")
}

func TestDelayKeepsOrder(t *testing.T) {
	_, p := setup(t)
	c := dial(t, p)
	c.send(t, "SET n 0")
	c.expect(t, "+OK")
	p.Delay(50*time.Millisecond, 0)
	c.send(t, "INCR n")
	redistest.Eventually(t, "the proxy has read it", func() bool { return p.Connections("incr") == 1 })
	p.Delay(0, 0)
	c.send(t, "INCR n", "INCR n")
	c.expect(t, ":1", ":2", ":3")
}
