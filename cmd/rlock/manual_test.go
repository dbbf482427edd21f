package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/rlock.1, docs/*.svg")

// TestManual compares docs/rlock.1 with what rlock man prints: make man writes it.
func TestManual(t *testing.T) {
	result := inProcess("man")
	require.Equal(t, 0, result.code, result.stderr)
	golden(t, "rlock.1", result.stdout, "make man")
}

// golden compares a file in docs with what it should be, which a command writes.
func golden(t *testing.T, file, text, command string) {
	t.Helper()
	path := "../../docs/" + file
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	was, err := os.ReadFile(path)
	require.NoError(t, err)
	if diff := changed(string(was), text); diff != "" {
		t.Fatalf("%s writes docs/%s anew:\n%s", command, file, diff)
	}
}

// changed returns the lines from the first that differs to the last, as they were and as they
// are; "" if none differs.
func changed(was, is string) string {
	before, after := strings.Split(was, "\n"), strings.Split(is, "\n")
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	var b strings.Builder
	for _, line := range before {
		b.WriteString("- " + line + "\n")
	}
	for _, line := range after {
		b.WriteString("+ " + line + "\n")
	}
	return b.String()
}

func TestChanged(t *testing.T) {
	require.Equal(t, "- b\n+ x\n+ y\n", changed("a\nb\nc\n", "a\nx\ny\nc\n"))
	require.Equal(t, "- a\n", changed("a\na\n", "a\n"))
	require.Empty(t, changed("a\n", "a\n"))
}
