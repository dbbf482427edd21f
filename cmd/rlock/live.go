package main

import (
	"context"
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
	filter string
	typing bool // of the filter
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
		case l.typing:
		case keys[:n] == "\x1b[A":
			l.command('k')
		case keys[:n] == "\x1b[B":
			l.command('j')
		}
	}
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
	switch key {
	case 'q', '\x03':
		l.quit = true
	case 's':
		orders := topOrders()
		l.order = orders[(slices.Index(orders, l.order)+1)%len(orders)]
	case '/':
		l.typing, l.filter = true, ""
	case '\x1b':
		l.filter = ""
	case 'j':
		l.skip = min(l.skip+1, max(len(l.view.Locks)-1, 0))
	case 'k':
		l.skip = max(l.skip-1, 0)
	}
}

// shown is the view with what the filter leaves.
func (l *live) shown() *topView {
	v := *l.view
	if l.filter != "" {
		keep := wantedBy(l.filter)
		if !strings.ContainsAny(l.filter, "*?[") {
			keep = func(name string) bool { return strings.Contains(name, l.filter) }
		}
		v.Locks = slices.DeleteFunc(slices.Clone(v.Locks), func(lock *topLock) bool { return !keep(lock.Name) })
	}
	sortTop(&v, l.order)
	return &v
}

// status is the last line.
func (l *live) status() string {
	switch {
	case l.typing:
		return "filter: " + printable(l.filter) + "_"
	case l.trouble != nil:
		return "Redis does not answer: " + printable(l.trouble.Error())
	}
	text := printable(l.server.name) + "  " + l.view.At.Format(time.TimeOnly) + "  sorted by " + l.order + " (s)"
	if l.filter != "" {
		return text + "  only " + printable(l.filter) + " (esc)"
	}
	return text + "  filter (/)  end (q)"
}

// draw shows the newest view. It writes over the picture before, so that nothing flickers. A
// row is erased before it is written: behind one that is full, the cursor is on its last
// character.
func (l *live) draw() error {
	columns, rows := size(l.out)
	lines := l.shown().frame(columns, rows, l.skip, l.status(), l.colours)
	_, err := io.WriteString(l.out, "\x1b[H\x1b[K"+strings.Join(lines[:min(len(lines), rows)], "\r\n\x1b[K"))
	return err
}
