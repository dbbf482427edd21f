package main

import (
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
	l := live{top: &top{server: &server{name: "s"}, order: "wait"}, out: write, view: v, colours: newColours(true)}
	require.NoError(t, l.draw())
	require.NoError(t, l.draw())
	require.NoError(t, write.Close())
	all, err := io.ReadAll(read)
	require.NoError(t, err)
	require.NoError(t, read.Close())
	for _, line := range l.shown().frame(80, 24, 0, l.status(), colours{}) {
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

// Keys that were typed faster than they were read are all obeyed.
func TestKeysTypedAhead(t *testing.T) {
	l := live{top: &top{order: "wait"}, view: &topView{Locks: make([]*topLock, 5)}}
	l.press("\x1b[B\x1b[Bj\x1b[A\x1bOP\x1b[3~")
	require.Equal(t, controls{skip: 2}, l.controls)
	l.press("/s\x1b[Aéx\x7f\r")
	require.Equal(t, controls{filter: "sé"}, l.controls)
	l.press("j\x1b[Bq")
	require.Equal(t, controls{skip: 2, filter: "sé", quit: true}, l.controls)
	l.press("\x1b[")
	l.press("\x1b")
	require.Empty(t, l.filter)
}
