package servers

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table in docs/servers.md, what the doctor calls tested, and what make servers runs
// are the same.
func TestList(t *testing.T) {
	text, err := os.ReadFile("../../docs/servers.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (\w+ [\d.]+) \| passes`).FindAllStringSubmatch(string(text), -1)
	var documented, listed []string
	for _, row := range rows {
		documented = append(documented, row[1])
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
