package interop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the figures with many clients are made of, which needs no JVM.
func TestWithin(t *testing.T) {
	base := time.Now()
	at := func(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }
	between := func(asked, acquired int) section { return section{asked: at(asked), acquired: at(acquired)} }
	c := within([]shift{
		{sections: []section{between(0, 5), between(6, 12), between(13, 14), between(20, 30)}},
		{sections: []section{between(8, 16), between(19, 40), between(41, 42)}},
		{},
	}, at(10), at(20))
	require.Equal(t, []int{2, 1, 0}, c.shares, "before and after is not within")
	require.Equal(t, []int{1, 1, 0}, c.turns, "twice in a row is one turn")
	require.Equal(t, 1, c.handovers)
	require.Equal(t, time.Millisecond, c.waitsOf[1][1], "the end has cut it off")
	require.Equal(t, 8*time.Millisecond, c.waits.worst())
	require.InDelta(t, 9.0/15, c.jain(), 1e-9)
	require.Zero(t, c.least())
	require.InDelta(t, 1.5, shareOfTurns(contest{turns: []int{1, 2, 3}}), 1e-9)
}

func TestParseLoad(t *testing.T) {
	require.Equal(t, map[string]float64{"scripts": 7, "messages": 3, "cpu": 1.75, "bytes": 30}, parseLoad(
		"# Stats\r\ntotal_net_input_bytes:10\r\ntotal_net_output_bytes:20\r\nused_cpu_sys:1.5\r\nused_cpu_user:0.25\r\nused_cpu_sys_children:9\r\n"+
			"cmdstat_evalsha:calls=5,usec=1\r\ncmdstat_eval:calls=2,usec=1\r\ncmdstat_publish:calls=3,usec=7\r\n"))
}
