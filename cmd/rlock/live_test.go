package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// xterm is what such a terminal shows. Behind a full row its cursor stays in the last column,
// until the next character begins another row.
type xterm struct {
	rows       [][]rune
	columns    int
	x, y       int
	full, hard bool // the row of the cursor; rows are cut off
}

func newXterm(columns, rows int) *xterm {
	return &xterm{rows: make([][]rune, rows), columns: columns}
}

var sequence = regexp.MustCompile(`^\x1b\[[?0-9;]*[a-zA-Z]`)

func (x *xterm) write(text string) {
	for text != "" {
		if s := sequence.FindString(text); s != "" {
			x.obey(s)
			text = text[len(s):]
			continue
		}
		r := []rune(text)[0]
		x.show(r)
		text = text[len(string(r)):]
	}
}

func (x *xterm) obey(sequence string) {
	switch sequence {
	case "\x1b[H":
		x.x, x.y, x.full = 0, 0, false
	case "\x1b[K":
		x.rows[x.y] = x.rows[x.y][:min(x.x, len(x.rows[x.y]))]
		x.full = false
	case "\x1b[?7l", "\x1b[?7h":
		x.hard = sequence == "\x1b[?7l"
	}
}

func (x *xterm) show(r rune) {
	switch {
	case r == '\r':
		x.x, x.full = 0, false
		return
	case r == '\n':
		x.down()
		return
	case x.full && !x.hard:
		x.x, x.full = 0, false
		x.down()
	}
	row := x.rows[x.y]
	for len(row) <= x.x {
		row = append(row, ' ')
	}
	row[x.x] = r
	x.rows[x.y] = row
	if x.x+1 < x.columns {
		x.x++
	} else {
		x.full = true
	}
}

func (x *xterm) down() {
	if x.y+1 < len(x.rows) {
		x.y++
		return
	}
	x.rows = append(x.rows[1:], nil) // all move up
}

func (x *xterm) text() (lines []string) {
	for _, row := range x.rows {
		lines = append(lines, strings.TrimRight(string(row), " "))
	}
	return lines
}

// drawn is what top writes for a terminal of 80 columns and 24 rows, twice.
func drawn(t *testing.T) (text string, lines []string) {
	t.Helper()
	v := sample()
	v.Locks[3].Name = "stock:eu" // each character takes one column
	read, write, err := os.Pipe()
	require.NoError(t, err)
	l := live{top: &top{server: &server{name: "s"}, order: "wait", by: byLock}, out: write, view: v, colours: newColours(true)}
	require.NoError(t, l.draw())
	require.NoError(t, l.draw())
	require.NoError(t, write.Close())
	all, err := io.ReadAll(read)
	require.NoError(t, err)
	require.NoError(t, read.Close())
	l.colours = colours{}
	for _, line := range l.lines(80, 24) {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return string(all), lines
}

// A terminal shows all of a picture, also what is in its last column, and keeps the rows in
// their places if it has become narrower by then.
func TestPictureOnATerminal(t *testing.T) {
	text, lines := drawn(t)
	as := newXterm(80, 24)
	as.write(beginPicture + text)
	require.Equal(t, lines, as.text())

	narrow := newXterm(60, 24)
	narrow.write(beginPicture + text)
	for i, line := range narrow.text() {
		require.Equal(t, string([]rune(lines[i] + strings.Repeat(" ", 60))[:59]), string([]rune(line + strings.Repeat(" ", 60))[:59]))
	}
}

// scrolled is top with so many locks, on a terminal of 10 rows.
func scrolled(locks int) *live {
	l := &live{top: &top{order: "lock", by: byLock, server: &server{name: "s"}}, view: &topView{}}
	for i := range locks {
		l.view.Locks = append(l.view.Locks, &topLock{Name: fmt.Sprintf("l%02d", i)})
	}
	l.lines(80, 10)
	return l
}

// Keys that were typed faster than they were read are all obeyed.
func TestKeysTypedAhead(t *testing.T) {
	l := scrolled(12)
	l.press("\x1b[B\x1b[Bj\x1b[A\x1bOP\x1b[3~")
	require.Equal(t, controls{skip: 2, page: 7}, l.controls)
	l.press("/s\x1b[Aéx\x7f\r")
	require.Equal(t, controls{page: 7, filter: "sé"}, l.controls)
	l.press("\x1b")
	l.press("j\x1b[Bq")
	require.Equal(t, controls{skip: 2, page: 7, quit: true}, l.controls)
	l.press("/s\r\x1b[")
	l.press("\x1b")
	require.Empty(t, l.filter)
}

// Pages are as long as the picture; the last one ends with the last lock, also of a filter.
func TestPages(t *testing.T) {
	l := scrolled(65)
	for _, step := range []struct {
		keys  string
		skip  int
		shown string
	}{
		{"", 0, "1-7 of 65  sorted by lock"},
		{"\x1b[6~ ", 14, "15-21 of 65"},
		{"b", 7, "8-14 of 65"},
		{"\x1b[5~k", 0, "1-7 of 65"},
		{"G", 58, "59-65 of 65"},
		{"j\x1b[6~", 58, "59-65 of 65"},
		{"\x1b[H", 0, "1-7 of 65"},
		{"\x1bOF", 58, "59-65 of 65"},
		{"/l0\r", 0, "1-7 of 10"},
		{"\x1b[4~", 3, "4-10 of 10"},
		{"/l01\r", 0, "sorted by lock  only l01 (esc)"},
	} {
		l.press(step.keys)
		lines := l.lines(80, 10)
		require.Equal(t, step.skip, l.skip, "%q", step.keys)
		require.Contains(t, "  "+lines[9], "  "+step.shown, "%q", step.keys)
		if len(l.shown().Locks) > 1 {
			require.Contains(t, lines[2], fmt.Sprintf("l%02d ", l.skip))
		}
	}
	l.press("h")
	require.Contains(t, strings.Join(l.lines(80, 10), "\n"), "scroll by a page")
	l.press("j")
	require.NotContains(t, strings.Join(l.lines(80, 10), "\n"), "scroll by a page")
	l.press("?q")
	require.True(t, l.quit)
}
