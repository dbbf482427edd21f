package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPictures compares docs/top.svg and docs/watch.svg with what the two commands show:
// make pictures writes them.
func TestPictures(t *testing.T) {
	v := sample()
	v.Locks[3].Name = "stock:eu"
	sortTop(v, "wait")
	v.At = v.At.In(time.FixedZone("", 0)) // wherever the test runs
	l := &live{top: &top{server: &server{name: "127.0.0.1:6379/0"}, order: "wait", by: byLock}, view: v, colours: newColours(true)}
	golden(t, "top.svg", svg("rlock top", l.lines(80, 10)), "make pictures")

	var out bytes.Buffer
	require.NoError(t, printEvent(&out, event{At: v.At.Add(-3 * time.Second), Event: "released", Lock: "invoice:41"}))
	require.NoError(t, printEvent(&out, event{At: v.At.Add(-time.Second), Event: "released", Lock: "cart:7", times: 331, within: time.Second}))
	var s seen
	for _, e := range s.compare(v) {
		require.NoError(t, printEvent(&out, e))
	}
	golden(t, "watch.svg", svg("rlock watch '*'", strings.Split(strings.TrimSpace(out.String()), "\n")), "make pictures")
}

// svg draws lines of text as a terminal shows them.
func svg(command string, lines []string) string {
	const width, height = 8.4, 18
	longest := 80
	for _, line := range lines {
		longest = max(longest, display.StringWidth(plain(line)))
	}
	var b strings.Builder
	w, h := int(float64(longest)*width)+24, (len(lines)+1)*height+24
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n", w, h, w, h, command)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="6" fill="#1b1f24"/>`+"\n", w, h)
	fmt.Fprintln(&b, `<g font-family="ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14" fill="#d7dde4" xml:space="preserve">`)
	for i, line := range append([]string{"$ " + command}, lines...) {
		fill := ""
		switch {
		case strings.HasPrefix(line, "\x1b[7m"):
			fmt.Fprintf(&b, `<rect x="8" y="%d" width="%d" height="%d" fill="#d7dde4"/>`+"\n", i*height+12, w-16, height)
			fill = ` fill="#1b1f24"`
		case strings.HasPrefix(line, "\x1b[33m"):
			fill = ` fill="#e3b341"`
		case strings.HasPrefix(line, "\x1b[31m"):
			fill = ` fill="#ff7b72"`
		case strings.HasPrefix(line, "\x1b[2m"), i == 0:
			fill = ` fill="#8b949e"`
		}
		var text bytes.Buffer
		_ = xml.EscapeText(&text, []byte(strings.TrimRight(plain(line), " ")))
		fmt.Fprintf(&b, `<text x="12" y="%d"%s textLength="%d" lengthAdjust="spacing">%s</text>`+"\n", i*height+26, fill, int(float64(display.StringWidth(strings.TrimRight(plain(line), " ")))*width), text.String())
	}
	fmt.Fprintln(&b, "</g>\n</svg>")
	return b.String()
}

// plain is a line without colours.
func plain(line string) string {
	return strings.NewReplacer("\x1b[7m", "", "\x1b[33m", "", "\x1b[31m", "", "\x1b[2m", "", "\x1b[0m", "").Replace(line)
}
