package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

func enlist(ctx context.Context, r lua.Runner, list, client string, lasts time.Duration) error {
	_, err := lua.Enlist(ctx, r, list, client, lasts)
	return err
}

// record writes a record, and removes it, as a client does.
func (w *aclWorld) record(ctx context.Context) error {
	key, list := record.Key(aclPrefix, "x"), record.List(aclPrefix)
	err := w.admin.ZAdd(ctx, list, redis.Z{Score: 1, Member: "dead"}).Err()
	return errors.Join(
		err,
		lua.WriteRecord(ctx, w.user, key, time.Minute, []any{"host", "h"}),
		enlist(ctx, w.user, list, "x", time.Minute),
		enlist(ctx, w.user, list, "x", 0),
		lua.WriteRecord(ctx, w.user, key, 0, nil),
	)
}

// observe looks at a lock that a client tells of, and at what is next to it.
func (w *aclWorld) observe(ctx context.Context, name string) error {
	r := record.Record{Who: record.Who{Host: "h"}, Entries: []record.Entry{{What: record.Holds, Name: name, Owner: "x:1"}}}
	err := errors.Join(
		lua.WriteRecord(ctx, w.admin, record.Key(aclPrefix, "x"), time.Minute, r.Fields()),
		enlist(ctx, w.admin, record.List(aclPrefix), "x", time.Minute),
		w.admin.HSet(ctx, aclPrefix+name, "x:1", 1).Err(),
		w.admin.HSet(ctx, companion.Key(aclPrefix+name), "is", "election", "owner", "x:1", "term", 7, "value", "v").Err(),
	)
	defer w.admin.Del(ctx, companion.Key(aclPrefix+name))
	if err != nil {
		return err
	}
	s := &server{rdb: w.user, prefix: aclPrefix}
	if seen := s.companion(ctx, rlock.State{Name: name, Holds: map[string]int64{"x:1": 1}}); seen.Election == nil || seen.Election.Term != 7 {
		return fmt.Errorf("next to the lock: %+v", seen)
	}
	v, err := s.top(ctx, wantedBy("*"))
	if err == nil && (len(v.Locks) != 1 || len(v.Locks[0].Holders) != 1 || v.Locks[0].Holders[0].Host != "h") {
		return fmt.Errorf("seen: %+v", v)
	}
	return err
}

// watch subscribes to the releases of all locks with names of one sort.
func (w *aclWorld) watch(ctx context.Context, name string) error {
	for _, kind := range unlockChannels() {
		pattern := kind + ":{" + aclPrefix + "*}"
		if strings.Contains(name, "{") {
			pattern = kind + ":" + aclPrefix + "*"
		}
		ps := w.user.PSubscribe(ctx, pattern)
		_, err := ps.Receive(ctx)
		if err := errors.Join(err, ps.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Records of clients have keys of their own, beside those of locks. A user with rights to
// some names only needs a right to these keys as well, and rlock doctor says what it is
// for.
func TestRightsToRecords(t *testing.T) {
	t.Parallel()
	line := aclLine("u", aclPrefix, aclPrefix+"x*", lockUser|observing)
	require.Contains(t, line, " ~app:rlock_client:* ~app:rlock_clients ")
	for _, item := range []string{"~app:rlock_client:*", "~app:rlock_clients", "nothing"} {
		w := newACLWorld(t, line, item)
		for _, f := range []feature{recording, observing} {
			if err := w.works(f, "x"); item == "nothing" {
				require.NoError(t, err)
			} else {
				require.Error(t, err, "%v without %s", f, item)
			}
		}
		d := newDoctor(&server{rdb: w.user, prefix: aclPrefix}, "x*")
		d.findNodes(t.Context())
		d.checkRights(t.Context())
		var found []finding
		for _, f := range d.report.Findings {
			if f.Level != fine {
				found = append(found, f)
			}
		}
		if item == "nothing" {
			require.Empty(t, found)
			continue
		}
		require.Len(t, found, 1, "%+v", found)
		require.Equal(t, warning, found[0].Level)
		require.Contains(t, found[0].Text, "no right to "+item+": rlock top")
	}
}
