package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlocktest"
)

func TestShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, out := rlocktest.NewServer(t), new(strings.Builder)
		connect := func() *redis.Client { return server.Client() }
		require.NoError(t, show(t.Context(), out, connect, nil))
		require.Equal(t, strings.TrimPrefix(`
flashsale
  7 lamps, 20 customers on 2 hosts: 7 sold
balance
  20 requests for 30 of 100 cents: 3 were paid out, 10 cents are left
payment
  20 clicks on the same order: 20 receipts, 1 charge
nested
  handler, service and repository lock order 42, 3 deep: of 20 requests at once 1 shipped it, the others got 409
nightly
  2 hosts started the job of a night twice each: it ran 1 time
fencing
  the first host stood still for longer than its lease, and then wrote: refused, the record is "by the second host"
`, "\n"), out.String())

		out.Reset()
		require.NoError(t, show(t.Context(), out, connect, []string{"nightly"}))
		require.Equal(t, 2, strings.Count(out.String(), "\n"))
		require.EqualError(t, show(t.Context(), out, connect, []string{"nightlies"}),
			`there is no example "nightlies": choose from flashsale, balance, payment, nested, nightly, fencing`)
	})
}
