package mutation

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// source is what the files of a package declare, without its tests. A method is "type.method".
type source map[string][]place

// place is a part of a file.
type place struct {
	path  string
	file  []byte
	words []word
}

// word is a token. Spaces, ends of lines, comments and semicolons are none, and neither is the comma behind the
// last of several lines: however a statement is wrapped, its words are the same.
type word struct {
	text       string
	start, end int // in the file
}

// sources are those of the packages with mutations in Go, by directory.
var sources = sync.OnceValues(func() (map[string]source, error) {
	all := make(map[string]source)
	for _, m := range mutations {
		if m.inScript() || all[m.dir] != nil {
			continue
		}
		var err error
		if all[m.dir], err = read(filepath.Join(root, m.dir)); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// read returns what the files in dir declare.
func read(dir string) (source, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	s := make(source)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := s.add(path, text); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add takes in what a file declares.
func (s source) add(path string, text []byte) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	put := func(name string, n ast.Node) {
		start, end := fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset
		s[name] = append(s[name], place{path, text, words(text[start:end], start)})
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			put(receiver(d)+d.Name.Name, d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					put(spec.Name.Name, spec)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						put(name.Name, spec)
					}
				}
			}
		}
	}
	return nil
}

// receiver is "type." for a method, be it of a pointer or of a generic type.
func receiver(d *ast.FuncDecl) (name string) {
	if d.Recv != nil {
		ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && name == "" {
				name = id.Name + "."
			}
			return name == ""
		})
	}
	return name
}

// words splits a text that begins at this offset of its file.
func words(text []byte, offset int) (all []word) {
	file := token.NewFileSet().AddFile("", 1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for {
		pos, tok, literal := s.Scan()
		switch tok {
		case token.EOF:
			return all
		case token.SEMICOLON:
			continue
		case token.RPAREN, token.RBRACK, token.RBRACE:
			if n := len(all) - 1; n >= 0 && all[n].text == "," {
				all = all[:n]
			}
		}
		if literal == "" {
			literal = tok.String()
		}
		start := offset + file.Offset(pos)
		all = append(all, word{literal, start, start + len(literal)})
	}
}

// find returns where the words stand in a declaration, and where most of them do.
func (s source) find(name string, quoted []word) (found []place, nearest place) {
	most := 0
	for _, p := range s[name] {
		for i := range p.words {
			part := place{p.path, p.file, p.words[i:min(i+len(quoted), len(p.words))]}
			n := 0
			for j, w := range part.words {
				if w.text == quoted[j].text {
					n++
				}
			}
			if n == len(quoted) {
				found = append(found, part)
			}
			if n > most {
				most, nearest = n, part
			}
		}
	}
	return found, nearest
}

// edit puts another text in place of the one in a declaration. What follows keeps its line and column.
func (s source) edit(name, from, to string) (path string, text []byte, err error) {
	quoted := words([]byte(from), 0)
	found, nearest := s.find(name, quoted)
	if len(found) != 1 {
		return "", nil, fmt.Errorf("%s has %q %d times. %s", name, from, len(found), s.advice(name, quoted, found, nearest))
	}
	p := found[0]
	start, end := p.words[0].start, p.words[len(p.words)-1].end
	line, column := position(p.file, end)
	return p.path, slices.Concat(p.file[:start], fmt.Appendf(nil, "%s/*line :%d:%d*/", to, line, column), p.file[end:]), nil
}

// advice says how a mutation finds its text again.
func (s source) advice(name string, quoted []word, found []place, nearest place) string {
	if len(found) > 1 {
		return "Quote more of it, so that it is there once"
	}
	var others []string
	for _, other := range slices.Sorted(maps.Keys(s)) {
		if found, _ := s.find(other, quoted); len(found) > 0 {
			others = append(others, other)
		}
	}
	switch {
	case len(others) > 0:
		return "Name where it is: " + strings.Join(others, ", ")
	case len(s[name]) == 0:
		return "There is no such declaration: name the one that does the same now"
	case nearest.words == nil:
		return "Quote what does the same now"
	}
	return "Quote what is there now, perhaps " + nearest.String()
}

// String is the text on one line, behind the file and line.
func (p place) String() string {
	start, end := p.words[0].start, p.words[len(p.words)-1].end
	line, _ := position(p.file, start)
	return fmt.Sprintf("%s:%d: %s", p.path, line, bytes.Join(bytes.Fields(p.file[start:end]), []byte(" ")))
}

// position is an offset as line and column.
func position(text []byte, offset int) (line, column int) {
	before := text[:offset]
	return 1 + bytes.Count(before, []byte("\n")), offset - bytes.LastIndexByte(before, '\n')
}
