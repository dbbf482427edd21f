package rlock

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/xid"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// FuzzNames: a name is refused exactly if, with what Redisson's rule makes of it,
// it would not work on every topology: key, channel and counter in one slot.
func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"", "a", "invoice:42", "{a", "a}", "a}b", "}{a}", "{}x", "{}{t}", "a{t}b", "a{t}b{c}", "{{a}}", "{a}{", "{", "}",
		"\x00\xff{\xfe}", "ключ", strings.Repeat("x", maxNameSize), strings.Repeat("x", maxNameSize+1),
	} {
		f.Add("", name)
		f.Add("app{", name)
		f.Add("app:", name)
	}
	f.Fuzz(func(t *testing.T, prefix, name string) {
		key := prefix + name
		channel, counter := "redisson_lock__channel:{"+key+"}", "redisson_lock_token:{"+key+"}"
		if strings.Contains(key, "{") {
			channel, counter = "redisson_lock__channel:"+key, "redisson_lock_token:"+key
		}
		together := hashed(key) == hashed(channel) && hashed(key) == hashed(counter)
		want := name != "" && len(key) <= maxNameSize && together
		if err := checkName(prefix, name); (err == nil) != want {
			t.Fatalf("checkName(%q, %q) = %v; hashed are %q, %q, %q", prefix, name, err, hashed(key), hashed(channel), hashed(counter))
		}
		if got := lua.Related("redisson_lock__channel", key); got != channel {
			t.Errorf("the channel of %q is %q, not %q", key, channel, got)
		}
		if got := lua.Related("redisson_lock_token", key); got != counter {
			t.Errorf("the counter of %q is %q, not %q", key, counter, got)
		}
	})
}

// hashed is what Redis hashes of a key: keyHashSlot of its cluster.c, line by line.
func hashed(key string) string {
	s := 0
	for s < len(key) && key[s] != '{' {
		s++
	}
	if s == len(key) {
		return key
	}
	e := s + 1
	for e < len(key) && key[e] != '}' {
		e++
	}
	if e == len(key) || e == s+1 {
		return key
	}
	return key[s+1 : e]
}

// Clients that are made at one time on machines that look alike have the time in common, and
// nothing else.
func TestClientIDsAreRandom(t *testing.T) {
	read := func() xid.ID {
		id, err := xid.FromString(newID())
		require.NoError(t, err)
		return id
	}
	a, b := read(), read()
	require.WithinDuration(t, a.Time(), b.Time(), 1e9)
	require.NotEqual(t, a[4:9], b[4:9], "machine and process")
	require.NotEqual(t, a[9:], b[9:])
}

// What begins before Close is waited for, by every Close that waits; what begins after it is
// refused, and keeps nobody.
func TestFakeTimeLifetimeWaitsForWhatHasBegun(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, _ := newFake(t)
		began := time.Now()
		require.NoError(t, c.begin())
		require.NoError(t, c.server.Closed())
		c.background(func() { time.Sleep(time.Second) })
		time.AfterFunc(2*time.Second, c.done)
		ended := make(chan error, 2)
		for range cap(ended) {
			go func() { ended <- c.Close(t.Context()) }()
		}
		synctest.Wait()
		require.Equal(t, ErrClosed, c.begin())
		require.Equal(t, ErrClosed, c.server.Closed())
		for range cap(ended) {
			require.NoError(t, <-ended)
		}
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

// A context that has ended leaves what ends by itself a moment, and nothing else.
func TestFakeTimeLifetimeHasAGrace(t *testing.T) {
	for name, tt := range map[string]struct {
		lasts, took time.Duration
		want        error
	}{
		"nothing is under way": {0, 0, nil},
		"it ends by itself":    {closeGrace - 1, closeGrace - 1, nil},
		"it does not":          {time.Second, closeGrace, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c, _, _ := newFake(t)
				if tt.lasts > 0 {
					c.background(func() { time.Sleep(tt.lasts) })
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				began := time.Now()
				require.ErrorIs(t, c.wait(ctx), tt.want)
				require.Equal(t, tt.took, time.Since(began))
			})
		})
	}
}

// A pause ends with the context of who makes it, and when the client closes.
func TestFakeTimeLifetimeSleeps(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, _ := newFake(t)
		began := time.Now()
		require.True(t, c.sleep(t.Context(), time.Second))
		require.False(t, c.sleep(within(t, time.Second), time.Minute))
		require.Equal(t, 2*time.Second, time.Since(began))
		time.AfterFunc(time.Second, func() { _ = c.Close(context.Background()) })
		require.False(t, c.sleep(t.Context(), time.Minute))
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}
