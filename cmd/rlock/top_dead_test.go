package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A deadlock that a client has found is a line below the locks, before the losses, and in JSON. The text is that of the
// record, except what a terminal would obey.
func TestTopShowsDeadlocks(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, ctx := srv.Client(t), t.Context()
	cycle, odd := `x:1 holds "b" and waits for "a", y:1 holds "a" and waits for "b"`, "\x1b[2J\xff"
	began := time.Now().Add(-time.Minute)
	r := record.Record{Who: record.Who{Host: "web-1", Program: "api", PID: 7}, Written: time.Now(), Entries: []record.Entry{
		{What: record.Waits, Name: "b", Kind: "plain", Since: began.Add(-time.Hour), Count: 2, Cycle: cycle, Under: []record.Under{{Owner: "y:1", Since: began}}},
		{What: record.Waits, Name: "d", Kind: "plain", Since: began.Add(time.Second), Count: 1, Cycle: odd},
		{What: record.Lost, Name: "c", Kind: "plain", Since: time.Now(), Count: 1, Cause: "gone"},
	}}
	require.NoError(t, lua.WriteRecord(ctx, rdb, record.Key("", "y"), record.Lasts, r.Fields()))
	require.NoError(t, enlist(ctx, rdb, record.List(""), "y", record.Lasts))

	o := outcome(t, srv.URL(), "top", "--once")
	require.Zero(t, o.code, o.stderr)
	require.Empty(t, obeyed(o.stdout))
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	require.Regexp(t, `^deadlock for 1m00s: x:1 holds 'b' and waits for 'a', y:1 holds 'a' and waits for 'b' \(in the log of web-1 api\[7\]\)$`, lines[len(lines)-3])
	require.Regexp(t, `^deadlock for 59s: "\\x1b\[2J\\xff" `, lines[len(lines)-2])
	require.Regexp(t, `^lost `, lines[len(lines)-1])

	var v topView
	o = outcome(t, srv.URL(), "top", "--once", "--json")
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &v))
	require.Len(t, v.Dead, 2)
	require.Equal(t, cycle, v.Dead[0].Cycle)
	require.Equal(t, "b", v.Dead[0].Name)
	o = outcome(t, srv.URL(), "top", "--once", "--json", "other*")
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &v))
	require.Empty(t, v.Dead)
}
