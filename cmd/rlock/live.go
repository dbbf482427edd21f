package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// live is `rlock top` on a terminal.
type live struct {
	*top
	out     *os.File
	view    *topView
	trouble error // of the newest look
	colours
	controls
}

// controls are what the keys change.
type controls struct {
	skip   int // rows that are scrolled over
	page   int // rows that the newest picture has room for
	filter string
	typing bool // of the filter
	help   bool // is shown in place of the locks
	quit   bool
}

// A picture is drawn on another screen, without a cursor. What is too wide for it, as when
// the terminal becomes narrower while it is drawn, takes no second row.
const (
	beginPicture = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	endPicture   = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// live shows looks on a terminal, until a key or a signal ends it.
func (t *top) live(ctx context.Context, in, out *os.File, first *topView) error {
	ctx, cancel := context.WithCancel(ctx)
	l := &live{top: t, out: out, view: first, colours: newColours(os.Getenv("NO_COLOR") == "")}
	undo := l.begin(in)
	defer func() {
		cancel()
		undo()
	}()
	keys, looks := readKeys(ctx, in), t.looks(ctx)
	resized, stop := resizes()
	defer stop()
	suspended, ignore := suspensions()
	defer ignore()
	for !l.quit {
		if err := l.draw(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case key := <-keys:
			l.press(key)
		case <-resized:
		case <-suspended:
			undo()
			suspend()
			undo = l.begin(in)
		case look := <-looks:
			if l.trouble = look.err; look.err == nil {
				l.view = look.view
			}
		}
	}
	return nil
}

// begin takes the terminal, for pictures and keys. undo leaves it as it was.
func (l *live) begin(in *os.File) (undo func()) {
	keys := rawKeys(in)
	_, _ = io.WriteString(l.out, beginPicture)
	return func() {
		_, _ = io.WriteString(l.out, endPicture)
		keys()
	}
}

// looked is the outcome of a look.
type looked struct {
	view *topView
	err  error
}

// looks looks again and again. go-redis may not return at once when ctx ends, and so nobody
// waits for the goroutine.
func (t *top) looks(ctx context.Context) <-chan looked {
	looks := make(chan looked)
	go func() {
		for {
			select {
			case <-time.After(t.interval):
			case <-ctx.Done():
				return
			}
			v, err := t.server.top(ctx, t.keep)
			select {
			case looks <- looked{v, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return looks
}

// readKeys reads what is typed. The terminal lets a read return after a tenth of a second.
func readKeys(ctx context.Context, in *os.File) <-chan string {
	keys := make(chan string)
	go func() {
		for b := make([]byte, 64); ctx.Err() == nil; {
			n, err := in.Read(b)
			if err != nil && err != io.EOF {
				return
			}
			if n == 0 {
				time.Sleep(50 * time.Millisecond) // not a terminal, perhaps
				continue
			}
			select {
			case keys <- string(b[:n]):
			case <-ctx.Done():
			}
		}
	}()
	return keys
}

// press does what keys say: several, if they were typed faster than they were read.
func (l *live) press(keys string) {
	for n := 0; keys != ""; keys = keys[n:] {
		key, size := utf8.DecodeRuneInString(keys)
		switch n = keyLength(keys); {
		case n == size && l.typing:
			l.typed(key)
		case n == size:
			l.command(key)
		case !l.typing:
			l.command(named[strings.Replace(keys[:n], "\x1bO", "\x1b[", 1)])
		}
	}
}

// named are the keys that are sent as several characters: the arrows, Home, End, and those
// that turn pages.
var named = map[string]rune{
	"\x1b[A": 'k', "\x1b[B": 'j', "\x1b[5~": 'b', "\x1b[6~": ' ',
	"\x1b[H": 'g', "\x1b[1~": 'g', "\x1b[F": 'G', "\x1b[4~": 'G',
}

// keyLength is how many bytes the first of keys has: that of an arrow, say, begins with ESC
// and [ or O, and ends with a letter or ~.
func keyLength(keys string) int {
	if strings.HasPrefix(keys, "\x1b[") || strings.HasPrefix(keys, "\x1bO") {
		for i := 2; i < len(keys); i++ {
			if keys[i] >= '@' && keys[i] <= '~' {
				return i + 1
			}
		}
		return len(keys)
	}
	_, size := utf8.DecodeRuneInString(keys)
	return size
}

// typed adds to the filter.
func (l *live) typed(key rune) {
	switch key {
	case '\r', '\n':
		l.typing = false
	case '\x1b':
		l.typing, l.filter = false, ""
	case '\x7f', '\b':
		if r := []rune(l.filter); len(r) > 0 {
			l.filter = string(r[:len(r)-1])
		}
	default:
		l.filter += string(key)
	}
	l.skip = 0
}

func (l *live) command(key rune) {
	if l.help {
		l.help = false
		if key != 'q' && key != '\x03' {
			return
		}
	}
	switch key {
	case 'q', '\x03':
		l.quit = true
	case 's':
		orders := topOrders()
		l.order = orders[(slices.Index(orders, l.order)+1)%len(orders)]
	case 'n':
		lines := topLines()
		l.by = lines[(slices.Index(lines, l.by)+1)%len(lines)]
	case '/':
		l.typing, l.filter = true, ""
	case '\x1b':
		l.filter = ""
	case 'h', '?':
		l.help = true
	case 'j':
		l.scroll(1)
	case 'k':
		l.scroll(-1)
	case ' ':
		l.scroll(l.page)
	case 'b':
		l.scroll(-l.page)
	case 'g':
		l.skip = 0
	case 'G':
		l.scroll(len(l.view.Locks))
	}
}

// scroll moves so many rows down, as long as there are more below.
func (l *live) scroll(rows int) {
	l.skip = max(min(l.skip+rows, len(l.shown().Locks)-l.page), 0)
}

// topKeys is what h shows.
const topKeys = `n                    show the hottest names, the hottest groups, the locks
s                    sort locks by the next column
/                    show names with a text in them, or that match a GLOB
esc                  show all names
j, k, arrows         scroll by a line
space, b, page keys  scroll by a page
g, G, Home, End      go to the first line, the last
h, ?                 this help
q                    quit`

// shown is the view with what the filter leaves.
func (l *live) shown() *topView {
	v := *l.view
	if l.filter != "" {
		keep := wantedBy(l.filter)
		if !strings.ContainsAny(l.filter, "*?[") {
			keep = func(name string) bool { return strings.Contains(name, l.filter) }
		}
		v.Locks = slices.DeleteFunc(slices.Clone(v.Locks), func(lock *topLock) bool { return !keep(lock.Name) })
		v.Dead = slices.DeleteFunc(slices.Clone(v.Dead), func(d deadlock) bool { return !keep(d.Name) })
		v.Lost = slices.DeleteFunc(slices.Clone(v.Lost), func(lost lossView) bool { return !keep(lost.Name) })
		v.Hot = slices.DeleteFunc(slices.Clone(v.Hot), func(hot hotName) bool { return !keep(hot.Name) })
		v.Groups = hotGroups(v.Hot)
	}
	sortTop(&v, l.order)
	return &v
}

// status is the last line, with so many locks in the picture.
func (l *live) status(shown, all int) string {
	switch {
	case l.typing:
		return "filter: " + printable(l.filter) + "_"
	case l.trouble != nil:
		return "Redis does not answer: " + printable(l.trouble.Error())
	}
	text := "sorted by " + l.order
	if l.by != byLock {
		text = "hottest by " + l.by
	}
	if shown < all {
		text = fmt.Sprintf("%d-%d of %d  %s", l.skip+1, l.skip+shown, all, text)
	}
	if l.filter != "" {
		text += "  only " + printable(l.filter) + " (esc)"
	}
	return text + "  / filter  s sort  h help  q quit  " + l.view.At.Format(time.TimeOnly) + "  " + printable(l.server.name)
}

// lines are those of a picture.
func (l *live) lines(columns, rows int) []string {
	v := l.shown()
	l.page = v.room(rows)
	l.scroll(0) // there may be fewer locks than before
	shown := max(min(len(v.Locks)-l.skip, l.page), 0)
	if l.help {
		return v.picture(columns, rows, strings.Split(topKeys, "\n"), l.status(shown, shown), l.colours)
	}
	if l.by != byLock {
		return v.picture(columns, rows, v.hotLines(l.by, columns, l.colours), l.status(0, 0), l.colours)
	}
	return v.frame(columns, rows, l.skip, l.status(shown, len(v.Locks)), l.colours)
}

// draw shows the newest view. It writes over the picture before, so that nothing flickers. A
// row is erased before it is written: behind one that is full, the cursor is on its last
// character.
func (l *live) draw() error {
	columns, rows := size(l.out)
	lines := l.lines(columns, rows)
	_, err := io.WriteString(l.out, "\x1b[H\x1b[K"+strings.Join(lines[:min(len(lines), rows)], "\r\n\x1b[K"))
	return err
}
