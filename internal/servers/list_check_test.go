package servers

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table in docs/compatibility.md, what the doctor calls tested, and what make servers runs
// are the same.
func TestList(t *testing.T) {
	text, err := os.ReadFile("../../docs/compatibility.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (\w+) \| (\d[\d., ]+) \|$`).FindAllStringSubmatch(string(text), -1)
	var documented, listed []string
	for _, row := range rows {
		for version := range strings.SplitSeq(row[2], ", ") {
			documented = append(documented, row[1]+" "+version)
		}
	}
	tested := make(map[string][]string)
	for _, s := range list {
		listed = append(listed, s.name+" "+s.version)
		name := strings.TrimPrefix(strings.ToLower(s.name), "redis")
		tested[name] = append(tested[name], strings.Join(strings.Split(s.version, ".")[:2], "."))
	}
	require.Equal(t, listed, documented)
	for name, series := range Tested {
		require.ElementsMatch(t, slices.Compact(tested[name]), series, name)
	}
	require.Len(t, tested, len(Tested))
}
