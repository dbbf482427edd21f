package verify

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// operatorFaults are what somebody with access to the server does to it.
var operatorFaults = []fault{
	{name: "SCRIPT FLUSH", harmless: true, strike: again(1*ms, 10*ms, func(w *world) { w.do("script", "flush") })},
	{
		name: "FLUSHALL", leases: short, steady: true,
		strike: again(100*ms, 400*ms, func(w *world) { w.forgets("", func() { w.do("flushall") }) }),
	},
	{
		name: "DEL", leases: short, steady: true,
		strike: again(10*ms, 60*ms, func(w *world) {
			lock := w.anyLock()
			w.forgets(lock, func() { w.do("del", lock) })
		}),
	},
	{name: "PERSIST", strike: again(5*ms, 40*ms, func(w *world) { w.do("persist", w.anyLock()) })},
	{
		name: "force-unlock",
		strike: func(ctx context.Context, w *world) {
			locks, err := rlock.New(w.admin, nil)
			require.NoError(w, err)
			again(10*ms, 60*ms, func(w *world) {
				lock := w.anyLock()
				mu := locks.NewLock(lock)
				if w.row.lock == readWrite {
					mu = locks.NewRWLock(lock).Writer()
				}
				w.forgets(lock, func() {
					_, err := mu.ForceUnlock(context.Background())
					require.NoError(w, err)
				})
			})(ctx, w)
			require.NoError(w, locks.Close(context.Background()))
		},
	},
	{name: "CLIENT KILL, commands", strike: again(5*ms, 40*ms, func(w *world) { w.do("client", "kill", "type", "normal", "skipme", "yes") })},
	{name: "CLIENT KILL, subscriptions", harmless: true, strike: again(5*ms, 40*ms, func(w *world) { w.do("client", "kill", "type", "pubsub") })},
	{name: "CLIENT PAUSE WRITE", strike: again(100*ms, 500*ms, func(w *world) { w.do("client", "pause", w.some(50*ms, 600*ms).Milliseconds(), "write") })},
	{name: "CLIENT PAUSE ALL", strike: again(100*ms, 500*ms, func(w *world) { w.do("client", "pause", w.some(50*ms, 600*ms).Milliseconds(), "all") })},
	{
		name: "junk on the unlock channels", harmless: true,
		strike: again(5*ms, 20*ms, func(w *world) { w.shout(100, "junk") }),
	},
	{
		name: "subscribers too slow for the output buffer",
		setUp: func(w *world) {
			w.do("config", "set", "client-output-buffer-limit", "pubsub 16kb 16kb 1")
		},
		strike: again(30*ms, 100*ms, func(w *world) { w.shout(4, strings.Repeat("x", 1<<20)) }),
	},
	{
		// Stands for a step of the server's clock: libfaketime does not run with
		// Debian's redis-server. A step ahead is that much less of every lease.
		name: "server clock ahead", leases: short,
		strike: again(50*ms, 300*ms, func(w *world) {
			since := now()
			w.shift(-w.some(100*ms, 1000*ms).Milliseconds())
			w.mayForget(since)
		}),
	},
	{
		name: "server clock back", leases: short,
		strike: again(50*ms, 300*ms, func(w *world) { w.shift(w.some(100*ms, 300*ms).Milliseconds()) }),
	},
}

// shout sends messages to the channels of all locks of the round.
func (w *world) shout(times int, message string) {
	_, err := w.admin.Pipelined(context.Background(), func(p redis.Pipeliner) error {
		for range times {
			p.Publish(context.Background(), "redisson_lock__channel:{"+w.anyLock()+"}", message)
		}
		return nil
	})
	require.NoError(w, err)
}

var shiftScript = redis.NewScript(`
for _, key in ipairs(KEYS) do
    local left = redis.call('pttl', key)
    if left > 0 then
        redis.call('pexpire', key, left + ARGV[1])
    end
end
`)

// shift moves the end of all leases.
func (w *world) shift(by int64) {
	err := shiftScript.Run(context.Background(), w.admin, w.job.names(), by).Err()
	if err != redis.Nil {
		require.NoError(w, err)
	}
}

// refusalFaults make the server refuse what the lock needs.
var refusalFaults = []fault{
	{name: "OOM: maxmemory, noeviction", strike: phases(50*ms, 500*ms, config("maxmemory", "1"), config("maxmemory", "0"))},
	{name: "NOREPLICAS", strike: phases(50*ms, 500*ms, config("min-replicas-to-write", "1"), config("min-replicas-to-write", "0"))},
	{
		name: "MISCONF: the disk refuses snapshots", args: []string{"--enable-protected-configs", "yes"},
		strike: phases(50*ms, 500*ms, func(w *world) {
			dir := w.admin.ConfigGet(context.Background(), "dir").Val()["dir"]
			require.NoError(w, os.MkdirAll(filepath.Join(dir, "blocked"), 0o700))
			w.do("config", "set", "dbfilename", "blocked", "save", "3600 1")
			w.do("bgsave")
			w.until("rdb_bgsave_in_progress:0") // the status may be that of the time before
			w.until("rdb_last_bgsave_status:err")
		}, config("dbfilename", "dump.rdb", "save", "")),
	},
	{
		name: "connection limit reached",
		strike: func(ctx context.Context, w *world) {
			operator := w.admin.Conn() // has to be in already
			defer func() { _ = operator.Close() }()
			do := func(args ...any) { require.NoError(w, operator.Do(context.Background(), args...).Err()) }
			phases(100*ms, 500*ms, func(*world) {
				do("config", "set", "maxclients", 1)
				do("client", "kill", "type", "normal", "skipme", "yes")
			}, func(*world) { do("config", "set", "maxclients", 10000) })(ctx, w)
		},
	},
	// A subscription that was refused is asked for again after half a minute only.
	acl("ACL without SUBSCRIBE", nil, "resetchannels -subscribe", "allchannels +subscribe"),
	acl("ACL without EVALSHA and EVAL", nil, "-evalsha -eval", "+evalsha +eval"),
	acl("ACL without PUBLISH", short, "-publish", "+publish"),
	acl("ACL without the channels", short, "resetchannels", "allchannels"),
	acl("ACL without the key", nil, "resetkeys", "allkeys"),
	acl("ACL without HSET", nil, "-hset", "+hset"),
	acl("password withdrawn", nil, "off", "on"),
}

func config(args ...any) func(*world) {
	return func(w *world) { w.do(append([]any{"config", "set"}, args...)...) }
}

// acl is a row in which a user loses rights while running, and gets them back.
func acl(name string, leases []string, take, give string) fault {
	set := func(rules string) func(*world) {
		return func(w *world) {
			args := []any{"acl", "setuser", "locks"}
			for rule := range strings.FieldsSeq(rules) {
				args = append(args, rule)
			}
			w.do(args...)
			if rules == "off" {
				w.do("client", "kill", "user", "locks")
			}
		}
	}
	return fault{
		name: name, kind: "user", leases: leases,
		setUp:  set("on >secret allkeys allchannels +@all"),
		strike: phases(100*ms, 600*ms, set(take), set(give)),
	}
}
