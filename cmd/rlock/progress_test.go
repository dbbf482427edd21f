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

// A holder that tells who it is is named by that, and its lease, which it renews, left out.
func TestHolderIsDescribed(t *testing.T) {
	now := time.Date(2025, 11, 20, 16, 0, 0, 0, time.Local)
	known := holder{owner: "x:1", host: hostView{Host: "vm", Program: "rlock", PID: 7}, purpose: "nightly invoices 1", since: now.Add(-125 * time.Minute), ttl: 20 * time.Second}
	endless, long, bare := known, known, holder{owner: "x:1\x1b"}
	endless.ttl, long.since, long.purpose = -1, now.Add(-17*time.Hour), ""
	for want, h := range map[string]holder{
		`held by vm rlock[7] for "nightly invoices 1", since 13:55:00 (x:1)`: known,
		`held by vm rlock[7], since 2025-11-19 23:00:00 (x:1)`:               long,
		`held by x:1, with 21s of the lease left`:                            {owner: "x:1", ttl: 21300 * time.Millisecond},
		`held by "x:1\x1b"`: bare,
		`held by vm rlock[7] for "nightly invoices 1", since 13:55:00, without a TTL: it does not end by itself, see rlock unlock (x:1)`: endless,
	} {
		require.Equal(t, want, h.describe(now))
	}
}

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
		{state(ours, at(-90*time.Second), 20*time.Second), nil, "held by " + ours + ", since 15:58:30, with 20s of the lease left"},
		{state(ours, at(time.Minute), 20*time.Second), nil, "held by " + ours + ", with 20s of the lease left"},
		{state(ours, 17, 20*time.Second), nil, "held by " + ours + ", with 20s of the lease left"},
		{state(ours, at(-2*time.Hour), 20*time.Second), nil, "held by " + ours + ", with 20s of the lease left"},
		{state("uuid:1", at(-time.Minute), -1), nil, "held by uuid:1, without a TTL: it does not end by itself, see rlock unlock"},
		{rlock.State{}, nil, "just released"},
		{rlock.State{}, errors.New("x"), "Redis does not answer"},
	} {
		var h holder
		h.owner = h.stillOf(tc.state)
		require.Equal(t, tc.want, h.seen(tc.state, tc.err, now))
	}
	h := holder{owner: "r:2"}
	readers := rlock.State{Holds: map[string]int64{"r:1": 1, "r:2": 1, "r:3": 1}}
	require.Equal(t, "r:2", h.stillOf(readers), "it is the same one")
	h.owner = ""
	require.Equal(t, "r:1", h.stillOf(readers))
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
	require.Contains(t, (&holder{owner: owner}).seen(state, nil, now), ", since ")
	state.Shared = state.Holds
	require.NotContains(t, (&holder{owner: owner}).seen(state, nil, now), ", since ")
}
