package verify

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What counts is who has the lock, not whether its key is there.
func TestIdle(t *testing.T) {
	second := int64(time.Second)
	of := func(lock string, turns ...span) *history {
		h := &history{lock: lock}
		for _, s := range turns {
			h.turns = append(h.turns, turn{span: span{s.call - second, s.call}, left: s.ret})
		}
		return h
	}
	all := []*history{of("row/0/3/a", span{10 * second, 12 * second}, span{2 * second, 4 * second}), of("row/0/3/b", span{6 * second, 7 * second})}
	from := func(call, ret int64) wait {
		return wait{span: span{call * second, ret * second}, locks: []string{"row/0/3/a"}}
	}
	for _, test := range []struct {
		what   string
		w      wait
		v      variety
		struck span
		stalls []span
		want   time.Duration
	}{
		{"between two grants", from(3, 11), plain, span{}, nil, 6 * time.Second},
		{"before its own", from(5, 10), plain, span{}, nil, 5 * time.Second},
		{"after the last, and in vain", from(11, 20), plain, span{}, nil, 8 * time.Second},
		{"before any", from(0, 2), plain, span{}, nil, 2 * time.Second},
		{"while somebody has it", from(3, 4), plain, span{}, nil, 0},
		{"from the end of the fault", from(3, 11), plain, span{3 * second, 7 * second}, nil, 3 * time.Second},
		{"less the time in which processes stand still", from(3, 11), plain, span{}, []span{{second, 5 * second}, {6 * second, 8 * second}, {7 * second, 9 * second}}, 2 * time.Second},
		{"with another member of a multi lock", from(3, 11), multi, span{}, nil, 3 * time.Second},
	} {
		require.Equal(t, test.want, coursesOf(all, test.v).idle(test.w, test.v, test.struck, test.stalls), test.what)
	}
}

// Each row of aloneFaults may cost a waiter less than the leases that would end its sleep.
func TestLimitsAreShorterThanLeases(t *testing.T) {
	for _, f := range aloneFaults {
		require.NotEmpty(t, f.cost().why)
		for _, lease := range f.leases {
			d, err := time.ParseDuration(lease)
			require.NoError(t, err)
			require.Less(t, f.patience(), d*2/3, f.name) // a lease is renewed when a third of it is over
			require.Less(t, f.patience(), served, f.name)
		}
	}
}
