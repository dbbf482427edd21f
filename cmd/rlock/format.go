package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// trimmed is the text of an error of the library, whose prefix is that of every
// line of this program already.
func trimmed(err error) string { return strings.TrimPrefix(err.Error(), "rlock: ") }

// printable returns s as it is, or quoted if a terminal would not show it as it
// is. Names and owners come from the server, where anybody may have put them.
func printable(s string) string {
	if quoted := strconv.Quote(s); quoted[1:len(quoted)-1] != s {
		return quoted
	}
	return s
}

// quoted returns a name as Go writes a string, if JSON would not have it as it is: what is no
// UTF-8 gets lost there. Otherwise it returns "".
func quoted(name string) string {
	if utf8.ValidString(name) {
		return ""
	}
	return strconv.Quote(name)
}

// brief rounds a duration to what one wants to read.
func brief(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Millisecond)
	}
	return d.String()
}

// short is a duration in at most six columns; "-" if it is negative.
func short(d time.Duration) string {
	unit := func(a, b time.Duration, format string) string { return fmt.Sprintf(format, d/a, d%a/b) }
	switch {
	case d < 0:
		return "-"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return unit(time.Minute, time.Second, "%dm%02ds")
	case d < 24*time.Hour:
		return unit(time.Hour, time.Minute, "%dh%02dm")
	}
	return unit(24*time.Hour, time.Hour, "%dd%02dh")
}

// remaining shows what is left of a lease.
func remaining(ttl time.Duration) string {
	if ttl < 0 {
		return "no end"
	}
	return brief(ttl)
}

// display knows how many columns of a terminal a text takes, in whatever locale.
var display = &runewidth.Condition{StrictEmojiNeutral: true}

// fit returns a printable text in so many columns: cut, with an ellipsis, or filled up.
func fit(text string, columns int) string {
	return display.FillRight(cut(text, columns), columns)
}

// atRight is fit with the text at the right.
func atRight(text string, columns int) string {
	return display.FillLeft(cut(text, columns), columns)
}

func cut(text string, columns int) string {
	if columns < 1 {
		return ""
	}
	return display.Truncate(text, columns, "…")
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // it is read by people as well
	return e.Encode(v)
}
