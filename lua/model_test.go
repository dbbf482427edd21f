package lua_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-rlock/rlock/lua"
)

// request is a script call as it may lie about in the network.
type request struct {
	script string
	owner  string
	lease  time.Duration // in steps of 10 s, which is what show tells apart
	n      int           // of count
}

// deliver has the server execute a request, and returns its answer.
func (r request) deliver(t require.TestingT, rdb *redis.Client) string {
	ctx := context.Background()
	var err error
	switch r.script {
	case "acquire":
		var reply lua.Reply
		reply, err = lua.Acquire(ctx, rdb, grant(r.owner), r.lease, 0)
		if err == nil && !reply.Acquired {
			return "refused, " + showTTL(reply.TTL)
		}
	case "count":
		err = lua.Count(ctx, rdb, grant(r.owner), r.lease, r.n)
	case "release":
		_, err = lua.Release(ctx, rdb, grant(r.owner), lua.Ending{})
	case "renew":
		err = lua.Renew(ctx, rdb, []lua.Renewal{{Grant: grant(r.owner), Lease: r.lease}})[0]
	}
	if errors.Is(err, lua.ErrNotOwner) {
		return "not owner"
	}
	require.NoError(t, err)
	return "done"
}

// model is a lock as the scripts should treat it. Its time stands still.
type model struct {
	owner string // "" if free
	holds int
	ttl   time.Duration
}

func (m *model) deliver(r request) string {
	switch {
	case r.script == "acquire" && m.owner == "":
		*m = model{r.owner, 1, r.lease}
		return "done"
	case r.script == "acquire" && m.owner != r.owner:
		return "refused, " + showTTL(m.ttl)
	case m.owner != r.owner:
		return "not owner"
	case r.script == "release":
		*m = model{}
		return "done"
	case r.script == "count":
		m.holds = r.n
	}
	m.ttl = max(m.ttl, r.lease) // never shortened
	return "done"
}

func (m *model) String() string {
	if m.owner == "" {
		return ""
	}
	return fmt.Sprintf("%s=%d %s", m.owner, m.holds, showTTL(m.ttl))
}

func drawRequest(t *rapid.T, owner string) request {
	return request{
		script: rapid.SampledFrom([]string{"acquire", "count", "release", "renew"}).Draw(t, "script"),
		owner:  owner,
		lease:  time.Duration(rapid.IntRange(3, 6).Draw(t, "lease")) * 10 * time.Second,
		n:      rapid.IntRange(1, 5).Draw(t, "n"),
	}
}

// Whatever is delivered, in whatever order, server and model agree, and a
// repetition changes nothing. In particular no key is without TTL, no TTL is
// shortened, and nothing of one owner touches another.
func TestAnyOrderOfDeliveries(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			require.NoError(t, rdb.Del(context.Background(), "lock").Err())
			m := &model{}
			for range rapid.IntRange(1, 30).Draw(t, "requests") {
				r := drawRequest(t, rapid.SampledFrom([]string{"a:1", "a:2", "b:1"}).Draw(t, "owner"))
				require.Equal(t, m.deliver(r), r.deliver(t, rdb))
				require.Equal(t, m.String(), show(t, rdb, "lock"))
				if rapid.Bool().Draw(t, "again") {
					r.deliver(t, rdb)
					require.Equal(t, m.String(), show(t, rdb, "lock"), "repeated")
				}
			}
		})
	})
}

// A client takes the lock again and again, with a new owner each time, while
// requests of earlier grants, and of this one, are delivered once more. They may
// show a wrong number until the next request; they never end the grant, and the
// number is right whenever one of the client's own requests has been answered.
func TestLateDeliveriesLeaveTheGrant(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			require.NoError(t, rdb.Del(context.Background(), "lock").Err())
			var sent []request
			late := func(holder string) {
				for range rapid.IntRange(0, 3).Draw(t, "late") {
					r := rapid.SampledFrom(sent).Draw(t, "late request")
					if r.owner == holder && r.script == "release" {
						continue // not sent yet
					}
					r.deliver(t, rdb)
					if holder == "" {
						// A late acquire has made an orphan. It ends with its
						// lease, or by the release that follows in such a case.
						request{script: "release", owner: r.owner}.deliver(t, rdb)
						require.Empty(t, show(t, rdb, "lock"))
					}
				}
			}
			for i := range rapid.IntRange(1, 4).Draw(t, "grants") {
				owner := fmt.Sprintf("a:%d", i)
				send := func(r request) string {
					r.owner = owner
					sent = append(sent, r)
					return r.deliver(t, rdb)
				}
				require.Equal(t, "done", send(request{script: "acquire", lease: 10 * time.Second}))
				late(owner)
				for range rapid.IntRange(0, 4).Draw(t, "nested") {
					r := request{script: "count", lease: 10 * time.Second, n: rapid.IntRange(1, 5).Draw(t, "n")}
					require.Equal(t, "done", send(r))
					require.Equal(t, fmt.Sprintf("%s=%d 10s", owner, r.n), show(t, rdb, "lock"))
					late(owner)
				}
				require.Equal(t, "done", send(request{script: "release"}))
				require.Empty(t, show(t, rdb, "lock"))
				late("")
			}
		})
	})
}
