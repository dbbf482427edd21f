package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// cells returns how many columns of a terminal a printable text takes: two for each
// character of the wide scripts and for pictures, none for what is put over another.
func cells(text string) (n int) {
	for _, r := range text {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r < 0x1100: // most
		return 1
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul), r >= 0x3000 && r <= 0x303F,
		r >= 0xFF00 && r <= 0xFF60, r >= 0x1F300 && r <= 0x1FAFF:
		return 2
	}
	return 1
}

// fit returns a printable text in so many columns: cut, with an ellipsis, or filled up.
func fit(text string, columns int) string {
	n := cells(text)
	if n <= columns {
		return text + strings.Repeat(" ", columns-n)
	}
	var b strings.Builder
	n = 0
	for _, r := range text {
		if n += runeCells(r); n >= columns {
			n -= runeCells(r)
			break
		}
		b.WriteRune(r)
	}
	return b.String() + strings.Repeat("…", min(columns, 1)) + strings.Repeat(" ", max(columns-n-1, 0))
}

// atRight is fit with the text at the right.
func atRight(text string, columns int) string {
	return strings.Repeat(" ", max(columns-cells(text), 0)) + strings.TrimRight(fit(text, columns), " ")
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
