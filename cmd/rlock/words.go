package main

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v3"
)

// unbundled returns the command line with the short options of `rlock run` apart, as in -qn and
// -w5: urfave/cli takes each for the name of one option. All else stays as it is, and so does
// what is behind "--".
func unbundled(app *cli.Command, args []string) []string {
	at := commandAt(app, args)
	if at == len(args) || args[at] != "run" {
		return args
	}
	flags := slices.Concat(app.Command("run").Flags, app.Flags)
	words := slices.Clone(args[:at+1])
	for i := at + 1; i < len(args); i++ {
		word := args[i]
		if word == "--" || isArgument(word) && strings.HasPrefix(word, "-") && word != "-" { // nothing is an option from here on
			return append(words, args[i:]...)
		}
		apart, needs := split(flags, word)
		words = append(words, apart...)
		if needs && i+1 < len(args) {
			i++
			words = append(words, args[i])
		}
	}
	return words
}

// commandAt returns where the name of the command is, len(args) if there is none.
func commandAt(app *cli.Command, args []string) int {
	for i := 1; i < len(args); i++ {
		if isArgument(args[i]) {
			return i
		}
		if _, needs := split(app.Flags, args[i]); needs {
			i++
		}
	}
	return len(args)
}

// isArgument reports whether a word is no option.
func isArgument(word string) bool {
	option, ok := strings.CutPrefix(word, "-")
	first, _ := utf8.DecodeRuneInString(option)
	return !ok || first != '-' && !unicode.IsLetter(first)
}

// split returns the options that a word is, and whether the last of them needs the next word as
// its value.
func split(flags []cli.Flag, word string) (apart []string, needs bool) {
	if isArgument(word) {
		return []string{word}, false
	}
	name, _, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
	if f := flagOf(flags, name); f != nil || strings.HasPrefix(word, "--") {
		return []string{word}, f != nil && !isBool(f) && !hasValue
	}
	letters := word[1:]
	for i, letter := range letters {
		f := flagOf(flags, string(letter))
		switch {
		case f == nil: // it is no bundle
			return []string{word}, false
		case isBool(f):
			apart = append(apart, "-"+string(letter))
			continue
		}
		apart = append(apart, "-"+string(letter))
		if value := letters[i+1:]; value != "" {
			return append(apart, strings.TrimPrefix(value, "=")), false
		}
		return apart, true
	}
	return apart, false
}

func flagOf(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func isBool(f cli.Flag) bool {
	_, ok := f.(*cli.BoolFlag)
	return ok
}

// meant asks for the word that a wrong one may be a slip of; "" if there is none. urfave/cli
// knows the nearest, however far it is.
func meant(wrong, nearest string) string {
	a, b := []rune(wrong), []rune(strings.TrimLeft(nearest, "-"))
	shorter := min(len(a), len(b))
	if shorter < 2 || slips(a, b) > 1+shorter/5 {
		return ""
	}
	return ", did you mean " + nearest + "?"
}

// slips is how many letters were left out, added, replaced or exchanged with the next one.
func slips(a, b []rune) int {
	n := make([][]int, len(a)+1)
	for i := range n {
		n[i] = make([]int, len(b)+1)
		n[i][0] = i
		for j := range n[i] {
			if i == 0 {
				n[i][j] = j
			}
			if i == 0 || j == 0 {
				continue
			}
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			n[i][j] = min(n[i-1][j]+1, n[i][j-1]+1, n[i-1][j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				n[i][j] = min(n[i][j], n[i-2][j-2]+1)
			}
		}
	}
	return n[len(a)][len(b)]
}
