package tinylock_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the diffs into README.md")

// block is a diff in README.md, or the whole of the first step, behind a comment that says which.
var block = regexp.MustCompile("(?s)<!-- step(\\d) -->\n```\\w+\n.*?\n```\n")

// README.md shows the steps as they are. -update writes them there.
func TestReadmeShowsTheSteps(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	n := 0
	text := block.ReplaceAllStringFunc(string(readme), func(old string) string {
		number := block.FindStringSubmatch(old)[1]
		require.Equal(t, fmt.Sprint(n), number)
		n++
		if n == 1 {
			return "<!-- step0 -->\n```go\n" + strings.Join(source(t, 0), "\n") + "\n```\n"
		}
		return fmt.Sprintf("<!-- step%s -->\n```diff\n%s\n```\n", number, strings.Join(diff(source(t, n-2), source(t, n-1)), "\n"))
	})
	require.Equal(t, len(steps)-1, n)
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(text), 0o600))
		return
	}
	require.Equal(t, text, string(readme), "go test ./examples/tinylock -update writes it")
}

// source returns the lines of a step, from its imports on.
func source(t *testing.T, n int) []string {
	text, err := os.ReadFile(fmt.Sprintf("step%d/lock.go", n))
	require.NoError(t, err)
	_, body, ok := strings.Cut(string(text), "\nimport (")
	require.True(t, ok)
	return strings.Split(strings.TrimSpace("import ("+body), "\n")
}

// diff returns what is to be taken from a and added to get b, among two lines that stay. Lines that are far from a
// change are left out.
func diff(a, b []string) (lines []string) {
	common := make([][]int, len(a)+1) // how many lines a[i:] and b[j:] can have in common
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			lines = append(lines, " "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, "-"+a[i])
			i++
		default:
			lines = append(lines, "+"+b[j])
			j++
		}
	}
	const around = 2
	near := make([]bool, len(lines))
	for n, line := range lines {
		if line[0] != ' ' {
			for m := max(0, n-around); m <= min(len(lines)-1, n+around); m++ {
				near[m] = true
			}
		}
	}
	var shown []string
	for n, line := range lines {
		if near[n] {
			shown = append(shown, strings.TrimRight(line, " "))
		} else if n == 0 || near[n-1] {
			shown = append(shown, "@@ @@")
		}
	}
	return shown
}

func TestDiff(t *testing.T) {
	a, b := strings.Split("a b c d e f g h", " "), strings.Split("a b c d x f g h y", " ")
	require.Equal(t, strings.Split("@@ @@, c, d,-e,+x, f, g, h,+y", ","), diff(a, b))
	require.Equal(t, []string{"@@ @@"}, diff(a, a))
}
