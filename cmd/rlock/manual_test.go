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
{{end}}{{end}}{{with after}}.SH NOTES
.nf
{{roff .}}
.fi
{{end}}`

// TestManual compares docs/rlock.1 with the help: make man writes it.
func TestManual(t *testing.T) {
	app := newApp(nil)
	_, notes, _ := strings.Cut(rootHelp, "Exit status:")
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
		"after": func() string { return "Exit status:" + strings.TrimSuffix(notes, "\n") },
	}).Parse(manual)
	require.NoError(t, err)
	var page bytes.Buffer
	require.NoError(t, tmpl.Execute(&page, app))
	const file = "../../docs/rlock.1"
	if *update {
		require.NoError(t, os.WriteFile(file, page.Bytes(), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), page.String(), "make man writes it anew")
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
