package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/lua"
)

// tells writes a record of a client c that holds locks, and takes these.
func tells(t *testing.T, rdb *redis.Client, what record.What, names ...string) {
	t.Helper()
	ctx, at := t.Context(), time.Now()
	r := record.Record{Who: record.Who{Host: "h", Program: "p", PID: 1}, Written: at}
	for i, name := range names {
		owner := fmt.Sprint("c:", i+1)
		r.Entries = append(r.Entries, record.Entry{What: what, Name: name, Kind: "plain", Owner: owner, Purpose: "sums", Cause: map[record.What]string{record.Lost: "gone"}[what], Since: at})
		if what == record.Holds {
			require.NoError(t, rdb.HSet(ctx, name, owner, 1).Err())
			require.NoError(t, rdb.PExpire(ctx, name, time.Hour).Err())
		}
	}
	require.NoError(t, lua.WriteRecord(ctx, rdb, record.Key("", "c"), record.Lasts, r.Fields()))
	require.NoError(t, enlist(ctx, rdb, record.List(""), "c", record.Lasts))
}
