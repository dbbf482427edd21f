package rlock

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The numbers are for counters, the names for whoever reads them: dashboards know them.
func TestEachNumberHasItsName(t *testing.T) {
	names := map[kindNumber]Kind{
		plainKind: "plain", fairKind: "fair", readKind: "read", writeKind: "write", quorumKind: "quorum", multiKind: "multi",
	}
	require.Len(t, names, int(kinds))
	for n, name := range names {
		require.Equal(t, name, n.name())
	}
	calls := map[outcomeNumber]Outcome{
		acquiredOutcome: "acquired", nestedOutcome: "nested", handedOffOutcome: "handed_off", busyOutcome: "busy",
		canceledOutcome: "canceled", unavailableOutcome: "unavailable", errorOutcome: "error",
	}
	require.Len(t, calls, int(outcomes))
	for n, name := range calls {
		require.Equal(t, name, n.name())
	}
	losses := map[lossNumber]LossCause{gone: "gone", lapsed: "lapsed", fixedOver: "fixed", closedUnder: "closed"}
	require.Len(t, losses, int(lossCauses))
	for n, name := range losses {
		require.Equal(t, name, n.name())
	}
}
