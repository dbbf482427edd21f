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
	"unicode"

	"github.com/stretchr/testify/require"
)

var (
	fence    = regexp.MustCompile("(?ms)^```.*?^```$")
	codeSpan = regexp.MustCompile("`[^`\n]*`")
	link     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	testName = regexp.MustCompile("`(Test[A-Z]\\w*)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz[A-Z]\w*)\(`)
	// fuzzTarget is a package and its fuzz test, as the Makefile has them.
	fuzzTarget = regexp.MustCompile(`\./[\w/]+:Fuzz\w+`)
	target     = regexp.MustCompile(`\]\([^()]*\)`)
	// alertRow is an alert in the table of docs/monitoring.md: what it means, and what to do.
	alertRow = regexp.MustCompile("(?m)^\\| `(Rlock\\w+)` \\| (.*) \\| (.*) \\|$")

	optionFunc  = regexp.MustCompile(`(?m)^func (With\w+)\(.*\) (?:Lock|Guard)Option$`)
	optionField = regexp.MustCompile(`(?m)^type Options, field (\w+) `)
)

func TestRepository(t *testing.T) {
	root := os.DirFS("../..")
	require.Contains(t, files(t, root, ".md"), "README.md")
	require.Empty(t, problems(t, root))
}

// make fuzz, which the weekly workflow runs, knows every fuzz test.
func TestFuzzTargets(t *testing.T) {
	root := os.DirFS("../..")
	var want []string
	for _, name := range files(t, root, "_test.go") {
		for _, found := range fuzzFunc.FindAllStringSubmatch(read(t, root, name), -1) {
			want = append(want, "./"+path.Dir(name)+":"+found[1])
		}
	}
	require.NotEmpty(t, want)
	require.ElementsMatch(t, want, fuzzTarget.FindAllString(read(t, root, "Makefile"), -1))
}

// make help knows every target but those that others need.
func TestMakeHelp(t *testing.T) {
	makefile := read(t, os.DirFS("../.."), "Makefile")
	head, _, _ := strings.Cut(makefile, "\n\n")
	_, phony, _ := strings.Cut(makefile, "\n.PHONY: ")
	phony, _, _ = strings.Cut(phony, "\n")
	parts := []string{"vulnerable", "vet", "portable", "tidy", "redis", "spin", "prometheus"}
	for name := range strings.FieldsSeq(phony) {
		require.Equal(t, !slices.Contains(parts, name), strings.Contains(head, "\n# make "+name+" ") || strings.HasPrefix(head, "# make "+name+" "), name)
	}
}

// Whoever looks for a setting finds each of them on one page.
func TestOptions(t *testing.T) {
	root := os.DirFS("../..")
	api, page := read(t, root, "api/rlock.txt"), read(t, root, "docs/choose.md")
	options := optionFunc.FindAllStringSubmatch(api, -1)
	require.Greater(t, len(options), 10)
	for _, option := range options {
		require.True(t, strings.Contains(page, "`"+option[1]+"("), option[1])
	}
	fields := optionField.FindAllStringSubmatch(api, -1)
	require.Greater(t, len(fields), 5)
	for _, field := range fields {
		require.True(t, strings.Contains(page, "`Options."+field[1]+"`"), field[1])
	}
}

// Who is woken by an alert reads the same words on the page and in the file of rules.
func TestAlerts(t *testing.T) {
	root := os.DirFS("../..")
	rules := read(t, root, "integrations/prometheus/alerts.yml")
	words := func(text string) string {
		return strings.Join(strings.Fields(strings.NewReplacer("`", "", "*", "", "#", "").Replace(text)), " ")
	}
	rows := alertRow.FindAllStringSubmatch(read(t, root, "docs/monitoring.md"), -1)
	require.Len(t, rows, strings.Count(rules, "- alert: "))
	for _, row := range rows {
		before, _, found := strings.Cut(rules, "- alert: "+row[1]+"\n")
		require.True(t, found, row[1])
		comment := before[strings.LastIndex(before, "\n\n")+1:] // all since the rule before
		require.Contains(t, words(comment), words(row[2]+" "+row[3]), row[1])
	}
}

// The README is read to its end only if it is short. Its words are counted as by wc -w: a limit of lines made them long.
func TestReadmeIsShort(t *testing.T) {
	require.LessOrEqual(t, len(strings.Fields(read(t, os.DirFS("../.."), "README.md"))), 1900)
}

// What is wrong is found, and nothing else.
func TestProblems(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	root := fstest.MapFS{
		"docs/b.md": file("# Two words\n\n## What it's: `code`_x – *and* more\n\n## Two words\n"),
		"x_test.go": file("func TestThere(t *testing.T) {}\n"),
		"a.md": file(strings.Join([]string{
			"# A [link](docs/b.md#two-words) in a heading",
			"[second](docs/b.md#two-words-1), [](docs), [](#a-link-in-a-heading)",
			"[](docs/b.md#what-its-code_x--and-more)",
			"[](https://example.org/missing.md) `[](missing.md)` `TestThere`, [`code`](docs/b.md)",
			"```go\n[](missing.md)\n# no heading\n```",
			"[](gone.md) [](docs/b.md#gone) [](#no-heading) [](x_test.go#L1) `TestGone`",
		}, "\n")),
	}
	require.Equal(t, []string{
		"a.md: no file gone.md",
		"a.md: no heading docs/b.md#gone",
		"a.md: no heading a.md#no-heading",
		"a.md: no test TestGone",
	}, problems(t, root))
}

// problems returns what the Markdown files name in vain.
func problems(t *testing.T, root fs.FS) (found []string) {
	t.Helper()
	tests := make(map[string]bool)
	for _, name := range files(t, root, "_test.go") {
		for _, match := range testFunc.FindAllStringSubmatch(read(t, root, name), -1) {
			tests[match[1]] = true
		}
	}
	for _, name := range files(t, root, ".md") {
		text := fence.ReplaceAllString(read(t, root, name), "")
		for _, match := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(text, ""), -1) {
			if problem := follow(t, root, name, match[1]); problem != "" {
				found = append(found, name+": "+problem)
			}
		}
		for _, match := range testName.FindAllStringSubmatch(text, -1) {
			if !tests[match[1]] {
				found = append(found, name+": no test "+match[1])
			}
		}
	}
	return found
}

// follow returns why a link in a file leads nowhere.
func follow(t *testing.T, root fs.FS, from, to string) string {
	t.Helper()
	if strings.Contains(to, "://") {
		return ""
	}
	name, anchor, anchored := strings.Cut(to, "#")
	if name == "" {
		name = from
	} else {
		name = path.Join(path.Dir(from), name)
	}
	if _, err := fs.Stat(root, name); err != nil {
		return "no file " + name
	}
	if anchored && path.Ext(name) == ".md" && !slices.Contains(anchors(read(t, root, name)), anchor) {
		return "no heading " + name + "#" + anchor
	}
	return ""
}

// anchors returns the names that GitHub gives to the headings of a text.
func anchors(text string) (names []string) {
	seen := make(map[string]int)
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		title := target.ReplaceAllString(match[1], "") // of a link, its text counts
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, title)
		seen[name]++
		if n := seen[name]; n > 1 {
			name = fmt.Sprintf("%s-%d", name, n-1)
		}
		names = append(names, name)
	}
	return names
}

// files returns the files whose names end so, but those that are not the project's own.
func files(t *testing.T, root fs.FS, end string) (names []string) {
	t.Helper()
	require.NoError(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "target" || d.Name() == "testdata"):
			return fs.SkipDir
		case strings.HasSuffix(name, end) && !d.IsDir():
			names = append(names, name)
		}
		return nil
	}))
	return names
}

func read(t *testing.T, root fs.FS, name string) string {
	t.Helper()
	text, err := fs.ReadFile(root, name)
	require.NoError(t, err)
	return string(text)
}
