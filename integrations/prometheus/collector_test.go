package rlockprom_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rlockprom "github.com/go-rlock/rlock/integrations/prometheus"
	"github.com/go-rlock/rlock/rlock"
)

// newClient returns a client of a server inside the test.
func newClient(tb testing.TB) *rlock.Client { return newClientIn(tb, nil) }

// newClientIn is newClient with groups, unless group is nil.
func newClientIn(tb testing.TB, group func(string) string) *rlock.Client {
	tb.Helper()
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	require.NoError(tb, server.Start())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	client, err := rlock.New(rdb, &rlock.Options{Group: group})
	require.NoError(tb, err)
	tb.Cleanup(func() {
		require.NoError(tb, client.Close(context.Background()))
		require.NoError(tb, rdb.Close())
		server.Close()
	})
	return client
}

func nothing(context.Context) error { return nil }

// What is scraped is what was counted, and passes Prometheus' own checks of names.
func TestCollector(t *testing.T) {
	client := newClient(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(rlockprom.NewCollector(client))

	mu := client.NewLock("a")
	require.NoError(t, mu.Do(t.Context(), func(held context.Context) error {
		require.NoError(t, mu.Do(held, nothing))
		require.ErrorIs(t, mu.TryDo(t.Context(), nothing), rlock.ErrNotAcquired)
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP rlock_held Locks that are held.
# TYPE rlock_held gauge
rlock_held{kind="plain"} 1
# HELP rlock_calls_total Calls that wanted a lock and have ended.
# TYPE rlock_calls_total counter
rlock_calls_total{kind="plain",outcome="acquired"} 1
rlock_calls_total{kind="plain",outcome="busy"} 1
rlock_calls_total{kind="plain",outcome="canceled"} 0
rlock_calls_total{kind="plain",outcome="error"} 0
rlock_calls_total{kind="plain",outcome="handed_off"} 0
rlock_calls_total{kind="plain",outcome="nested"} 1
rlock_calls_total{kind="plain",outcome="unavailable"} 0
# HELP rlock_waiting Calls that want a lock and have not ended.
# TYPE rlock_waiting gauge
rlock_waiting{kind="plain"} 0
# HELP rlock_deadlocks_total Deadlocks that the client has found.
# TYPE rlock_deadlocks_total counter
rlock_deadlocks_total 0
`), "rlock_deadlocks_total", "rlock_held", "rlock_calls_total", "rlock_waiting"))
		return nil
	}))
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		switch f.GetName() {
		case "rlock_acquire_duration_seconds":
			require.Len(t, f.GetMetric(), 2) // acquired="false" first
			for _, m := range f.GetMetric() {
				require.EqualValues(t, 1, m.GetHistogram().GetSampleCount())
			}
		case "rlock_hold_duration_seconds":
			require.EqualValues(t, 1, f.GetMetric()[0].GetHistogram().GetSampleCount())
		}
	}
}

// The number of series does not depend on that of the locks.
func TestSeries(t *testing.T) {
	client := newClient(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(rlockprom.NewCollector(client))
	for i := range 10_000 {
		mu := client.NewLock(fmt.Sprint("name", i))
		if i%100 == 0 {
			mu = client.NewFairLock(fmt.Sprint("fair", i))
		}
		require.NoError(t, mu.Do(t.Context(), nothing))
	}
	require.LessOrEqual(t, series(t, registry), 93)
}

// series counts them as Prometheus does: a histogram has one for each bucket.
func series(t *testing.T, registry *prometheus.Registry) (n int) {
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				n += len(h.GetBucket()) + 3 // +Inf, sum, count
			} else {
				n++
			}
		}
	}
	return n
}

func TestNilClient(t *testing.T) {
	require.PanicsWithValue(t, "rlockprom: NewCollector: the client is nil", func() { rlockprom.NewCollector(nil) })
}

// Several clients, each with a label.
func TestSeveralClients(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for _, name := range []string{"a", "b"} {
		client := newClient(t)
		require.NoError(t, prometheus.WrapRegistererWith(prometheus.Labels{"client": name}, registry).Register(rlockprom.NewCollector(client)))
		require.NoError(t, client.NewLock("x").Do(t.Context(), nothing))
	}
	n, err := testutil.GatherAndCount(registry, "rlock_acquire_duration_seconds")
	require.NoError(t, err)
	require.Equal(t, 4, n)
}

// 10,000 names in 5 groups: the groups have the series, and add up to what there is without groups.
func TestGroups(t *testing.T) {
	client := newClientIn(t, func(name string) string { group, _, _ := strings.Cut(name, ":"); return group })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(rlockprom.NewCollector(client))
	mu := client.NewLock("group0:0") // there are calls with each outcome that has a histogram
	require.NoError(t, mu.Do(t.Context(), func(context.Context) error {
		require.ErrorIs(t, mu.TryDo(t.Context(), nothing), rlock.ErrNotAcquired)
		return nil
	}))
	for i := range 10_000 {
		require.NoError(t, client.NewLock(fmt.Sprint("group", i%5, ":", i)).Do(t.Context(), nothing))
	}
	n := series(t, registry)
	t.Log(n, "series")
	require.LessOrEqual(t, n, 60*5)
	require.NoError(t, client.NewFairLock(":no group").Do(t.Context(), nothing))
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)

	families, err := registry.Gather()
	require.NoError(t, err)
	acquired, waits, holds := make(map[string]float64), make(map[string]uint64), make(map[string]uint64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := make(map[string]string)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch group, grouped := labels["group"]; f.GetName() {
			case "rlock_calls_total":
				if labels["outcome"] == "acquired" {
					acquired[group] += m.GetCounter().GetValue()
				}
			case "rlock_acquire_duration_seconds":
				waits[group+labels["acquired"]] += m.GetHistogram().GetSampleCount()
			case "rlock_hold_duration_seconds":
				holds[group] += m.GetHistogram().GetSampleCount()
			case "rlock_held", "rlock_waiting":
				require.True(t, grouped, f.GetName())
			default:
				require.False(t, grouped, f.GetName())
			}
		}
	}
	require.Equal(t, map[string]float64{"": 1, "group0": 2001, "group1": 2000, "group2": 2000, "group3": 2000, "group4": 2000}, acquired)
	require.Equal(t, map[string]uint64{"": 1, "group0": 2001, "group1": 2000, "group2": 2000, "group3": 2000, "group4": 2000}, holds)
	require.EqualValues(t, 2001, waits["group0true"])
	require.EqualValues(t, 1, waits["group0false"])
}
