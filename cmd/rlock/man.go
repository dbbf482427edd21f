package main

import (
	"io"
	"strings"
	"text/template"

	"github.com/urfave/cli/v3"
)

func manCommand() *cli.Command {
	return &cli.Command{
		Name:  "man",
		Usage: "print the manual page",
		Description: `Prints the manual page rlock(1), which contains the help of all commands. The deb and
rpm packages install it. To read it, run: rlock man | man -l -`,
		CustomHelpTemplate: localHelp,
		Action: noArguments(func(cmd *cli.Command) error {
			return writeManual(cmd.Root().Writer)
		}),
	}
}

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

// writeManual writes the man page of the program. It is that of a program of its own, as the
// running one has changed its commands for its arguments.
func writeManual(to io.Writer) error {
	app := newApp(nil)
	completion := &cli.Command{Name: "completion"} // which urfave/cli adds
	completionCommand(completion)
	app.Commands = append(app.Commands, completion)
	page, err := template.New("").Funcs(template.FuncMap{
		"roff": roff,
		"option": func(f cli.Flag) string { // and what it does, on a line of its own
			name, does, _ := strings.Cut(f.String(), "\t")
			return roff(name) + "\n" + roff(does)
		},
		"own": func(c *cli.Command) string { // what the help of one command has besides
			text, ok := strings.CutPrefix(c.CustomHelpTemplate, commandHelp)
			if !ok {
				return ""
			}
			return strings.Trim(text, "\n")
		},
		"after": sections,
	}).Parse(manual)
	if err != nil {
		return err
	}
	return page.Execute(to, app)
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
