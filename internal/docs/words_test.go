package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// plain are the pages, and files with comments for users, whose words are checked. Add a page when it is written anew.
var plain = []string{
	"README.md",
	"docs/acl.md",
	"docs/architecture.md",
	"docs/benchmarks.md",
	"docs/choose.md",
	"docs/cli.md",
	"docs/compatibility.md",
	"docs/elections.md",
	"docs/guarantees.md",
	"docs/jobs.md",
	"docs/migration.md",
	"docs/monitoring.md",
	"docs/once.md",
	"docs/operations.md",
	"docs/protocol.md",
	"docs/recipes.md",
	"docs/redisson.md",
	"docs/testing.md",
	"integrations/otel/README.md",
	"integrations/prometheus/README.md",
	"integrations/prometheus/alerts.yml",
}

// avoided are words that readers have stumbled over, each with what to write instead.
var avoided = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)\b(told|tells?)\b`):                       "report, return, notify, export, log",
	regexp.MustCompile(`(?i)\bbeside\b`):                              "alongside, next to, together with, compared with",
	regexp.MustCompile(`(?i)[a-z] apart\b`):                           "separately, under another name; tell apart: distinguish",
	regexp.MustCompile(`(?i)\b(whom|whoever|those who|who waits?)\b`): "name the caller, the waiter, the client",
	regexp.MustCompile(`(?i)\b(some|any|no)body\b`):                   "another client, another caller, a user; no client",
	regexp.MustCompile(`(?i)\bof (its|their) own accord\b`):           "on a timer, without a message",
	regexp.MustCompile(`(?i)\bst(and|ands|ood|anding) still\b`):       "is suspended, is paused, stops responding",
	regexp.MustCompile(`(?i)\bmend(s|ed)?\b`):                         "maintain, fix",
	regexp.MustCompile(`(?i)\bdeaf\b`):                                "receives no messages",
	regexp.MustCompile(`(?i)\b(as it were|in vain)\b`):                "leave it out",
	regexp.MustCompile(`(?i)\bsome [0-9]`):                            "about",
	regexp.MustCompile(`(?i)\bis (that|those) of\b`):                  "repeat the noun",
	regexp.MustCompile(`(?i)\bmeanwhile\b`):                           "in the meantime, until then",
	regexp.MustCompile(`(?i)\bat the latest\b`):                       "within, no later than",
	regexp.MustCompile(`(?i)\bin place of\b`):                         "instead of",
	regexp.MustCompile(`(?i)\bhand-?overs?\b`):                        "hand-off",
	regexp.MustCompile(`(?i)\btime-outs?\b`):                          "timeout",
	regexp.MustCompile(`(?i)\bcancelled\b`):                           "canceled",
}

// allowed are, for each page, phrases that keep such a word.
var allowed = map[string][]string{
	"README.md":          {"who blocks whom"},
	"docs/monitoring.md": {"Who blocks whom", "who blocks whom", "who waits for it"},
	"docs/operations.md": {"who blocks whom"},
}

// The pages use the words of the field.
func TestWords(t *testing.T) {
	require.Empty(t, wording(t, os.DirFS("../.."), plain, allowed))
}

// Words to be avoided are found in prose, and nothing else is.
func TestWording(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	root := fstest.MapFS{
		"a.md":  file("Told, or\ntold. [A `deaf` link](whom.md) to [deaf ears](b.md).\n\n```go\nf() // beside\n```\n\n| Some 10 s | about 10 s |\n"),
		"b.yml": file("# It stands still.\nalert: RlockDeaf # deaf\nsummary: \"beside\"\n"),
	}
	require.Equal(t, []string{
		`a.md: "Some 1": write about`,
		`a.md: "Told": write report, return, notify, export, log`,
		`a.md: "told": write report, return, notify, export, log`,
		`b.yml: "deaf": write receives no messages`,
		`b.yml: "stands still": write is suspended, is paused, stops responding`,
		`b.yml: not there: "as it is"`,
	}, wording(t, root, []string{"a.md", "b.yml"}, map[string][]string{"a.md": {"deaf ears"}, "b.yml": {"as it is"}}))
}

// wording returns, in order, which words to be avoided are in the prose of pages, and in comments of other files.
func wording(t *testing.T, root fs.FS, pages []string, allowed map[string][]string) (found []string) {
	t.Helper()
	for _, page := range pages {
		text := prose(page, read(t, root, page))
		for _, phrase := range allowed[page] {
			if !strings.Contains(text, phrase) {
				found = append(found, fmt.Sprintf("%s: not there: %q", page, phrase))
			}
			text = strings.ReplaceAll(text, phrase, "")
		}
		for word, instead := range avoided {
			for _, hit := range word.FindAllString(text, -1) {
				found = append(found, fmt.Sprintf("%s: %q: write %s", page, hit, instead))
			}
		}
	}
	slices.Sort(found)
	return found
}

// prose returns the sentences of a page: without code, spans of code, and the targets of links. Of another file it
// returns the comments.
func prose(name, text string) string {
	if path.Ext(name) == ".md" {
		text = target.ReplaceAllString(codeSpan.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), "]")
		return strings.Join(strings.Fields(text), " ")
	}
	var comments []string
	for line := range strings.Lines(text) {
		if _, comment, ok := strings.Cut(line, "#"); ok {
			comments = append(comments, strings.Fields(comment)...)
		}
	}
	return strings.Join(comments, " ")
}
