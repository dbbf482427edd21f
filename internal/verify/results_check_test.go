package verify

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The checker refuses what must not be, and only that.
func TestCheckerOfResults(t *testing.T) {
	everything, lock := oblivion{span{15, 16}, ""}, oblivion{span{15, 16}, "x"}
	one := given{span{1, 10}, 5}
	for name, tc := range map[string]struct {
		h     resultHistory
		gone  []oblivion
		wrong int
	}{
		"one result":                                 {resultHistory{given: []given{one, {span{20, 30}, 5}}, runs: []resultRun{{span{2, 5}, 2}}}, nil, 0},
		"two results":                                {resultHistory{given: []given{one, {span{20, 30}, 25}}}, nil, 1},
		"two results, all forgotten":                 {resultHistory{given: []given{one, {span{20, 30}, 25}}}, []oblivion{everything}, 0},
		"two results, the lock was deleted":          {resultHistory{given: []given{one, {span{20, 30}, 25}}}, []oblivion{lock}, 1},
		"a run after the result":                     {resultHistory{given: []given{one}, runs: []resultRun{{span{20, 25}, 20}}}, nil, 1},
		"a run before the result":                    {resultHistory{given: []given{one}, runs: []resultRun{{span{2, 3}, 2}, {span{3, 5}, 3}}}, nil, 0},
		"two runs at a time":                         {resultHistory{runs: []resultRun{{span{2, 30}, 2}, {span{20, 40}, 20}}}, nil, 1},
		"two runs, the lock was deleted before both": {resultHistory{runs: []resultRun{{span{17, 30}, 1}, {span{18, 40}, 16}}}, []oblivion{lock}, 0},
		"two runs, the lock was deleted":             {resultHistory{runs: []resultRun{{span{2, 30}, 2}, {span{20, 40}, 20}}}, []oblivion{lock}, 0},
	} {
		require.Len(t, tc.h.check("x", tc.gone), tc.wrong, name)
	}
}
