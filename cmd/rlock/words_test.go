package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Short options in one word are those one by one; no other word is touched.
func TestShortOptionsInOneWord(t *testing.T) {
	for line, want := range map[string]string{
		"rlock run -qn a -- sh -qn":               "rlock run -q -n a -- sh -qn",
		"rlock run -nq a -- x":                    "rlock run -n -q a -- x",
		"rlock run -w5 a -- x":                    "rlock run -w 5 a -- x",
		"rlock run a -xqE3 -k=1s -- x":            "rlock run a -x -q -E 3 -k=1s -- x",
		"rlock run -qE=3 a -- x":                  "rlock run -q -E 3 a -- x",
		"rlock run -qw -nq a -- x":                "rlock run -q -w -nq a -- x", // it is a value
		"rlock run --purpose -qn a -- x":          "",
		"rlock run --purpose=x -qn a -- x":        "rlock run --purpose=x -q -n a -- x",
		"rlock run --prefix -qn a -- x":           "",
		"rlock --prefix run ls -qn":               "",
		"rlock --prefix=p --cluster run -qn a --": "rlock --prefix=p --cluster run -q -n a --",
		"rlock run -wait 5 -shared -quiet a -- x": "",
		"rlock run -wait=5 -qz -5 -qn -- x":       "",
		"rlock run -- -qn -- x":                   "",
		"rlock inspect -qn a":                     "",
		"rlock run":                               "",
		"rlock":                                   "",
		"rlock --prefix":                          "",
	} {
		args := strings.Fields(line)
		if want == "" {
			want = line
		}
		require.Equal(t, want, strings.Join(unbundled(newApp(args), args), " "))
	}
}

func TestSlips(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"run", "rnu", 1}, {"wait", "wiat", 1}, {"inspect", "inspekt", 1}, {"watch", "wach", 1}, {"ls", "top", 3}, {"unlock", "nulokk", 2}} {
		require.Equal(t, tc.want, slips([]rune(tc.a), []rune(tc.b)), tc.a)
		require.Equal(t, tc.want, slips([]rune(tc.b), []rune(tc.a)), tc.b)
	}
}

func TestRunWithShortOptionsInOneWord(t *testing.T) {
	f := newFixture(t)
	f.hold("a")
	require.Equal(t, result{code: 3}, outcome(t, f.URL(), "run", "-qnE3", "a", "--", "true"))
	require.Equal(t, result{stdout: "-qn\n"}, outcome(t, f.URL(), "run", "-qn", "b", "--", "echo", "-qn"))
}
