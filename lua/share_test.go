package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
)

const shareQueue = "rlock_quorum:{lock}"

// sharers are clients that want a share.
type sharers struct {
	t     *testing.T
	rdb   *redis.Client
	heard map[string]func() []string // by client; those that listen
}

func newSharers(t *testing.T, rdb *redis.Client, clients ...string) sharers {
	s := sharers{t, rdb, make(map[string]func() []string)}
	for _, c := range clients {
		s.heard[c] = listen(t, rdb, lua.GrantChannel("lock", c))
	}
	return s
}

// asks makes a request of an owner, such as "a:1". The ticket is that of the owner's client, with a number
// if one is given.
func (s sharers) asks(owner string, number ...int64) (lua.Reply, int64) {
	s.t.Helper()
	turn := lua.Turn{}
	turn.Client, _, _ = strings.Cut(owner, ":")
	if len(number) > 0 {
		turn.Number = number[0]
	}
	return s.asksAs(owner, turn)
}

func (s sharers) asksAs(owner string, turn lua.Turn) (lua.Reply, int64) {
	s.t.Helper()
	a, n, err := lua.Share(s.t.Context(), s.rdb, lua.Grant{Key: "lock", Owner: owner}, time.Minute, turn)
	require.NoError(s.t, err)
	return a, n
}

// granted and refused say how a request ends.
func (s sharers) granted(owner string) {
	s.t.Helper()
	a, _ := s.asks(owner)
	require.True(s.t, a.Acquired)
}

func (s sharers) refused(owner, holder string) {
	s.t.Helper()
	a, _ := s.asks(owner)
	require.False(s.t, a.Acquired)
	require.Equal(s.t, holder, a.Holder)
	require.Positive(s.t, a.TTL)
}

func (s sharers) releases(owner string) {
	s.t.Helper()
	client, _, _ := strings.Cut(owner, ":")
	_, err := lua.Yield(s.t.Context(), s.rdb, lua.Grant{Key: "lock", Owner: owner}, lua.Turn{Client: client}, false)
	require.NoError(s.t, err)
}

// hears requires that a client has been told this, and nothing else.
func (s sharers) hears(client string, want ...string) {
	s.t.Helper()
	require.ElementsMatch(s.t, want, s.heard[client](), client)
}

// misses ends the turn, as time does.
func (s sharers) misses() {
	s.t.Helper()
	first := s.rdb.ZRange(s.t.Context(), shareQueue, 0, 0).Val()[0]
	require.Equal(s.t, "!", first[:1])
	require.NoError(s.t, s.rdb.ZAdd(s.t.Context(), shareQueue, redis.Z{Score: -1, Member: first}).Err())
}

func (s sharers) tickets() (all []string) {
	for _, z := range s.rdb.ZRangeWithScores(s.t.Context(), shareQueue, 0, -1).Val() {
		all = append(all, fmt.Sprint(z.Member, " ", z.Score))
	}
	return all
}

// A release gives the turn to the first ticket, and tells its client; the next one is to ask if nobody takes
// the share. Meanwhile nobody else gets the share, whether with a ticket or without.
func TestShareGoesToWhoHasTheTurn(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		s := newSharers(t, rdb, "b", "c", "d")
		s.granted("a:1")
		s.refused("b:1", "a:1")
		s.refused("c:1", "a:1")
		s.refused("d:1", "a:1")
		require.Equal(t, []string{"b 1", "c 2", "d 3"}, s.tickets())
		s.releases("a:1")
		s.hears("b", "a:1")
		s.hears("c", "a:1 +")
		s.hears("d")
		s.refused("a:2", "")
		s.refused("c:2", "")
		a, n := s.asksAs("e:1", lua.Turn{}) // TryLock
		require.False(t, a.Acquired)
		require.Zero(t, n)
		require.LessOrEqual(t, a.TTL, 200*time.Millisecond)
		s.granted("b:2")
		s.granted("b:2") // a late or repeated request
		s.refused("c:3", "b:2")
		_, err := lua.Yield(t.Context(), rdb, lua.Grant{Key: "lock", Owner: "b:2"}, lua.Turn{}, true) // of a round that is lost
		require.NoError(t, err)
		for _, client := range []string{"b", "c", "d"} {
			s.hears(client)
		}
		require.Equal(t, []string{"b 1", "c 2", "d 3", "a 4"}, s.tickets(), "b waits on")
		s.granted("b:3")
		s.releases("b:3")
		_, err = lua.Yield(t.Context(), rdb, lua.Grant{Key: "lock", Owner: "b:3"}, lua.Turn{Client: "b"}, false) // a repetition: c was told
		require.ErrorIs(t, err, lua.ErrNotOwner)
		s.hears("c", "b:3")
		s.hears("d", "b:3 +")
		s.granted("c:4")
		s.releases("c:4")
		s.granted("d:2")
		s.releases("d:2")
		require.Empty(t, s.tickets(), "a does not listen: it has gone")
		s.granted("e:2")
		s.releases("e:2")
		require.Zero(t, rdb.Exists(t.Context(), "lock", shareQueue).Val())
	})
}

// A client that misses its turn loses its ticket, and the next one has the turn. So does one that leaves.
func TestShareOfWhoDoesNotCome(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		s := newSharers(t, rdb, "b", "c", "d", "e")
		s.granted("a:1")
		for _, client := range []string{"b", "c", "d", "e"} {
			s.refused(client+":1", "a:1")
		}
		s.releases("a:1")
		s.hears("b", "a:1")
		s.hears("c", "a:1 +")
		s.misses()
		s.refused("d:2", "")
		s.hears("b")
		s.hears("c", "d:2")
		s.hears("d")                                                                                                              // it has the answer
		_, err := lua.Yield(t.Context(), rdb, lua.Grant{Key: "lock", Owner: "nobody:0"}, lua.Turn{Client: "c", Number: 2}, false) // leaves
		require.ErrorIs(t, err, lua.ErrNotOwner)
		s.hears("d", "nobody:0")
		s.hears("e", "nobody:0 +")
		s.misses()
		s.granted("d:3") // late, and yet nobody else came
		s.releases("d:3")
		s.hears("e", "d:3")
		s.misses()
		s.granted("b:2") // e has missed its turn, and nobody else waits
	})
}

// The holder dies: nobody releases the share, and whoever asks first has the first ticket told.
func TestShareOfADeadHolder(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		s := newSharers(t, rdb, "b", "c")
		s.granted("a:1")
		s.refused("b:1", "a:1")
		s.refused("c:1", "a:1")
		require.NoError(t, rdb.Del(t.Context(), "lock").Err())
		s.refused("c:2", "")
		s.hears("b", "c:2")
		s.hears("c")
		s.granted("b:2")
	})
}

// The number of a ticket is behind the last one, and grows to the one that the client asks for. Clients with
// equal numbers are in the order of their ids.
func TestShareNumbers(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		s := newSharers(t, rdb, "b", "c", "d")
		s.granted("a:1")
		for _, tt := range []struct {
			owner        string
			number, want int64
		}{{"d:1", 0, 1}, {"d:2", 5, 5}, {"d:3", 3, 5}, {"d:4", 0, 5}, {"c:1", 0, 6}, {"b:1", 5, 5}} {
			_, n := s.asks(tt.owner, tt.number)
			require.Equal(t, tt.want, n, tt.owner)
		}
		require.Equal(t, []string{"b 5", "d 5", "c 6"}, s.tickets())
		a, n := s.asksAs("e:1", lua.Turn{Client: lua.Everybody}) // cannot be told
		require.False(t, a.Acquired)
		require.Zero(t, n)
		s.releases("a:1")
		a, _ = s.asksAs("e:2", lua.Turn{Client: lua.Everybody})
		require.True(t, a.Acquired, "it takes the share from whoever has the turn")
		s.refused("b:2", "e:2")
	})
}

// A key that is no lock, or no queue, is left alone.
func TestShareOfWhatIsNoLock(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		for _, key := range []string{"lock", shareQueue} {
			require.NoError(t, rdb.Set(t.Context(), key, "x", 0).Err())
			_, _, err := lua.Share(t.Context(), rdb, lua.Grant{Key: "lock", Owner: "a:1"}, time.Minute, lua.Turn{Client: "a"})
			require.Equal(t, &lua.ConflictError{Key: key, Type: "string"}, err)
			require.NoError(t, rdb.Del(t.Context(), key).Err())
		}
	})
}
