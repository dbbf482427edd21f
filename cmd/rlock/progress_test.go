package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rs/xid"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

func TestProgressDescribesTheHolder(t *testing.T) {
	now := time.Date(2025, 11, 20, 16, 0, 0, 0, time.Local)
	state := func(owner string, token int64, ttl time.Duration) rlock.State {
		return rlock.State{Holds: map[string]int64{owner: 1}, Token: token, TTL: ttl}
	}
	ours := xid.NewWithTime(now.Add(-time.Hour)).String() + ":3"
	at := func(d time.Duration) int64 { return now.Add(d).UnixMicro() }
	for _, tc := range []struct {
		state rlock.State
		err   error
		want  string
	}{
		{state(ours, at(-90*time.Second), 20*time.Second), nil, "held by " + ours + ", since 15:58:30 (1m30s), lease 20s"},
		{state(ours, at(time.Minute), 20*time.Second), nil, "held by " + ours + ", seen 16:00:00 (0s), lease 20s"},
		{state(ours, 17, 20*time.Second), nil, "held by " + ours + ", seen 16:00:00 (0s), lease 20s"},
		{state(ours, at(-2*time.Hour), 20*time.Second), nil, "held by " + ours + ", seen 16:00:00 (0s), lease 20s"},
		{state("uuid:1", at(-time.Minute), -1), nil, "held by uuid:1, seen 16:00:00 (0s), lease no end"},
		{rlock.State{}, nil, "just released"},
		{rlock.State{}, errors.New("x"), "Redis does not answer"},
	} {
		require.Equal(t, tc.want, new(holder).describe(tc.state, tc.err, now))
	}
	var h holder
	h.describe(state("uuid:1", 0, time.Second), nil, now)
	require.Equal(t, "held by uuid:1, seen 16:00:00 (5s), lease 1s", h.describe(state("uuid:1", 0, time.Second), nil, now.Add(5*time.Second)))
	require.Equal(t, "held by uuid:2, seen 16:00:06 (0s), lease 1s", h.describe(state("uuid:2", 0, time.Second), nil, now.Add(6*time.Second)))
	h.where = "h p[1]"
	require.Equal(t, "held by h p[1], seen 16:00:06 (1s), lease 1s", h.describe(state("uuid:2", 0, time.Second), nil, now.Add(7*time.Second)))
}

// Texts in so many columns of a terminal: half-width kana, pictures, a flag, what is put over
// another character, Devanagari.
func TestColumns(t *testing.T) {
	for text, columns := range map[string]int{
		"ascii": 5, "日本語": 6, "한국어": 6, "ﾊﾞｽ": 3, "🦀": 2, "⏰": 2, "✅": 2, "👍🏽": 2, "🇩🇪": 2, "e\u0301": 1, "नि": 2, "…": 1,
	} {
		require.Equal(t, text+"|", fit(text, columns)+"|")
		require.Equal(t, text+" |", fit(text, columns+1)+"|")
		require.Equal(t, " "+text, atRight(text, columns+1))
	}
	require.Empty(t, fit("日本", 0))
	require.Equal(t, "日… ", fit("日本語", 4))
	require.Equal(t, " 日…", atRight("日本語", 4))
}

func TestClip(t *testing.T) {
	require.Equal(t, "äöü", cut("äöü", 3))
	require.Equal(t, "äö…", cut("äöüß", 3))
	require.Equal(t, "…", cut("äö", 1))
	require.Equal(t, "ロ…", cut("ロック", 4), "each takes two columns")
}

// What is told of a wait after it leaves no line that nobody removes.
func TestProgressAfterTheWait(t *testing.T) {
	p := &progress{columns: 80, inspect: func(context.Context, string) (rlock.State, error) { return rlock.State{}, nil }}
	p.done()
	p.waiting(t.Context(), rlock.Refusal{Lock: "a"})
	require.Nil(t, p.stop)
}

// Who reads what is written may stand still: the wait ends all the same.
func TestProgressThatNobodyReads(t *testing.T) {
	for _, columns := range []int{0, 80} {
		out, in := fullPipe(t)
		p := &progress{out: in, columns: columns, inspect: func(context.Context, string) (rlock.State, error) { return rlock.State{}, nil }}
		p.waiting(t.Context(), rlock.Refusal{Lock: "a"})
		p.done()
		require.NoError(t, errors.Join(out.Close(), in.Close()))
		<-p.stopped
	}
}

// A reader has the token of the writer before it, which does not say since when it reads.
func TestProgressOfAReader(t *testing.T) {
	now := time.Now()
	owner := xid.NewWithTime(now.Add(-time.Hour)).String() + ":3"
	state := rlock.State{Holds: map[string]int64{owner: 1}, Token: now.Add(-time.Minute).UnixMicro()}
	require.Contains(t, new(holder).describe(state, nil, now), ", since ")
	state.Shared = state.Holds
	require.Contains(t, new(holder).describe(state, nil, now), ", seen ")
}
