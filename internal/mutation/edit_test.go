package mutation

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const sample = `package sample

const (
	short = 5 // not 6
	five  = 5
)

var late, early = 1, 2

type pair[A, B any] struct {
	first  A
	second B
}

func (p *pair[A, B]) set(a A, b B) { p.first, p.second = a, b }

func (p pair[A, B]) get() (A, B) { return p.first, p.second }

// set calls something.
func set(n int) int {
	n++
	if n > 5 && // many
		early(
			n,
			late,
		) {
		n++
	}
	return n
}
`

// lineComment says where in the file the text behind an edit is.
var lineComment = regexp.MustCompile(`/\*line :\d+:\d+\*/`)

// sampleSource is the sample as a package.
func sampleSource(t *testing.T) source {
	s := make(source)
	require.NoError(t, s.add("sample.go", []byte(sample)))
	return s
}

func TestEdit(t *testing.T) {
	for _, c := range []struct {
		what, name, from, to string
		old, new             string // of the file, and what stands in its place
	}{
		{"a constant among others", "short", "5", "6", "short = 5", "short = 6"},
		{"a variable beside another", "early", "2", "3", "= 1, 2", "= 1, 3"},
		{"a type", "pair", "second B", "second A", "second B", "second A"},
		{"a method of a pointer", "pair.set", "= a, b", "= a, p.second", "= a, b }", "= a, p.second }"},
		{"a method of a value", "pair.get", "return", "panic(0); return", "return p.first", "panic(0); return p.first"},
		{"a function that is named like a method", "set", "int) int", "int) (n int)", "(n int) int", "(n int) (n int)"},
		{
			"on one line what stands on several", "set", "n > 5 && early(n, late)", "true",
			"n > 5 && // many\n\t\tearly(\n\t\t\tn,\n\t\t\tlate,\n\t\t)", "true",
		},
		{"semicolons for ends of lines", "set", "n++; if n > 5", "if n > 6", "n++\n\tif n > 5", "if n > 6"},
		{"on several lines what stands on one", "pair.set", "p.first,\n\tp.second", "p.second, p.first", "p.first, p.second =", "p.second, p.first ="},
		{"a whole word", "set", "late", "early", "\tlate,", "\tearly,"},
	} {
		t.Run(c.what, func(t *testing.T) {
			path, text, err := sampleSource(t).edit(c.name, c.from, c.to)
			require.NoError(t, err)
			require.Equal(t, "sample.go", path)
			require.Equal(t, strings.Replace(sample, c.old, c.new, 1), lineComment.ReplaceAllString(string(text), ""))
		})
	}
}

// What follows an edit is reported where it is in the file.
func TestEditKeepsPositions(t *testing.T) {
	_, text, err := sampleSource(t).edit("set", "n > 5 && early(n, late)", "true")
	require.NoError(t, err)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "sample.go", text, 0)
	require.NoError(t, err)
	body := file.Decls[len(file.Decls)-1].(*ast.FuncDecl).Body
	require.Equal(t, "sample.go:26:5", fset.Position(body.List[1].(*ast.IfStmt).Body.Pos()).String())
	require.Equal(t, "sample.go:30:2", fset.Position(body.End()).String())
}

func TestEditRefuses(t *testing.T) {
	for _, c := range []struct{ what, name, from, want string }{
		{"what is there twice", "set", "n++", `set has "n++" 2 times. Quote more of it, so that it is there once`},
		{"nothing", "set", " ", `set has " " 28 times. Quote more of it, so that it is there once`},
		{"a part of a word", "set", "lat", `set has "lat" 0 times. Quote what does the same now`},
		{"what a comment says", "short", "not 6", `short has "not 6" 0 times. Quote what does the same now`},
		{
			"what has changed", "set", "if n > 6 && early(n)",
			`set has "if n > 6 && early(n)" 0 times. Quote what is there now, perhaps sample.go:22: if n > 5 && // many early( n,`,
		},
		{"what has moved", "set", "return p.first", `set has "return p.first" 0 times. Name where it is: pair.get`},
		{"a function under another name", "pair.put", "a, b", `pair.put has "a, b" 0 times. Name where it is: pair.set`},
		{"a function that is gone", "pair.put", "a, c", `pair.put has "a, c" 0 times. There is no such declaration: name the one that does the same now`},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, _, err := sampleSource(t).edit(c.name, c.from, "")
			require.EqualError(t, err, c.want)
		})
	}
}

// A declaration is found in any file of its package, and never in a test.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.go": "package a", "b.go": "package a\n\nfunc f() { g() }", "b_test.go": "package a\n\nfunc f() { g() }"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s, err := read(dir)
	require.NoError(t, err)
	path, _, err := s.edit("f", "g()", "")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "b.go"), path)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "c.go"), []byte("func"), 0o600))
	_, err = read(dir)
	require.ErrorContains(t, err, "c.go:1:1")
}
