package netfault

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// errMalformed is the error for data other than RESP; an ended stream has io errors.
var errMalformed = errors.New("malformed RESP")

// frame is one request, reply or push message.
type frame struct {
	raw   []byte
	words [][]byte // bulk strings in raw, in order
}

// reader splits a stream into frames.
type reader struct {
	r        *bufio.Reader
	inline   bool // a frame that is no array is an inline command
	maxWords int  // bulk strings to remember; their number may be huge in a reply
	raw      []byte
	spans    [][2]int // of the bulk strings in raw
}

func newRequestReader(r io.Reader) *reader {
	return &reader{r: bufio.NewReader(r), inline: true, maxWords: 1 << 20}
}

func newReplyReader(r io.Reader) *reader {
	return &reader{r: bufio.NewReader(r), maxWords: 1}
}

// next returns the next frame, in memory of its own. The error is io.EOF only
// between two frames.
func (r *reader) next() (frame, error) {
	r.raw, r.spans = nil, r.spans[:0]
	// Values left to read until the frame is complete. Counting instead of
	// recursion: a hostile nesting depth costs nothing.
	for left := 1; left > 0; left-- {
		more, err := r.value()
		if err != nil {
			if errors.Is(err, io.EOF) && len(r.raw) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return frame{}, err
		}
		left += more
	}
	f := frame{raw: r.raw, words: make([][]byte, len(r.spans))}
	for i, s := range r.spans {
		f.words[i] = f.raw[s[0]:s[1]]
	}
	return f, nil
}

// value reads the first line of a value, and the payload of a bulk string. value returns the
// number of inner values still to come.
func (r *reader) value() (int, error) {
	first := len(r.raw) == 0
	line, err := r.line()
	if err != nil {
		return 0, err
	}
	if r.inline && first && line[0] != '*' {
		end := 0
		for word := range bytes.FieldsSeq(line) {
			start := end + bytes.Index(line[end:], word)
			end = start + len(word)
			r.spans = append(r.spans, [2]int{start, end})
		}
		return 0, nil
	}
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || len(text) == 0 {
		return 0, fmt.Errorf("%w: line %.40q", errMalformed, line)
	}
	kind := text[0]
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(':
		return 0, nil
	case '$', '!', '=', '*', '~', '>', '%', '|':
	default:
		return 0, fmt.Errorf("%w: line %.40q", errMalformed, line)
	}
	n, err := strconv.ParseInt(string(text[1:]), 10, 32)
	if err != nil || n < -1 {
		return 0, fmt.Errorf("%w: length %.40q", errMalformed, line)
	}
	switch {
	case n == -1: // RESP2's null
		return 0, nil
	case kind == '%':
		return 2 * int(n), nil
	case kind == '|': // attributes: the value itself follows
		return 2*int(n) + 1, nil
	case kind == '*', kind == '~', kind == '>':
		return int(n), nil
	}
	return 0, r.bulk(int(n))
}

// line appends a line to raw and returns it; it has at least one byte.
func (r *reader) line() ([]byte, error) {
	start := len(r.raw)
	for {
		part, err := r.r.ReadSlice('\n')
		r.raw = append(r.raw, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return r.raw[start:], err
		}
	}
}

// bulk appends a payload of n bytes and its line end.
func (r *reader) bulk(n int) error {
	if len(r.spans) < r.maxWords {
		r.spans = append(r.spans, [2]int{len(r.raw), len(r.raw) + n})
	}
	// Piece by piece: the length is only a claim.
	for left := n + 2; left > 0; {
		start := len(r.raw)
		piece := min(left, 64<<10)
		r.raw = append(r.raw, make([]byte, piece)...)
		got, err := io.ReadFull(r.r, r.raw[start:])
		if err != nil {
			r.raw = r.raw[:start+got]
			return err
		}
		left -= piece
	}
	if !bytes.HasSuffix(r.raw, []byte("\r\n")) {
		return fmt.Errorf("%w: bulk string of %d bytes without line end", errMalformed, n)
	}
	return nil
}
