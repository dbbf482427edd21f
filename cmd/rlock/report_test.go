package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReportSummary(t *testing.T) {
	for want, levels := range map[string][]level{
		"all is well":                        {fine},
		"1 warning":                          {warning},
		"2 warnings":                         {warning, fine, warning},
		"2 broken, 1 warning, 2 not checked": {broken, unchecked, warning, broken, unchecked},
	} {
		var r report
		for _, l := range levels {
			r.Findings = append(r.Findings, finding{Level: l})
		}
		require.Equal(t, want, r.summary())
	}
}
