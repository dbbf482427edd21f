package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// sample is a view with everything that may be shown.
func sample() *topView {
	at := time.Date(2026, 11, 22, 12, 3, 22, 0, time.UTC)
	host := func(client, host, program string, pid int) hostView {
		return hostView{client, host, pid, program, "v1.4.0"}
	}
	api, worker, cron := host("c1", "web-1", "api", 4121), host("c2", "worker-7", "billing", 88), host("c3", "cron-1", "report", 9)
	holds := func(h hostView, n, purpose string, held time.Duration) holderView {
		return holderView{Owner: h.Client + ":" + n, hostView: h, Purpose: purpose, HeldMS: new(held.Milliseconds())}
	}
	ttl := func(d time.Duration) *int64 { return new(d.Milliseconds()) }
	return &topView{
		At:      at,
		Clients: []topClient{{api, at, 1204, 12.5, 0, 0}, {worker, at, 77, 0.2, 1, 0}, {cron, at, 2, 0.1, 0, 0}},
		records: clientRecords{
			"c1": {Record: record.Record{Rates: record.Rates{PerSecond: 12.5}}}, "c2": {Record: record.Record{Rates: record.Rates{PerSecond: 0.2}}},
			"c3": {Record: record.Record{Rates: record.Rates{PerSecond: 0.1}}},
		},
		Locks: []*topLock{
			{Name: "invoice:42", Kind: "plain", Holders: []holderView{holds(worker, "17", "monthly invoices", 63*time.Second)}, TTL: ttl(21 * time.Second), Waiters: 3, Waiting: []waitingView{{api, "reminder", 3, 61_000}}},
			{Name: "nightly-report", Kind: "fair", Holders: []holderView{holds(cron, "1", "report", 2*time.Hour+5*time.Minute)}, TTL: ttl(28 * time.Second)},
			{Name: "catalogue", Kind: "read", Holders: []holderView{holds(api, "9", "", 12*time.Second), holds(worker, "18", "", 11*time.Second)}, TTL: ttl(25 * time.Second), Waiters: 1},
			{Name: "stock:\x1b[2J\nエラー:" + strings.Repeat("x", 10<<10), Kind: "plain", Holders: []holderView{{Owner: "8743c9c0-0795-4907-87fd-6c719a6b4586:61"}}, TTL: ttl(3 * time.Second), Waiters: 1},
		},
		Lost: []lossView{{"mail:7", "plain", "lapsed", "c2:16", "newsletter", 4000, worker, ""}},
	}
}

// obeyed are the characters that a terminal does not show but obeys.
func obeyed(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' {
			return -1
		}
		return r
	}, text)
}

// No line is wider than the terminal, however wide that is, and whatever the names are.
func TestFramesFit(t *testing.T) {
	for _, order := range topOrders() {
		for _, columns := range []int{1, 10, 39, 40, 80, 81, 200, 20_000} {
			v := sample()
			sortTop(v, order)
			lines := v.frame(columns, 24, 0, "status", colours{})
			require.Len(t, lines, 24)
			for _, line := range lines {
				require.LessOrEqual(t, display.StringWidth(line), columns, "%q", line)
				require.Empty(t, obeyed(line))
			}
		}
	}
	require.Len(t, sample().frame(80, 4, 0, "", colours{}), 4)
	require.Contains(t, sample().frame(80, 24, 99, "", colours{})[2], "stock")
}

func TestOrders(t *testing.T) {
	for order, first := range map[string]string{"lock": "catalogue", "holder": "stock:", "held": "nightly-report", "ttl": "stock:", "wait": "invoice:42", "rate": "catalogue"} {
		v := sample()
		sortTop(v, order)
		require.True(t, strings.HasPrefix(v.Locks[0].Name, first), "%s: %s", order, v.Locks[0].Name)
	}
}

func TestPlainTop(t *testing.T) {
	var out bytes.Buffer
	v := sample()
	sortTop(v, "wait")
	require.NoError(t, printTop(&out, v))
	require.Empty(t, obeyed(out.String()))
	require.Regexp(t, `(?m)^invoice:42 +plain +worker-7 billing\[88\] +monthly invoices +1m03s +21s +3 +0\.2$`, out.String())
	require.Regexp(t, `(?m)^catalogue +read +web-1 api\[4121\] \+1 +- +12s +25s +1 +12\.5$`, out.String())
	require.Contains(t, out.String(), "\nlost 4.0s ago: mail:7, by worker-7 billing[88]: newsletter (lapsed)\n")
	require.Equal(t, 7, strings.Count(out.String(), "\n"))
	out.Reset()
	require.NoError(t, printTopJSON(&out, v))
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Empty(t, obeyed(out.String()))
	var back topView
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, v.Locks, back.Locks)
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "-", 0: "0.0s", 9990 * time.Millisecond: "9.9s", 59 * time.Second: "59s", 63 * time.Second: "1m03s", 2*time.Hour + 5*time.Minute: "2h05m", 76 * time.Hour: "3d04h",
	} {
		require.Equal(t, want, short(d))
	}
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		glob, name string
		want       bool
	}{
		{"*", "", true},
		{"", "", true},
		{"", "a", false},
		{"a*c", "abcbc", true},
		{"a*c", "abcb", false},
		{"a?c", "abc", true},
		{"a?", "a", false},
		{"[a-c]x", "bx", true},
		{"[^a-c]x", "bx", false},
		{`\*`, "*", true},
		{`\*`, "a", false},
		{"*a*b*", "xxaxxbxx", true},
		{"*/x", "a/b/x", true},
		{"[", "a", false},
		{`[\]]`, "]", true},
		{"*:[0-9]", "job:7", true},
	} {
		require.Equal(t, tc.want, matches(tc.glob, tc.name), "%s %s", tc.glob, tc.name)
	}
}

// top shows what clients tell, and who really holds the lock; odd names do no harm, nor do
// records that are wrong.
func TestTop(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, ctx := srv.Client(t), t.Context()
	odd := "odd \x1b[31m\n\xff" + strings.Repeat("n", 10<<10)
	tell := func(id string, r record.Record) {
		require.NoError(t, lua.WriteRecord(ctx, rdb, record.Key("p:", id), record.Lasts, r.Fields()))
		require.NoError(t, enlist(ctx, rdb, record.List("p:"), id, record.Lasts))
	}
	at := time.Now()
	hold := func(name, owner string) record.Entry {
		return record.Entry{What: record.Holds, Name: name, Owner: owner, Kind: "plain", Purpose: "\x1b]0;x\a", Since: at.Add(-time.Hour)}
	}
	tell("c1", record.Record{Who: record.Who{Host: "h\x1b[1m", Program: "p"}, Written: at, Entries: []record.Entry{
		hold("a", "c1:1"), hold(odd, "c1:2"), hold("passed", "c1:3"), hold("gone", "c1:4"), hold("string", "c1:5"), hold("large", "c1:6"),
	}})
	tell("c2", record.Record{Who: record.Who{Host: "same"}, Written: at, Entries: []record.Entry{{What: record.Waits, Name: "java", Kind: "plain", Count: 2, Since: at}}})
	tell("c3", record.Record{Who: record.Who{Host: "same"}, Written: at, Entries: []record.Entry{{What: record.Waits, Name: "java", Kind: "plain", Since: at.Add(-time.Minute)}}})
	require.NoError(t, rdb.ZAdd(ctx, record.List("p:"), redis.Z{Score: 9e15, Member: "dead"}, redis.Z{Score: 9e15, Member: "c4\x1b[2J"}).Err())
	require.NoError(t, rdb.HSet(ctx, record.Key("p:", "c4\x1b[2J"), "nonsense", "1").Err())
	tell("c5", record.Record{Who: record.Who{Host: "web-5", Program: "worker"}, Written: at, Entries: []record.Entry{
		{What: record.Keeps, Name: "kept", Owner: "c5:1", Kind: "plain", Since: at.Add(-time.Minute)},
	}})
	require.NoError(t, rdb.HSet(ctx, "p:kept", "c5:1", 0).Err())
	for key, owner := range map[string]string{"a": "c1:1", odd: "c1:2", "passed": "c2:9", "java": "8743c9c0:61", "other": "c1:7"} {
		require.NoError(t, rdb.HSet(ctx, "p:"+key, owner, 1).Err())
		require.NoError(t, rdb.PExpire(ctx, "p:"+key, time.Minute).Err())
	}
	require.NoError(t, rdb.Set(ctx, "p:string", "x", 0).Err())
	require.NoError(t, rdb.HSet(ctx, "p:large", "name", "x").Err())

	r := outcome(t, srv.URL(), "--prefix", "p:", "top", "--once", "--json", "--sort", "lock")
	require.Zero(t, r.code, r.stderr)
	var v topView
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &v))
	var names []string
	for _, l := range v.Locks {
		names = append(names, l.Name)
	}
	require.Equal(t, []string{"a", "java", "kept", strings.ToValidUTF8(odd, "\uFFFD"), "passed"}, names)
	require.Equal(t, strconv.Quote(odd), v.Locks[3].Quoted)
	require.Empty(t, v.Locks[0].Quoted)
	require.InDelta(t, time.Hour.Milliseconds(), *v.Locks[0].Holders[0].HeldMS, 60_000)
	require.Equal(t, 3, v.Locks[1].Waiters)
	require.Equal(t, "8743c9c0:61", v.Locks[1].Holders[0].Owner)
	require.Len(t, v.Locks[1].Waiting, 2, "two clients of one host")
	require.Equal(t, "c3", v.Locks[1].Waiting[0].Client, "the longest first")
	require.InDelta(t, time.Minute.Milliseconds(), *v.Locks[2].Holders[0].KeptMS, 60_000)
	require.Nil(t, v.Locks[2].Holders[0].HeldMS)
	require.Equal(t, "c2", v.Locks[4].Holders[0].Client, "who holds it now, whatever the record says")
	require.Nil(t, v.Locks[4].Holders[0].HeldMS)
	for _, args := range [][]string{{"top", "--once"}, {"ls"}, {"inspect", "a"}, {"inspect", "java"}} {
		r := outcome(t, srv.URL(), append([]string{"--prefix", "p:"}, args...)...)
		require.Zero(t, r.code, r.stderr)
		require.Empty(t, obeyed(r.stdout), "%q", args)
	}
	require.Regexp(t, `(?s)holder +"h\\x1b\[1m p\[0\]".*1h`, outcome(t, srv.URL(), "--prefix", "p:", "inspect", "a").stdout)
	require.Regexp(t, `waiter +same \?\[0\], waiting for 1m.*\nwaiter +same \?\[0\], waiting for .*2 calls`, outcome(t, srv.URL(), "--prefix", "p:", "inspect", "java").stdout)
	require.Contains(t, outcome(t, srv.URL(), "--prefix", "p:", "top", "--once", "pass*").stdout, "long holds 1, calls waiting 0, lost 0; all clients: 4, acquired/s ")
	kept := outcome(t, srv.URL(), "--prefix", "p:", "top", "--once", "kept").stdout
	require.Contains(t, kept, "long holds 0")
	require.Regexp(t, `(?m)^kept +plain +web-5 worker\[0\] +- +kept +-`, kept)
	require.Regexp(t, `hold count 0\nholder +web-5 worker\[0\], kept for 1m\d\ds, held by nobody`, outcome(t, srv.URL(), "--prefix", "p:", "inspect", "kept").stdout)
}

// All holders are read, also of a lock that has more than the server gives at once.
func TestTopOfManyReaders(t *testing.T) {
	srv := redistest.Start(t)
	ctx, rdb := t.Context(), srv.Client(t)
	readers := []any{"mode", "read"}
	for i := range 2000 {
		readers = append(readers, "c"+strconv.Itoa(i)+":1", 1)
	}
	require.NoError(t, rdb.HSet(ctx, "many", readers...).Err())
	require.NoError(t, rdb.PExpire(ctx, "many", time.Hour).Err())
	require.NoError(t, rdb.ZAdd(ctx, lua.QueueOfRW("many"), redis.Z{Score: 65536, Member: "c:2"}).Err())
	r := record.Record{Written: time.Now(), Entries: []record.Entry{{What: record.Waits, Name: "many", Kind: "write", Since: time.Now()}}}
	require.NoError(t, lua.WriteRecord(ctx, rdb, record.Key("", "c"), record.Lasts, r.Fields()))
	require.NoError(t, enlist(ctx, rdb, record.List(""), "c", record.Lasts))
	v, err := (&server{rdb: rdb}).top(ctx, wantedBy(""))
	require.NoError(t, err)
	require.Len(t, v.Locks, 1)
	require.Len(t, v.Locks[0].Holders, 2000)
	require.EqualValues(t, 1, *v.Locks[0].Queued)
	require.Equal(t, "read", v.Locks[0].Kind, "not that of who waits")
}

// What a terminal would obey is quoted, and once.
func TestEventOfAnOddHost(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, printEvent(&out, event{Event: "lost", Lock: "a\n", hostView: hostView{Host: "\x1b[1mweb", Program: "p", PID: 7}}))
	require.Equal(t, `00:00:00.000  lost      "a\n"  by "\x1b[1mweb p[7]"`+"\n", out.String())
}

// Without a server top says so; used wrongly, too.
func TestTopFails(t *testing.T) {
	t.Setenv("RLOCK_URL", "redis://127.0.0.1:1")
	for _, args := range [][]string{{"top", "--once"}, {"top", "--once", "--interval", "2"}, {"watch", "*"}} {
		r := inProcess(args...)
		require.Equal(t, exitUnavailable, r.code)
	}
	for _, args := range [][]string{{"top", "a", "b"}, {"top", "--sort", "x"}, {"top", "--interval", "1ms"}, {"top", "--by", "foo"}, {"top", "--by", "name", "--sort", "wait"}, {"watch", "a", "b"}, {"watch", "--interval", "0s", "a"}, {"watch", "--only", ""}, {"watch", "--not", "a", "--not="}} {
		r := inProcess(args...)
		require.Equal(t, exitUsage, r.code, "%q", args)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	}
}
