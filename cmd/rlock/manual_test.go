package main

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v3"
)

var update = flag.Bool("update", false, "write docs/rlock.1, docs/*.svg")

// manual is a man page of what the help has.
const manual = `.TH RLOCK 1
.SH NAME
rlock \- {{roff .Usage}}
.SH SYNOPSIS
{{roff .UsageText}}
.SH OPTIONS
{{range .VisibleFlags}}.TP
{{option .}}
{{end}}{{range .VisibleCommands}}.SH rlock {{roff .Name}}
{{roff .Usage}}
{{with .UsageText}}.PP
{{roff .}}
{{end}}{{with .Description}}.PP
{{roff .}}
{{end}}{{range .VisibleFlags}}.TP
{{option .}}
{{end}}{{with own .}}.PP
.nf
{{roff .}}
.fi
{{end}}{{end}}{{range after}}.SH {{.Title}}
.nf
{{roff .Text}}
.fi
{{end}}`

// TestManual compares docs/rlock.1 with the help: make man writes it.
func TestManual(t *testing.T) {
	app := newApp(nil)
	completion := &cli.Command{Name: "completion"} // which urfave/cli adds
	completionCommand(completion)
	app.Commands = append(app.Commands, completion)
	tmpl, err := template.New("").Funcs(template.FuncMap{
		"roff": roff,
		"option": func(f cli.Flag) string { // and what it does, on a line of its own
			name, does, _ := strings.Cut(f.String(), "\t")
			return roff(name) + "\n" + roff(does)
		},
		"own": func(c *cli.Command) string { // what the help of one command has besides
			text, _ := strings.CutPrefix(c.CustomHelpTemplate, commandHelp)
			return strings.Trim(text, "\n")
		},
		"after": sections,
	}).Parse(manual)
	require.NoError(t, err)
	var page bytes.Buffer
	require.NoError(t, tmpl.Execute(&page, app))
	golden(t, "rlock.1", page.String(), "make man")
}

// section is a part of the help of the program that has a heading in a manual.
type section struct{ Title, Text string }

func sections() (all []section) {
	_, help, _ := strings.Cut(rootHelp, "{{end}}\n\nExit status:\n")
	for text := range strings.SplitSeq("Exit status:\n"+help, "\n\n") {
		title, text, _ := strings.Cut(text, ":\n")
		all = append(all, section{strings.ToUpper(title), strings.TrimSuffix(text, "\n")})
	}
	return all
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

// roff is a text in which nothing is a command. Between the columns of a help is a tab.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\t", "  ").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
