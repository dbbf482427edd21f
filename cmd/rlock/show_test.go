package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/xid"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/jobs"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/once"
	"github.com/go-rlock/rlock/rlock"
)

func TestInspectGolden(t *testing.T) {
	free := rlock.State{Name: "a", Waiters: -1}
	held := rlock.State{Name: "a", Holds: map[string]int64{"x:1": 2}, TTL: 29500 * time.Millisecond, Token: 7, Waiters: 3}
	endless := rlock.State{Name: "a\x1b[2J", Holds: map[string]int64{"b:1": 1, "a:1": 1}, TTL: -1}
	for _, tc := range []struct {
		state      rlock.State
		text, json string
	}{
		{free, "a is free\n", `{"name":"a","owners":[],"ttl_ms":null,"token":0,"waiters":-1}`},
		{
			held, "lock     a\nowner    x:1, hold count 2\nlease    30s\ntoken    7\nwaiting  3\n",
			`{"name":"a","owners":[{"owner":"x:1","holds":2}],"ttl_ms":29500,"token":7,"waiters":3}`,
		},
		{
			endless, "lock     \"a\\x1b[2J\"\nowner    a:1, hold count 1\nowner    b:1, hold count 1\nlease    no end\nwaiting  0\n",
			`{"name":"a\u001b[2J","owners":[{"owner":"a:1","holds":1},{"owner":"b:1","holds":1}],"ttl_ms":null,"token":0,"waiters":0}`,
		},
		{
			rlock.State{
				Name: "a", Holds: map[string]int64{"r:1": 2, "w:1": 1, "x:1": 3}, Shared: map[string]int64{"r:1": 2, "x:1": 1}, TTL: time.Second, Waiters: -1,
			},
			"lock   a\nowner  r:1, hold count 2, reads\nowner  w:1, hold count 1, writes\nowner  x:1, hold count 3, writes, and reads 1 of them\nlease  1s\n",
			`{"name":"a","owners":[{"owner":"r:1","holds":2,"reads":2},{"owner":"w:1","holds":1},{"owner":"x:1","holds":3,"reads":1}],"ttl_ms":1000,"token":0,"waiters":-1}`,
		},
	} {
		var out bytes.Buffer
		require.NoError(t, printState(&out, tc.state, nil, companionView{}, false, time.Now()))
		require.Equal(t, tc.text, out.String())
		out.Reset()
		require.NoError(t, printState(&out, tc.state, nil, companionView{}, true, time.Now()))
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, out.Bytes()))
		require.Equal(t, tc.json, strings.TrimSpace(compact.String()))
	}
}

func TestInspectSaysSinceWhen(t *testing.T) {
	now := time.Date(2025, 11, 20, 16, 0, 0, 0, time.UTC)
	owner, since := xid.NewWithTime(now.Add(-time.Hour)).String()+":1", now.Add(-90*time.Second)
	state := rlock.State{Name: "a", Holds: map[string]int64{owner: 1}, Token: since.UnixMicro(), TTL: time.Second, Waiters: -1}
	var out bytes.Buffer
	require.NoError(t, printState(&out, state, nil, companionView{}, true, now))
	var view struct{ Owners []struct{ Since time.Time } }
	require.NoError(t, json.Unmarshal(out.Bytes(), &view))
	require.True(t, since.Equal(view.Owners[0].Since), out.String())
	out.Reset()
	require.NoError(t, printState(&out, state, nil, companionView{}, false, now))
	require.Contains(t, out.String(), ", since "+since.Local().Format(time.DateTime)+" (1m30s)\n")
}

func TestLsGolden(t *testing.T) {
	locks := []lockView{
		newLockView("a", map[string]int64{"x:1": 1}, 1500*time.Millisecond),
		newLockView("b", map[string]int64{"y:2": 1, "y:2:write": 1}, -1),
	}
	locks[0].Queued = new(int64(3))
	var out bytes.Buffer
	require.NoError(t, printLocks(&out, locks, 0))
	require.Equal(t, "NAME  OWNER      HOLDS  LEASE   QUEUED  WAIT  HOLDER\na     x:1        1      1.5s    3       0     -\nb     y:2        1      no end  -       0     -\nb     y:2:write  1      no end  -       0     -\n", out.String())
	out.Reset()
	require.NoError(t, printLocks(&out, nil, 0))
	require.Empty(t, out.String())

	// A terminal has lines that fit, and room for the owner behind a long name.
	long := []lockView{newLockView(strings.Repeat("ロック", 50), map[string]int64{"x:1": 1}, time.Second)}
	long[0].Owners[0].hostView, long[0].Owners[0].Purpose = hostView{Host: "h", Program: "p"}, "monthly invoices of all customers"
	require.NoError(t, printLocks(&out, long, 60))
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, display.StringWidth(strings.TrimSpace(line)), 60)
	}
	require.Contains(t, out.String(), "…  x:1    1      1s")
	out.Reset()
	require.NoError(t, printLocks(&out, long, 0))
	require.Contains(t, out.String(), long[0].Name)
	require.Contains(t, out.String(), `h p[0]: "monthly invoices of all customers"`)
}

func TestParseHolds(t *testing.T) {
	for _, tc := range []struct {
		page string
		want map[string]int64
	}{
		{"", nil},
		{"dc07al9ksdu943dmsak0:1 2", map[string]int64{"dc07al9ksdu943dmsak0:1": 2}},
		{"8743c9c0-0795-4907-87fd-6c719a6b4586:61 1", map[string]int64{"8743c9c0-0795-4907-87fd-6c719a6b4586:61": 1}},
		{"mode write u:1:write 1", map[string]int64{"u:1:write": 1}},
		{"mode read u:1 1 v:2 3", map[string]int64{"u:1": 1, "v:2": 3}},
		{"mode read", nil},
		{"mode 1 u:1 1", nil},
		{"u:1 one", nil},
		{"u:x 1", nil},
		{":1 1", nil},
		{"u:1 1 name 5", nil},
	} {
		got, ok := parseHolds(strings.Fields(tc.page))
		require.Equal(t, tc.want != nil, ok, tc.page)
		if ok {
			require.Equal(t, tc.want, got, tc.page)
		}
	}
}

// populate makes 1000 locks named p*:job:N, and as many other keys.
func populate(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	pipe := rdb.Pipeline()
	for i := range 1000 {
		key := fmt.Sprintf("p*:job:%d", i)
		pipe.HSet(t.Context(), key, fmt.Sprintf("x:%d", i), 1)
		pipe.PExpire(t.Context(), key, time.Hour)
		pipe.HSet(t.Context(), fmt.Sprintf("px:job:%d", i), "name", i)
	}
	pipe.Set(t.Context(), "p*:job:text", "x:1", 0)
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	large := make([]any, 0, 4000)
	for i := range 2000 {
		large = append(large, fmt.Sprintf("field%d", i), i)
	}
	require.NoError(t, rdb.HSet(t.Context(), "p*:job:large", large...).Err())
}

func TestLs(t *testing.T) {
	srv := redistest.Start(t)
	populate(t, srv.Client(t))
	calls := srv.CommandCalls(t)
	list := func(args ...string) (locks []lockView) {
		r := outcome(t, srv.URL(), append([]string{"--prefix", "p*:", "ls", "--json"}, args...)...)
		require.Zero(t, r.code, r.stderr)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &locks))
		return locks
	}
	require.Len(t, list(), 1000)
	require.Len(t, list("job:99?"), 10)
	require.Len(t, list("job:[12]"), 2)
	require.Empty(t, list("nothing*"))
	one := list("job:7")
	require.Len(t, one, 1)
	require.Equal(t, "job:7", one[0].Name)
	require.Equal(t, []ownerView{{Owner: "x:7", Holds: 1}}, one[0].Owners)
	require.InDelta(t, time.Hour.Milliseconds(), *one[0].TTL, 60_000)
	require.Equal(t, calls["keys"]+calls["hgetall"], srv.CommandCalls(t)["keys"]+srv.CommandCalls(t)["hgetall"])

	r := outcome(t, srv.URL(), "--prefix", "p*:", "ls", "job:7")
	require.Regexp(t, `^NAME +OWNER +HOLDS +LEASE +QUEUED +WAIT +HOLDER\njob:7 +x:7 +1 +(1h0m0s|59m\d+s) +0 +0 +-\n$`, r.stdout)
	require.Equal(t, exitUnavailable, outcome(t, "redis://127.0.0.1:1", "ls").code)
}

// What a hundred thousand locks have to do with as many entries of records is looked up, not
// searched: that took minutes.
func TestLsOfManyLocks(t *testing.T) {
	const clients, each = 100, 1000
	records := make(clientRecords)
	var locks []lockView
	for c := range clients {
		r := &clientRecord{Record: record.Record{Who: record.Who{Host: "h"}}}
		for i := range each {
			name, owner := fmt.Sprint("lock:", c, ":", i), fmt.Sprint(c, ":", i)
			r.Entries = append(r.Entries, record.Entry{What: record.Holds, Name: name, Owner: owner, Purpose: "sums"})
			locks = append(locks, newLockView(name, map[string]int64{owner: 1}, time.Minute))
		}
		r.Entries[0] = record.Entry{What: record.Waits, Name: "lock:0:1", Count: 2}
		records[fmt.Sprint(c)] = r
	}
	explained := make(chan struct{})
	go func() {
		defer close(explained)
		explain(locks, records)
	}()
	select {
	case <-explained:
	case <-time.After(limit):
		require.Fail(t, "it is searched")
	}
	require.Equal(t, 2*clients, locks[1].calls())
	require.Zero(t, locks[2].calls())
	require.Equal(t, "sums", locks[2].Owners[0].Purpose)
}

// All holders are listed, also of a lock that has more than the server gives at once, with the queue of its kind.
func TestLsOfManyReaders(t *testing.T) {
	srv := redistest.Start(t)
	ctx, rdb := t.Context(), srv.Client(t)
	readers := []any{"mode", "read"}
	for i := range 2000 {
		readers = append(readers, fmt.Sprintf("c%d:1", i), 1)
	}
	require.NoError(t, rdb.HSet(ctx, "many", readers...).Err())
	require.NoError(t, rdb.ZAdd(ctx, lua.QueueOfRW("many"), redis.Z{Score: 65536, Member: "c:2"}).Err())
	locks, err := (&server{rdb: rdb}).list(ctx, "")
	require.NoError(t, err)
	require.Len(t, locks, 1)
	require.Len(t, locks[0].Owners, 2000)
	require.EqualValues(t, 1, *locks[0].Queued)
}

func TestLsOfACluster(t *testing.T) {
	redistest.Long(t, "a cluster")
	srv := redistest.Start(t, "--cluster-enabled", "yes")
	rdb := srv.Client(t)
	require.NoError(t, rdb.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	redistest.Eventually(t, "the cluster is up", func() bool {
		return strings.Contains(rdb.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	populate(t, rdb)
	r := outcome(t, srv.URL()+"?addr="+srv.Addr(), "--prefix", "p*:", "ls", "job:99?")
	require.Equal(t, 11, strings.Count(r.stdout, "\n"), r.stderr)
	require.Equal(t, "ran\n", outcome(t, srv.URL()+"?addr="+srv.Addr(), "run", "a", "--", "echo", "ran").stdout)
}

func TestInspect(t *testing.T) {
	f := newFixture(t)
	require.Equal(t, result{stdout: "a is free\n"}, outcome(t, f.URL(), "inspect", "a"))
	r := outcome(t, f.URL(), "run", "a", "--", "sh", "-c", `"$SELF" inspect a`)
	require.Regexp(t, `^lock +a\nowner +\S+:1, hold count 1, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(.*s\)\n(holder .*\n)?lease .*\ntoken +\d{16}\nwaiting +0\n$`, r.stdout)
	require.NoError(t, f.Client(t).Set(t.Context(), "text", 1, 0).Err())
	require.Equal(t, exitNotALock, outcome(t, f.URL(), "inspect", "text").code)
}

func TestUnlock(t *testing.T) {
	f := newFixture(t)
	f.hold("a")
	owner := f.state("a").Owner()

	r := outcome(t, f.URL(), "unlock", "a", "--owner", "x:1")
	require.Equal(t, exitFailure, r.code)
	require.Equal(t, "rlock: lock \"a\" is not held by x:1: nothing was released\n", r.stderr)
	require.Equal(t, owner, f.state("a").Owner())

	require.Equal(t, result{stdout: "released a\n"}, outcome(t, f.URL(), "unlock", "a", "--owner", owner))
	require.Empty(t, f.state("a").Holds)

	f.hold("b")
	require.Equal(t, result{stdout: "released b\n"}, outcome(t, f.URL(), "unlock", "--force", "b"))
	require.Equal(t, result{1, "", "rlock: lock \"b\" is free: nothing was released\n"}, outcome(t, f.URL(), "unlock", "--force", "b"))
	require.Equal(t, exitUnavailable, outcome(t, "redis://127.0.0.1:1", "unlock", "--force", "b").code)
}

// Of several names each has its line, also behind one that fails.
func TestSeveralNames(t *testing.T) {
	f := newFixture(t)
	f.hold("a")
	f.hold("c")
	require.NoError(t, f.Client(t).Set(t.Context(), "text", 1, 0).Err())
	require.Equal(t, result{}, outcome(t, f.URL(), "inspect", "-q", "a", "c"))
	require.Equal(t, result{code: exitFailure}, outcome(t, f.URL(), "inspect", "--quiet", "a", "b"))
	require.Equal(t, exitUnavailable, outcome(t, "redis://127.0.0.1:1", "inspect", "-q", "a").code)
	require.Regexp(t, `^lock +a\n(.+\n)+\nb is free\n\nlock +c\n`, outcome(t, f.URL(), "inspect", "a", "b", "c").stdout)
	r := outcome(t, f.URL(), "inspect", "--json", "a", "b")
	for d := json.NewDecoder(strings.NewReader(r.stdout)); d.More(); {
		var v lockView
		require.NoError(t, d.Decode(&v), r.stdout)
		require.Equal(t, v.Name == "b", len(v.Owners) == 0)
	}
	r = outcome(t, f.URL(), "unlock", "--force", "text", "a", "b", "c")
	require.Equal(t, "released a\nreleased c\n", r.stdout)
	require.Equal(t, exitFailure, r.code)
	require.Equal(t, 2, strings.Count(r.stderr, "rlock: "), r.stderr)
	require.Contains(t, r.stderr, `lock "b" is free: nothing was released`)
}

// TestOtherKinds finds from the data what the lock is.
func TestOtherKinds(t *testing.T) {
	f := newFixture(t)
	lock := func(side func(*rlock.RWLock) *rlock.Lock) string {
		mu := side(newFixtureOf(t, f.Server).client.NewRWLock("rw")) // another client: one knows its own holds
		_, hold, err := mu.TryLock(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = hold.Unlock(context.Background()) })
		return hold.Owner()
	}
	free := func() { require.Equal(t, result{stdout: "rw is free\n"}, outcome(t, f.URL(), "inspect", "rw")) }

	owner := lock((*rlock.RWLock).Reader)
	require.Contains(t, outcome(t, f.URL(), "inspect", "rw").stdout, "owner    "+owner+", hold count 1, reads\n")
	require.Contains(t, outcome(t, f.URL(), "ls").stdout, owner)
	require.Equal(t, exitFailure, outcome(t, f.URL(), "unlock", "rw", "--owner", "x:1").code)
	require.Equal(t, result{stdout: "released rw\n"}, outcome(t, f.URL(), "unlock", "rw", "--owner", owner))
	free()
	require.Zero(t, f.Client(t).Exists(t.Context(), "rw").Val())

	owner = lock((*rlock.RWLock).Writer)
	require.Contains(t, outcome(t, f.URL(), "inspect", "rw").stdout, "owner    "+owner+", hold count 1, writes\n")
	require.Regexp(t, owner+`:write +1 +\S+ +0 +0 +\S.*\n$`, outcome(t, f.URL(), "ls").stdout)
	require.Equal(t, result{stdout: "released rw\n"}, outcome(t, f.URL(), "unlock", "rw", "--owner", owner+":write"))
	free()
	lock((*rlock.RWLock).Reader)
	require.Equal(t, result{stdout: "released rw\n"}, outcome(t, f.URL(), "unlock", "rw", "--force"))
	free()

	// What is no lock is not touched.
	require.NoError(t, f.Client(t).HSet(t.Context(), "hash", "mode", "dark", "name", "y").Err())
	for _, args := range [][]string{{"inspect", "hash"}, {"unlock", "hash", "--force"}, {"unlock", "hash", "--owner", "y:1"}} {
		require.Equal(t, exitNotALock, outcome(t, f.URL(), args...).code)
	}
	require.EqualValues(t, 2, f.Client(t).HLen(t.Context(), "hash").Val())
}

// TestInspectCountsTheQueue: one place for each client that waits for a plain lock,
// and for each call that waits for a fair one.
func TestInspectCountsTheQueue(t *testing.T) {
	for kind, want := range map[string]int64{"plain": 1, "fair": 3} {
		f := newFixture(t)
		mu := func(c *rlock.Client) *rlock.Lock { return c.NewLock("a") }
		if kind == "fair" {
			mu = func(c *rlock.Client) *rlock.Lock { return c.NewFairLock("a") }
		}
		_, hold, err := mu(f.client).TryLock(t.Context())
		require.NoError(t, err)
		waiting := newFixtureOf(t, f.Server)
		done := make(chan error, 3)
		for range 3 {
			go func() {
				done <- mu(waiting.client).Do(context.Background(), func(context.Context) error { return nil })
			}()
		}
		redistest.Eventually(t, "they wait", func() bool { return f.state("a").Waiters == want })
		queued := strconv.FormatInt(want, 10)
		require.Regexp(t, fmt.Sprintf(`\nwaiting +%d\n`, want), outcome(t, f.URL(), "inspect", "a").stdout)
		require.Regexp(t, `\na +`+hold.Owner()+` +1 +\S+ +`+queued+` `, outcome(t, f.URL(), "ls").stdout)
		require.Contains(t, outcome(t, f.URL(), "ls", "--json").stdout, `"queued": `+queued)
		require.NoError(t, hold.Unlock(context.Background()))
		for range 3 {
			require.NoError(t, <-done)
		}
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	demo := prepare(t, "redis://127.0.0.1:1", "demo")
	demo.Env = append(demo.Env, "RLOCK_PREFIX=app:") // for other commands
	r := launch(t, demo).end()
	require.Zero(t, r.code)
	require.Contains(t, r.stdout, fmt.Sprintf("All %d scenes went as expected.", len(scenes)))
	require.Empty(t, r.stderr)
}

func TestDemoFailsWithItsScenes(t *testing.T) {
	var out bytes.Buffer
	err := playAll(t.Context(), &out, []scene{
		{"one", "x", func(context.Context, *stage) (string, bool, error) { return "x", true, nil }},
		{"two", "x", func(context.Context, *stage) (string, bool, error) { return "y", false, nil }},
		{"three", "x", func(context.Context, *stage) (string, bool, error) { return "", true, errors.New("broken") }},
	})
	require.EqualError(t, err, "2 of 3 scenes failed")
	require.Contains(t, out.String(), "1. one\n   expected  x\n   measured  x\n   ok\n\n2. two\n   expected  x\n   measured  y\n   FAILED\n\n3.")
	require.Contains(t, out.String(), "broken\n   FAILED\n")
	code, _ := exit(err)
	require.Equal(t, exitFailure, code)
}

// A client can have written anything as its own name.
func TestWaiterWithAnOddName(t *testing.T) {
	w := waitingView{hostView: hostView{Client: "x\x1b[1m"}}
	require.Equal(t, `"x\x1b[1m", waiting for 0.0s`, w.tells())
}

// A script can give each owner to unlock, also one that JSON does not carry.
func TestJSONOfAnOwnerThatIsNotUTF8(t *testing.T) {
	f := newFixture(t)
	const owner = "a\xff:1"
	require.NoError(t, f.Client(t).HSet(t.Context(), "x", owner, 1).Err())
	var v struct {
		Owners []struct {
			Owner  string `json:"owner"`
			Quoted string `json:"owner_quoted"`
		} `json:"owners"`
	}
	r := outcome(t, f.URL(), "inspect", "--json", "x")
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &v), r.stdout)
	require.Equal(t, "a\uFFFD:1", v.Owners[0].Owner)
	again, err := strconv.Unquote(v.Owners[0].Quoted)
	require.NoError(t, err)
	require.Zero(t, outcome(t, f.URL(), "unlock", "x", "--owner", again).code)
}

// A script can name each lock again, also one whose name JSON does not carry.
func TestJSONOfANameThatIsNotUTF8(t *testing.T) {
	f := newFixture(t)
	const name = "a\xff"
	f.hold(name)
	var v struct {
		Name   string `json:"name"`
		Quoted string `json:"name_quoted"`
	}
	for _, args := range [][]string{{"ls"}, {"inspect", name}} {
		r := outcome(t, f.URL(), append(args[:1:1], append([]string{"--json"}, args[1:]...)...)...)
		require.NoError(t, json.Unmarshal([]byte(strings.Trim(r.stdout, "[]\n")), &v), r.stdout)
		require.Equal(t, "a\uFFFD", v.Name)
		again, err := strconv.Unquote(v.Quoted)
		require.NoError(t, err)
		require.Equal(t, name, again)
	}
	var out bytes.Buffer
	require.NoError(t, printEventJSON(&out, event{Lock: name}))
	require.Contains(t, out.String(), `"lock_quoted":"\"a\\xff\""`)
}

// What is next to a lock, in the states that a user meets.
func TestInspectShowsTheCompanion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := t.Context()
	client := f.client
	inspect := func(name string) string {
		r := outcome(t, f.URL(), "inspect", name)
		require.Zero(t, r.code, r.stderr)
		return r.stdout
	}
	view := func(name string) (v companionView) {
		require.NoError(t, json.Unmarshal([]byte(outcome(t, f.URL(), "inspect", "--json", name).stdout), &v))
		return v
	}

	require.Equal(t, companionView{}, view("e"))
	held, term, err := election.New(client, "e", "10.0.0.7\n").Campaign(ctx)
	require.NoError(t, err)
	require.Contains(t, inspect("e"), fmt.Sprintf("\nelection  term %d, led by \"10.0.0.7\\n\"\n", term.Number()))
	require.Equal(t, companionView{Election: &electionView{Term: term.Number(), Value: "10.0.0.7\n"}}, view("e"))
	require.NoError(t, f.Client(t).Del(ctx, "e").Err())
	candidate, cancel := context.WithCancel(ctx)
	waits := make(chan error)
	go func() {
		_, _, err := election.New(client, "e", "b", election.WithTakeoverDelay(time.Hour)).Campaign(candidate)
		waits <- err
	}()
	redistest.Eventually(t, "the next one waits", func() bool { return view("e").Election.Waits })
	require.Contains(t, inspect("e"), "\nelection  the holder waits, because the leader before has not resigned\n")
	cancel()
	require.ErrorIs(t, <-waits, context.Canceled)
	require.ErrorIs(t, term.Resign(held), rlock.ErrLeaseLost)
	require.Equal(t, "e is free\nelection  nobody leads\n", inspect("e"))

	for _, least := range []bool{false, true} {
		var opts []jobs.Option
		state := "claimed"
		if least {
			opts, state = []jobs.Option{jobs.AtLeastOnce()}, "finished"
		}
		var fire time.Time
		_, err = jobs.New(client, state, jobs.Every(time.Hour), opts...).Do(ctx, func(_ context.Context, at time.Time) error {
			fire = at
			return nil
		})
		require.NoError(t, err)
		require.Regexp(t, "^"+state+` is free\njob  fire of `+fire.Format(time.DateTime)+` \(.+\) `+state+`, the next is `+fire.Add(time.Hour).Format(time.DateTime)+"\n$", inspect(state))
		v := view(state).Job
		require.True(t, v.Fire.Equal(fire) && v.Next.Equal(fire.Add(time.Hour)), v)
		require.Equal(t, least, v.Finished)
	}

	results := once.New(client, once.Options{TTL: time.Hour})
	run, _, err := results.Begin(ctx, "r", "")
	require.NoError(t, err)
	require.Contains(t, inspect("r"), "\nresult   is being computed\n")
	require.NoError(t, run.Abandon(ctx))
	require.Regexp(t, `^r is free\nresult  a run has ended without one; its trace stays for another (1h0m0s|59m\d+s)\n$`, inspect("r"))
	_, err = results.Do(ctx, "r", func(context.Context) ([]byte, error) { return make([]byte, 1234), nil })
	require.NoError(t, err)
	redistest.Eventually(t, "the lock is free", func() bool { return len(f.state("r").Holds) == 0 })
	require.Regexp(t, `^r is free\nresult  1234 bytes, for another (1h0m0s|59m\d+s)\n$`, inspect("r"))

	// Foreign data at that key is not shown.
	for name, put := range map[string]func(string) error{
		"text": func(key string) error { return f.Client(t).Set(ctx, key, "x", 0).Err() },
		"hash": func(key string) error { return f.Client(t).HSet(ctx, key, "is", "mine", "fire", "7").Err() },
	} {
		require.NoError(t, put(companion.Key(name)))
		require.Equal(t, name+" is free\n", inspect(name))
		require.Equal(t, companionView{}, view(name))
	}
}
