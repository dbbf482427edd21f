package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// examined runs the doctor and reads its report. Whatever it did is gone. A machine that
// stalls makes round trips long, so the doctor is asked again if that is what it says.
func examined(t *testing.T, url string, args ...string) (code int, rep report) {
	t.Helper()
	for range 10 {
		r := outcome(t, url, append(args, "doctor", "--json")...)
		require.Empty(t, r.stderr)
		code, rep = r.code, report{}
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &rep), r.stdout)
		if rep.levels()["round trip"] != warning {
			break
		}
	}
	return code, rep
}

// levels returns the worst level of each check.
func (r *report) levels() map[string]level {
	rank := map[level]int{fine: 1, unchecked: 2, warning: 3, broken: 4}
	levels := make(map[string]level)
	for _, f := range r.Findings {
		if rank[f.Level] > rank[levels[f.Check]] {
			levels[f.Check] = f.Level
		}
	}
	return levels
}

func (r *report) about(check string) finding {
	for _, f := range r.Findings {
		if f.Check == check {
			return f
		}
	}
	return finding{}
}

func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--appendonly", "yes")
	code, r := examined(t, srv.URL())
	require.Zero(t, code, "%+v", r.Findings)
	require.Equal(t, fine, r.Level)
	for _, check := range []string{"connection", "version", "eviction", "persistence", "connections", "replicas", "acl", "scripts", "round trip", "clock", "lock"} {
		require.Equal(t, fine, r.levels()[check], check)
	}
	require.Len(t, r.levels(), 11)
	require.Contains(t, r.about("lock").Values, "median_ms")
	keys, err := srv.Client(t).Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
}

// TestDoctorAsLockUser: the user whom it proposes passes, and may not be told
// much.
func TestDoctorAsLockUser(t *testing.T) {
	t.Parallel()
	w := newACLWorld(t, aclLine("u", aclPrefix, aclPrefix+"*", lockUser), "")
	url := "redis://u:PASSWORD@" + w.srv.Addr()
	code, r := examined(t, url, "--prefix", aclPrefix)
	require.Zero(t, code, "%+v", r.Findings)
	for check, want := range map[string]level{
		"version": fine, "acl": fine, "scripts": fine, "lock": fine, "round trip": fine, "clock": fine,
		"eviction": unchecked, "persistence": unchecked, "connections": unchecked, "replicas": unchecked,
	} {
		require.Equal(t, want, r.levels()[check], check)
	}
	require.Equal(t, aclLine("rlock", aclPrefix, aclPrefix+"*", lockUser), r.ACL.Locks)

	// Without the prefix the doctor does not know which names are meant. No advice opens all keys.
	code, r = examined(t, url)
	require.Equal(t, exitWarnings, code)
	require.Equal(t, finding{
		Check: "acl", Level: warning, Text: "this user may not use all names, and which it may use is not known",
		Advice: "say which: --prefix P or --name GLOB",
	}, r.about("acl"))
	require.Equal(t, unchecked, r.levels()["lock"])
	require.Empty(t, r.ACL)
	require.Equal(t, "1 warning, 6 not checked", r.summary(), "%+v", r.Findings)

	// A command that is missing is still found.
	require.NoError(t, w.admin.Do(t.Context(), "acl", "setuser", "u", "-zcard").Err())
	code, r = examined(t, url)
	require.Equal(t, exitBroken, code)
	require.True(t, slices.ContainsFunc(r.Findings, func(f finding) bool { return f.Advice == "ACL SETUSER USER +zcard" }), "%+v", r.Findings)
}

func TestDoctorOfOneName(t *testing.T) {
	w := newACLWorld(t, aclLine("u", "", "invoice:42", lockUser), "")
	r := outcome(t, "redis://u:PASSWORD@"+w.srv.Addr(), "doctor", "--json", "--name", "invoice:42")
	require.Zero(t, r.code, r.stdout)
	var rep report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &rep))
	require.Equal(t, fine, rep.levels()["acl"])
	require.Equal(t, unchecked, rep.levels()["lock"])
}

// TestDoctorMissesRights takes each item from the user: the doctor names it.
func TestDoctorMissesRights(t *testing.T) {
	w := newACLWorld(t, aclLine("u", aclPrefix, aclPrefix+"*", lockUser), "")
	for _, r := range rightsFor(aclPrefix, aclPrefix+"*") {
		if r.needs&lockUser == 0 {
			continue
		}
		var args []any
		for word := range strings.FieldsSeq(aclLine("u", aclPrefix, aclPrefix+"*", lockUser)) {
			if word != r.item {
				args = append(args, word)
			}
		}
		require.NoError(t, w.admin.Do(t.Context(), args...).Err())
		s, err := (&access{}).open("redis://u:PASSWORD@" + w.srv.Addr())
		require.NoError(t, err)
		s.prefix = aclPrefix
		d := newDoctor(s, "*")
		d.findNodes(t.Context())
		d.checkRights(t.Context())
		d.close()
		f := d.report.about("acl")
		require.Contains(t, f.Text+" ", "no right to "+r.item+": ", "%+v", f)
		require.Equal(t, "ACL SETUSER USER "+r.item, f.Advice)
		want := warning
		if r.needs&locking != 0 {
			want = broken
		}
		require.Equal(t, want, d.report.worst(), r.item)
	}
}

func TestDoctorSeesThatNobodyIsWoken(t *testing.T) {
	redistest.Long(t, "waits for time-outs, 18 s")
	t.Parallel()
	for _, item := range []string{"+publish", "+subscribe"} {
		w := newACLWorld(t, aclLine("u", "", "*", lockUser), item)
		code, r := examined(t, "redis://u:PASSWORD@"+w.srv.Addr())
		require.Equal(t, exitWarnings, code)
		require.Equal(t, warning, r.levels()["lock"], "%+v", r.about("lock"))
	}
}

// A lock that is lost once may be the fault of this host. One that is lost again is not.
func TestDoctorLosesItsLock(t *testing.T) {
	for _, tc := range []struct {
		name   string
		times  int
		broken bool
	}{
		{"once", 1, false}, // fine; or a warning, if the host stands still as well
		{"always", math.MaxInt, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			rdb := f.Client(t)
			ctx, cancel := context.WithCancel(t.Context())
			lost := 0
			var wg sync.WaitGroup
			wg.Go(func() {
				for ; ctx.Err() == nil && lost < tc.times; time.Sleep(time.Millisecond) {
					for _, key := range rdb.Keys(ctx, "rlock-doctor:*").Val() {
						for _, owner := range rdb.HKeys(ctx, key).Val() {
							if owner != "n" && rdb.HDel(ctx, key, owner).Val() > 0 { // n is that of checkScripts
								lost++
							}
						}
					}
				}
			})
			_, r := examined(t, f.URL())
			cancel()
			wg.Wait()
			if lost == 0 && strings.Contains(r.about("lock").Text, "no answer in time") {
				t.Skip("the machine stood still for a second: the doctor had no lock that it could lose")
			}
			require.Positive(t, lost)
			require.Equal(t, tc.broken, r.levels()["lock"] == broken, "%+v", r.about("lock"))
		})
	}
}

func TestDoctorReachesNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--requirepass", "s3cret")
	for _, url := range []string{"redis://127.0.0.1:1", "redis://:wr0ng@" + srv.Addr(), srv.URL(), "rediss://" + srv.Addr()} {
		code, r := examined(t, url)
		require.Equal(t, exitBroken, code, url)
		require.Len(t, r.Findings, 1)
		require.Empty(t, r.ACL, "nothing is known of users")
		require.Equal(t, broken, r.about("connection").Level)
		require.NotContains(t, r.about("connection").Text, "wr0ng")
	}
	srv.Stop()
	code, _ := examined(t, "redis://:s3cret@"+srv.Addr()+"?read_timeout=200ms")
	srv.Cont()
	require.Equal(t, exitBroken, code)
	require.Equal(t, exitUsage, outcome(t, srv.URL(), "doctor", "x").code)
	require.Equal(t, exitUsage, outcome(t, srv.URL(), "doctor", "--name", "[ab]").code)
}

func TestDoctorOfACluster(t *testing.T) {
	redistest.Long(t, "the doctor is called three times on a cluster")
	t.Parallel()
	srv := startCluster(t, "--appendonly", "yes")
	code, r := examined(t, srv.URL(), "--cluster")
	require.Equal(t, exitWarnings, code, "%+v", r.Findings)
	require.Equal(t, warning, r.levels()["replicas"])
	require.Equal(t, fine, r.levels()["cluster"])
	require.Equal(t, fine, r.levels()["lock"])
	require.Equal(t, fine, r.levels()["sharded pub/sub"])
	require.Equal(t, fine, r.levels()["scripts"])

	code, r = examined(t, srv.URL())
	require.Equal(t, exitBroken, code)
	require.Contains(t, r.about("cluster").Advice, "--cluster")

	require.NoError(t, srv.Client(t).ClusterDelSlots(t.Context(), 1).Err())
	code, r = examined(t, srv.URL(), "--cluster")
	require.Equal(t, exitBroken, code)
	require.Contains(t, r.about("cluster").Text, "16383 of 16384")
}

func TestDoctorOfReplicas(t *testing.T) {
	redistest.Long(t, "the doctor is called four times on two servers")
	t.Parallel()
	master := redistest.Start(t, "--appendonly", "yes")
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host, port)
	redistest.Eventually(t, "the replica is online", func() bool {
		return strings.Contains(master.Client(t).Info(t.Context(), "replication").Val(), "state=online")
	})
	code, r := examined(t, master.URL())
	require.Equal(t, exitWarnings, code)
	require.Equal(t, warning, r.levels()["replicas"])
	require.Equal(t, fine, r.levels()["clocks"])
	require.Contains(t, r.about("version").Nodes, replica.Addr())

	set := func(name, value string) {
		require.NoError(t, master.Client(t).ConfigSet(t.Context(), name, value).Err())
	}
	set("min-replicas-to-write", "1")
	_, r = examined(t, master.URL())
	require.Equal(t, fine, r.levels()["replicas"], "%+v", r.Findings)
	set("min-replicas-to-write", "2")
	code, r = examined(t, master.URL())
	require.Equal(t, exitBroken, code)
	require.Equal(t, broken, r.levels()["replicas"])
	require.Equal(t, broken, r.levels()["lock"])
	set("min-replicas-max-lag", "0") // which switches it off
	code, r = examined(t, master.URL())
	require.Equal(t, exitWarnings, code)
	require.Contains(t, r.about("replicas").Text, "goes on granting")
	require.Equal(t, fine, r.levels()["lock"])

	code, r = examined(t, replica.URL())
	require.Equal(t, exitBroken, code)
	require.Contains(t, r.about("replicas").Text, "this is a replica")
}

func TestNodeChecks(t *testing.T) {
	type fields = map[string]string
	for _, tc := range []struct {
		check        func(*node) finding
		info, config fields
		want         level
		says         string
	}{
		{(*node).checkEviction, fields{"maxmemory_policy": "noeviction", "maxmemory": "0"}, nil, fine, "no memory limit is set"},
		{(*node).checkEviction, fields{"maxmemory_policy": "noeviction", "maxmemory": "1000", "used_memory": "1001"}, nil, broken, "memory is used up"},
		{(*node).checkEviction, fields{"maxmemory_policy": "allkeys-lru", "maxmemory": "0"}, nil, fine, "nothing is evicted"},
		{(*node).checkEviction, fields{"maxmemory_policy": "noeviction", "maxmemory": "1", "maxmemory_human": "1B"}, nil, fine, "at 1B new locks are refused"},
		{(*node).checkEviction, fields{"maxmemory_policy": "allkeys-lfu", "maxmemory": "1"}, nil, warning, "any key may be evicted"},
		{(*node).checkEviction, fields{"maxmemory_policy": "volatile-ttl", "maxmemory": "1"}, nil, warning, "every lock has one"},
		{(*node).checkEviction, nil, nil, unchecked, "not"},
		{(*node).checkPersistence, fields{"aof_enabled": "1"}, fields{"appendfsync": "always"}, fine, "survive a restart"},
		{(*node).checkPersistence, fields{"aof_enabled": "1"}, fields{"appendfsync": "everysec"}, fine, "last second"},
		{(*node).checkPersistence, fields{"aof_enabled": "1"}, fields{"appendfsync": "no"}, warning, "half a minute"},
		{(*node).checkPersistence, fields{"aof_enabled": "1", "aof_last_write_status": "err"}, fields{"appendfsync": "no"}, broken, "refuses to write"},
		{(*node).checkPersistence, fields{"aof_enabled": "1"}, nil, unchecked, "not told"},
		{(*node).checkPersistence, fields{"aof_enabled": "0"}, fields{"save": "3600 1"}, warning, "snapshots only"},
		{(*node).checkPersistence, fields{"aof_enabled": "0"}, fields{"save": ""}, warning, "forgets all locks"},
		{(*node).checkPersistence, fields{"aof_enabled": "0"}, nil, warning, "forgets locks"},
		{(*node).checkPersistence, nil, nil, unchecked, "INFO"},
		{connections, nil, fields{"client-output-buffer-limit": "normal 0 0 0 slave 1 1 1 pubsub 33554432 8388608 60", "timeout": "0", "tcp-keepalive": "300"}, fine, "no harm"},
		{connections, nil, fields{"client-output-buffer-limit": "normal 0 0 0 slave 1 1 1 pubsub 1000 0 0"}, warning, "at 1000 bytes"},
		{connections, nil, fields{"timeout": "5"}, warning, "after 5 s"},
		{connections, nil, fields{"timeout": "300"}, fine, "no harm"},
		{connections, nil, fields{"tcp-keepalive": "0"}, warning, "counted as waiting"},
	} {
		f := tc.check(&node{info: tc.info, config: tc.config})
		require.Equal(t, tc.want, f.Level, "%+v", f)
		require.Contains(t, f.Text, tc.says)
		if strings.Contains(f.Text, "snapshots") { // it would start without data
			require.Contains(t, f.Advice, "CONFIG SET appendonly yes now, then")
		}
	}
	for version, want := range map[string]level{
		"7.0.15": fine, "6.2": fine, "6.2.14": fine, "8.4.0": fine, "6.0.16": broken, "5": broken, "": unchecked,
	} {
		n := &node{version: version}
		require.Equal(t, want, n.checkVersion().Level, version)
	}
}

// Who may write but neither end nor remove a key leaves none behind.
func TestDoctorLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rdb := f.Client(t)
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "half", "on", ">half", "+@all", "-pexpire", "-del", "-unlink", "~*", "&*").Err())
	code, r := examined(t, "redis://half:half@"+f.Addr())
	require.Equal(t, exitBroken, code)
	require.Equal(t, unchecked, r.levels()["scripts"])
	require.Empty(t, rdb.Keys(t.Context(), "*").Val())
}

func connections(n *node) finding { return n.checkConnections()[0] }

// A number stands alone: "longest of 20 500µs" reads like one.
func TestRoundTripText(t *testing.T) {
	trips := slices.Repeat([]time.Duration{400 * time.Microsecond}, 19)
	text := (&node{}).roundTrips(append(trips, 500*time.Microsecond)).Text
	require.Equal(t, "median 400µs, longest 500µs, of 20: Lock and Unlock take one each", text)
}

func TestClockChecks(t *testing.T) {
	n := &node{}
	at := func(node string, offset, within time.Duration) reading { return reading{node, offset, within} }
	require.Equal(t, fine, n.clock(at("", -900*time.Millisecond, 0)).Level)
	require.Equal(t, warning, n.clock(at("", -1100*time.Millisecond, 0)).Level)
	require.Equal(t, "in step with this host's, to within 10µs; a difference would do no harm, as leases are durations", n.clock(at("", 10*time.Microsecond, 10*time.Microsecond)).Text)
	require.Contains(t, n.clock(at("", -30*time.Microsecond, 0)).Text, "30µs behind this host's,")
	require.Contains(t, n.clock(at("", 30*time.Microsecond, 0)).Text, "30µs ahead of this host's,")
	require.Equal(t, fine, n.clock(at("", 1100*time.Millisecond, 200*time.Millisecond)).Level, "it may be the way")
	require.Equal(t, fine, clocksApart([]reading{at("a", 0, 0), at("b", 5*time.Second, 5*time.Second)}).Level)
	f := clocksApart([]reading{at("a", 10*time.Second, 0), at("c", 10100*time.Millisecond, 0), at("b", 9*time.Second, 0)})
	require.Equal(t, warning, f.Level)
	require.Contains(t, f.Text, "c is 1.1s ahead of b")
	require.Equal(t, fine, n.roundTrips([]time.Duration{slowTrip, time.Millisecond}).Level)
	require.Equal(t, warning, n.roundTrips([]time.Duration{time.Millisecond, slowTrip + 1}).Level)
}

func TestClusterState(t *testing.T) {
	state := func(state, ok, fail string) level {
		return clusterState(map[string]string{"cluster_state": state, "cluster_slots_ok": ok, "cluster_slots_fail": fail}).Level
	}
	require.Equal(t, fine, state("ok", "16384", "0"))
	require.Equal(t, warning, state("ok", "16000", "0"))
	require.Equal(t, broken, state("ok", "16000", "384"), "without full coverage wanted")
	require.Equal(t, broken, state("fail", "16384", "0"))
}

func TestReportGolden(t *testing.T) {
	r := report{Server: "h:1/0", Topology: "standalone"}
	r.ACL.Locks, r.ACL.ReadOnly = "A", "B"
	n, m := &node{addr: "n"}, &node{addr: "m"}
	r.add(n.finding("version", fine, "7"), m.finding("version", fine, "7"), m.finding("eviction", unchecked, "no\x1b"))
	r.add(n.finding("lock", warning, "slow").advise("hurry"))
	var out bytes.Buffer
	require.NoError(t, r.print(&out, 0))
	require.Equal(t, `server                 h:1/0, standalone
version   ok           n, m: 7
eviction  not checked  "m: no\x1b"
lock      warning      n: slow
                       -> hurry

A user who may do what plain locks need, and nothing else (fair and read/write locks: docs/acl.md):
  A
One who may look at them only:
  B

1 warning, 1 not checked
`, out.String())
	out.Reset()
	require.NoError(t, r.write(&output{Writer: &out}, true))
	require.JSONEq(t, `{"server":"h:1/0","topology":"standalone","level":"warning","findings":[
		{"check":"version","nodes":["n","m"],"level":"ok","text":"7"},
		{"check":"eviction","nodes":["m"],"level":"not checked","text":"no\u001b"},
		{"check":"lock","nodes":["n"],"level":"warning","text":"slow","advice":"hurry"}],
		"acl":{"locks":"A","read_only":"B"}}`, out.String())
	code, text := exit(r.exit())
	require.Equal(t, exitWarnings, code)
	require.Empty(t, text)
}

// A report for a terminal has lines that fit, cut between words, and commands to copy in one.
func TestReportFits(t *testing.T) {
	var r report
	n := &node{addr: "127.0.0.1:7000"}
	long := strings.Repeat("lock \"日本\" ", 20)
	r.add(n.finding("sharded pub/sub", unchecked, "%s", long).advise("%s", long))
	r.add(n.finding("acl", warning, "x").advise("ACL SETUSER u %s", strings.Repeat("+x ", 50)))
	var out bytes.Buffer
	require.NoError(t, r.print(&out, 80))
	commands := 0
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimRight(line, "\n"); strings.Contains(line, "ACL SETUSER") {
			commands++
			continue
		}
		require.LessOrEqual(t, display.StringWidth(line), 80, "%q", line)
		for word := range strings.FieldsSeq(line) {
			require.NotContains(t, word, "\\", "nothing is quoted")
		}
	}
	require.Equal(t, 1, commands)
	require.Contains(t, out.String(), "\n"+strings.Repeat(" ", 33)+`lock "日本"`, "advice is indented behind its arrow")
	require.Equal(t, 40, strings.Count(out.String(), `"日本"`))
	out.Reset()
	require.NoError(t, r.print(&out, 10))
	require.Equal(t, 7, strings.Count(out.String(), "\n"), "a terminal without room for words")
}

// That the memory of a server is used up is a finding of its own, not only the error of the trial.
func TestDoctorOfAFullServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--appendonly", "yes")
	require.NoError(t, srv.Client(t).ConfigSet(t.Context(), "maxmemory", "512kb").Err()) // less than it has now
	code, r := examined(t, srv.URL())
	require.Equal(t, exitBroken, code)
	require.Equal(t, broken, r.levels()["eviction"])
	require.Contains(t, r.about("eviction").Text, "memory is used up")
	require.Contains(t, r.about("lock").Text, "OOM")
	require.Equal(t, freeMemory, r.about("lock").Advice)
}

func TestHelloFields(t *testing.T) {
	srv := redistest.Start(t)
	for _, protocol := range []int{2, 3} {
		hello, err := srv.Client(t, func(o *redis.Options) { o.Protocol = protocol }).Do(t.Context(), "hello").Result()
		require.NoError(t, err)
		fields := helloFields(hello)
		require.NotEmpty(t, fields["version"])
		require.Equal(t, "standalone", fields["mode"])
		require.Equal(t, "master", fields["role"])
	}
}

// The rights of elections, jobs and results are tried. That they are missing is said, and is no fault.
func TestDoctorTriesTheRightsOfElections(t *testing.T) {
	w := newACLWorld(t, aclLine("u", aclPrefix, aclPrefix+"*", lockUser|electing), "")
	acl := func() (all []finding) {
		code, r := examined(t, "redis://u:PASSWORD@"+w.srv.Addr(), "--prefix", aclPrefix)
		require.Zero(t, code, "%+v", r.Findings)
		for _, f := range r.Findings {
			if f.Check == "acl" {
				all = append(all, f)
			}
		}
		return all
	}
	found := acl()
	require.Len(t, found, 1)
	require.Contains(t, found[0].Text, "that plain locks, elections, jobs and shared results under app:* need is permitted")
	for _, r := range rightsFor(aclPrefix, aclPrefix+"*") {
		if r.needs&electing == 0 {
			continue
		}
		var args []any
		for word := range strings.FieldsSeq(aclLine("u", aclPrefix, aclPrefix+"*", lockUser|electing)) {
			if word != r.item {
				args = append(args, word)
			}
		}
		require.NoError(t, w.admin.Do(t.Context(), args...).Err())
		found := acl()
		require.Len(t, found, 2)
		require.Contains(t, found[0].Text, "that plain locks under app:* need is permitted")
		require.Equal(t, finding{
			Check: "acl", Level: fine, Text: "no right to " + r.item + ": elections, jobs, shared results and idempotency keys are refused; locks need none of it",
			Advice: "ACL SETUSER USER " + r.item,
		}, found[1])
	}
}
