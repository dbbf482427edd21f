package lua_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-rlock/rlock/lua"
)

// rwModel is a read/write lock as the scripts should treat it. Time stands still.
type rwModel struct {
	writer string
	writes int
	reads  map[string][]time.Duration // leases of the holds of each owner
	ttl    time.Duration
	intent string
}

func (m *rwModel) deliver(r rwRequest) string {
	stretch := func(n int) {
		leases := slices.Clone(m.reads[r.owner])
		for len(leases) < n {
			leases = append(leases, 0)
		}
		for i := range leases {
			leases[i] = max(leases[i], r.lease)
		}
		m.ttl = max(m.ttl, r.lease)
		if leases = leases[:n]; n > 0 {
			m.reads[r.owner] = leases
		} else {
			delete(m.reads, r.owner)
		}
	}
	mine := m.writer == r.owner || len(m.reads[r.owner]) > 0
	switch r.script {
	case "read":
		switch {
		case len(m.reads[r.owner]) > 0:
			stretch(len(m.reads[r.owner]))
		case m.writer != "": // me or not: a writer reads by count
			return "refused, " + showTTL(m.ttl)
		case m.intent != "":
			return "refused, " + showTTL(time.Minute)
		default:
			stretch(1)
		}
	case "write", "try":
		switch {
		case mine:
			stretch(len(m.reads[r.owner]))
		case m.writer != "":
			return "refused, " + showTTL(m.ttl) + ", intent false"
		case len(m.reads) > 0:
			if r.script == "write" {
				m.intent = r.owner
			}
			first := time.Hour
			for leases := range maps.Values(m.reads) {
				first = min(first, slices.Max(leases))
			}
			return fmt.Sprintf("refused, %s, intent %t", showTTL(first), r.script == "write")
		default:
			m.writer, m.writes, m.ttl, m.intent = r.owner, 1, r.lease, ""
		}
	case "count":
		if !mine || r.writes > 0 && m.writer != r.owner {
			return lua.ErrNotOwner.Error()
		}
		stretch(r.reads)
		if m.writer == r.owner {
			if m.writes = r.writes; r.writes == 0 {
				m.writer, m.intent = "", ""
			}
		}
	case "renew":
		if !mine {
			return lua.ErrNotOwner.Error()
		}
		stretch(len(m.reads[r.owner]))
	case "release":
		if !mine {
			if m.intent == r.owner {
				m.intent = ""
			}
			return lua.ErrNotOwner.Error()
		}
		if m.writer == r.owner {
			m.writer, m.writes, m.intent = "", 0, ""
		}
		delete(m.reads, r.owner)
	}
	return "done"
}

// holders shows what must be exact. The TTL of the hash is not: see longest.
func (m *rwModel) holders() string {
	fields := make(map[string]string)
	if m.writer != "" {
		fields["mode"], fields[m.writer+":write"] = "write", strconv.Itoa(m.writes)
	} else if len(m.reads) > 0 {
		fields["mode"] = "read"
	}
	var keys []string
	for owner, leases := range m.reads {
		fields[owner] = strconv.Itoa(len(leases))
		for i, d := range leases {
			keys = append(keys, fmt.Sprintf("%s %s", holdKey(owner, i+1), showTTL(d)))
		}
	}
	slices.Sort(keys)
	return fmt.Sprint(fields, keys, m.intent)
}

func (m *rwModel) longest() (d time.Duration) {
	for _, leases := range m.reads {
		d = max(d, slices.Max(leases))
	}
	return d
}

func holders(t require.TestingT, rdb *redis.Client) string {
	ctx := context.Background()
	fields, err := rdb.HGetAll(ctx, "lock").Result()
	require.NoError(t, err)
	var keys []string
	for _, key := range rdb.Keys(ctx, "{lock}:*").Val() {
		keys = append(keys, key+" "+showTTL(rdb.PTTL(ctx, key).Val()))
	}
	slices.Sort(keys)
	return fmt.Sprint(fields, keys, rdb.Get(ctx, rw("").Intent).Val())
}

// Whatever is delivered, in whatever order and however late, server and model
// agree, and a repetition changes nothing. The lock outlives all its holds, and
// when the last reader leaves, no longer than that.
func TestReadWriteAnyOrderOfDeliveries(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			require.NoError(t, rdb.FlushAll(context.Background()).Err())
			m := &rwModel{reads: make(map[string][]time.Duration)}
			for range rapid.IntRange(1, 30).Draw(t, "requests") {
				r := rwRequest{
					script: rapid.SampledFrom([]string{"read", "write", "try", "count", "release", "renew"}).Draw(t, "script"),
					owner:  rapid.SampledFrom([]string{"a:1", "a:2", "b:1"}).Draw(t, "owner"),
					lease:  time.Duration(rapid.IntRange(3, 6).Draw(t, "lease")) * 10 * time.Second,
					writes: rapid.IntRange(0, 2).Draw(t, "writes"),
				}
				r.reads = rapid.IntRange(1-min(r.writes, 1), 3).Draw(t, "reads")
				before := rdb.PTTL(context.Background(), "lock").Val()
				m.ttl = max(0, before.Truncate(time.Second)) // the model does not follow how it is cut
				want := m.deliver(r)
				require.Equal(t, want, r.deliver(t, rdb))
				require.Equal(t, m.holders(), holders(t, rdb))
				ttl := rdb.PTTL(context.Background(), "lock").Val()
				if m.writer != "" || len(m.reads) > 0 {
					require.Greater(t, ttl, m.longest()-5*time.Second)
				}
				if rapid.Bool().Draw(t, "again") {
					m.deliver(r)
					r.deliver(t, rdb)
					require.Equal(t, m.holders(), holders(t, rdb), "repeated")
				}
			}
		})
	})
}
