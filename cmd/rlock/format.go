package main

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
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

// remaining shows what is left of a lease.
func remaining(ttl time.Duration) string {
	if ttl < 0 {
		return "no end"
	}
	return brief(ttl)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // it is read by people as well
	return e.Encode(v)
}
