package rlock

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/redistest"
)

// Requests of several callers share a script, and the server refuses it because the user
// has no right to one of the keys. Each caller still gets the answer to its own request,
// and the client does not try a shared script again at once.
func TestRefusedCompany(t *testing.T) {
	srv := redistest.Start(t)
	require.NoError(t, srv.Client(t).Do(t.Context(), "acl", "setuser", "app", "on", "nopass", "~mine:*", "~rlock_queue:{mine:*", "&*", "+@all").Err())
	rdb := srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "none" })
	c, err := New(rdb, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	joint := new(atomic.Int32) // scripts for several calls
	rdb.AddHook(redistest.Sees(func(_ context.Context, cmd redis.Cmder) {
		if len(cmd.Args()) > 8 { // a release has as many
			joint.Add(1)
		}
	}))
	round := func() {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				held, hold, err := c.NewLock("mine:" + strconv.Itoa(i)).Lock(t.Context())
				if assert.NoError(t, err) {
					assert.NoError(t, hold.Unlock(held))
				}
			})
			wg.Go(func() {
				_, _, err := c.NewLock("yours:" + strconv.Itoa(i)).Lock(t.Context())
				assert.ErrorIs(t, err, ErrUnavailable)
				assert.ErrorContains(t, err, "NOPERM")
			})
		}
		wg.Wait()
	}
	for range 10 {
		round()
	}
	require.NotZero(t, joint.Load(), "they were asked, and refused")
	before := joint.Load()
	round()
	require.Equal(t, before, joint.Load())
}

// While more is left behind than a slow server can release, nobody asks for another lock.
// Whoever has one locks and unlocks it as always, also nested.
func TestNestedWhileOthersAreHeldBack(t *testing.T) {
	t.Parallel()
	c, err := New(redistest.Start(t).Client(t), nil)
	require.NoError(t, err)
	mu := c.NewLock("a")
	held, hold, err := mu.Lock(t.Context())
	require.NoError(t, err)
	c.scripts.Server("b").Hold(true)
	_, _, err = c.NewLock("b", WithLeaseTime(time.Second)).TryLock(t.Context())
	require.ErrorIs(t, err, ErrUnavailable)
	inner, nested, err := mu.TryLock(held)
	require.NoError(t, err)
	require.NoError(t, nested.Unlock(inner))
	state, err := mu.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int64{hold.Owner(): 1}, state.Holds, "the server was told")
	require.NoError(t, hold.Unlock(held))
	c.scripts.Server("b").Hold(false)
	require.NoError(t, c.Close(t.Context()))
}

// serverError is an error that a server has answered.
type serverError string

func (r serverError) Error() string { return string(r) }
func (serverError) RedisError()     {}

// Servers of all versions tell of a missing right in a script, each in its own words.
func TestAdviceForMissingRights(t *testing.T) {
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { require.NoError(t, single.Close()) }()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { require.NoError(t, cluster.Close()) }()
	of := func(rdb redis.UniversalClient) *Lock { return &Lock{client: &Client{server: kind.Server{RDB: rdb}}} }
	l := of(single)
	for _, text := range []string{
		"NOPERM this user has no permissions to run the 'evalsha' command",
		"ERR The user executing the script can't run this command or subcommand script: 1f, on @user_script:53.",
		"ERR Error running script (call to f_1f): @user_script:108: @user_script: 108: The user executing the script can't run this command or subcommand",
		"@user_script: 108: The user executing the script can't access at least one of the keys mentioned in the command arguments",
		"ERR ACL failure in script: User u has no permissions to run the 'hmget' command script: a4ca2a55, on @user_script:53.",
	} {
		require.ErrorContains(t, l.advise(serverError(text)), "(the ACL user lacks a right: rlock doctor", text)
		for kind, says := range map[kindNumber]string{fairKind: "(fair locks need", readKind: "(read/write locks need", writeKind: "(read/write locks need"} {
			l := of(single)
			l.kind = kind
			require.ErrorContains(t, l.advise(serverError(text)), says, text)
		}
	}
	moved := serverError("MOVED 15495 127.0.0.1:7804")
	require.ErrorContains(t, l.advise(moved), "rlock with --cluster")
	require.Equal(t, moved, of(cluster).advise(moved), "it does know")
	require.NotContains(t, l.advise(serverError("ERR something else")).Error(), "ACL")
}
