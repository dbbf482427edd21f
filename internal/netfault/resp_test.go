package netfault

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func frames(r *reader) (raw, words []string, err error) {
	for {
		f, err := r.next()
		if err != nil {
			return raw, words, err
		}
		raw = append(raw, string(f.raw))
		for _, w := range f.words {
			words = append(words, string(w))
		}
	}
}

func TestRequests(t *testing.T) {
	for _, tc := range []struct {
		name  string
		in    []string
		words []string
	}{
		{"array", []string{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"}, []string{"GET", "k"}},
		{"pipeline", []string{"*1\r\n$4\r\nPING\r\n", "*1\r\n$4\r\nQUIT\r\n"}, []string{"PING", "QUIT"}},
		{"binary", []string{"*1\r\n$4\r\n\r\n\x00*\r\n"}, []string{"\r\n\x00*"}},
		{"empty argument", []string{"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"}, []string{"GET", ""}},
		{"nothing", []string{"*0\r\n", "*-1\r\n", "\r\n"}, nil},
		{"inline", []string{"PING\r\n", "  set a  a \n"}, []string{"PING", "set", "a", "a"}},
		{"large", []string{"*1\r\n$200000\r\n" + strings.Repeat("x", 200000) + "\r\n"}, []string{strings.Repeat("x", 200000)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := strings.Join(tc.in, "")
			for _, source := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in))} {
				raw, words, err := frames(newRequestReader(source))
				require.Equal(t, io.EOF, err)
				require.Equal(t, tc.in, raw)
				require.Equal(t, tc.words, words)
			}
		})
	}
}

func TestReplies(t *testing.T) {
	want := []string{
		"+OK\r\n", "-ERR no\r\n", ":-1\r\n", "$-1\r\n", "$0\r\n\r\n", "*-1\r\n", "*0\r\n",
		"_\r\n", "#t\r\n", ",1.5\r\n", "(123\r\n", "!3\r\nERR\r\n", "=7\r\ntxt:abc\r\n",
		"*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
		"%2\r\n+a\r\n*2\r\n:1\r\n:2\r\n+b\r\n~1\r\n_\r\n",
		"|1\r\n+ttl\r\n:1\r\n*1\r\n|1\r\n+x\r\n:2\r\n:3\r\n",
		">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
		strings.Repeat("*1\r\n", 100000) + ":1\r\n",
		"-" + strings.Repeat("long", 10000) + "\r\n",
	}
	raw, _, err := frames(newReplyReader(strings.NewReader(strings.Join(want, ""))))
	require.Equal(t, io.EOF, err)
	require.Equal(t, want, raw)
}

func TestMalformed(t *testing.T) {
	for _, in := range []string{
		"OK\r\n", "\r\n", "+OK\n", "$x\r\n", "$-2\r\n", "$1\r\nab\r\n", "*1\r\nx\r\n", "*99999999999\r\n", "$?\r\n", "$\r\n",
	} {
		_, _, err := frames(newReplyReader(strings.NewReader(in)))
		require.ErrorIs(t, err, errMalformed, "%q", in)
	}
	for _, in := range []string{"+", "+OK\r", "$5\r\nab", "$1\r\na\r", "*2\r\n:1\r\n", "*1\r\n"} {
		_, _, err := frames(newReplyReader(strings.NewReader(in)))
		require.Equal(t, io.ErrUnexpectedEOF, err, "%q", in)
	}
}

func FuzzReader(f *testing.F) {
	for _, in := range []string{
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "PING a\r\n*0\r\n", ">2\r\n$7\r\nmessage\r\n_\r\n",
		"|1\r\n+a\r\n:1\r\n%1\r\n+b\r\n~0\r\n", "$2147483647\r\n", "*2147483647\r\n", "=1\r\na\r\n",
	} {
		f.Add([]byte(in), true)
		f.Add([]byte(in), false)
	}
	f.Fuzz(func(t *testing.T, in []byte, request bool) {
		r := newReplyReader(bytes.NewReader(in))
		if request {
			r = newRequestReader(bytes.NewReader(in))
		}
		raw, _, err := frames(r)
		got := strings.Join(raw, "")
		require.True(t, strings.HasPrefix(string(in), got))
		if err == io.EOF {
			require.Len(t, got, len(in), "something is left between frames")
		}
	})
}

func TestAnswered(t *testing.T) {
	for _, tc := range []struct {
		name     string
		requests []string // name, repeated for each confirmation
		frames   []string
		want     []string // request that each frame answers
	}{
		{"in order", []string{"get", "set"}, []string{"+a\r\n", "+b\r\n"}, []string{"get", "set"}},
		{"unasked", nil, []string{"-ERR max number of clients reached\r\n"}, []string{""}},
		{
			"push between",
			[]string{"get"},
			[]string{">3\r\n$10\r\ninvalidate\r\n$1\r\na\r\n_\r\n", "$1\r\nx\r\n"},
			[]string{"", "get"},
		},
		{
			"RESP3 confirmations",
			[]string{"subscribe subscribe", "get"},
			[]string{
				">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nm\r\n",
				">3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n", "*1\r\n$7\r\nmessage\r\n",
			},
			[]string{"", "", "subscribe", "get"},
		},
		{
			"RESP2 confirmations",
			[]string{"lrange", "subscribe", "ping"},
			[]string{
				"*1\r\n$7\r\nmessage\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
				"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nm\r\n", "*2\r\n$4\r\npong\r\n$0\r\n\r\n",
			},
			[]string{"lrange", "subscribe", "", "ping"},
		},
		{"refused", []string{"subscribe subscribe", "get"}, []string{"-NOPERM\r\n", "_\r\n"}, []string{"subscribe", "get"}},
		{"unsubscribed by the server", []string{"get"}, []string{">3\r\n$12\r\nsunsubscribe\r\n$1\r\na\r\n:0\r\n", "_\r\n"}, []string{"", "get"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &conn{}
			for _, names := range tc.requests {
				words := strings.Fields(names)
				req := &request{name: words[0]}
				if isSubscription(words[0]) {
					req.confirms = len(words)
				}
				c.pending = append(c.pending, req)
			}
			r := newReplyReader(strings.NewReader(strings.Join(tc.frames, "")))
			var got []string
			for range tc.frames {
				f, err := r.next()
				require.NoError(t, err)
				name := ""
				if req := c.answered(f); req != nil {
					name = req.name
				}
				got = append(got, name)
			}
			require.Equal(t, tc.want, got)
			require.Empty(t, c.pending)
		})
	}
}

func TestChance(t *testing.T) {
	draw := func(rate float64, seed uint64) (hits []bool, n int) {
		c := newChance(rate, seed)
		for range 1000 {
			hit := c.hit()
			hits = append(hits, hit)
			if hit {
				n++
			}
		}
		return hits, n
	}
	first, n := draw(0.3, 1)
	require.Less(t, math.Abs(float64(n)-300), 60.0)
	again, _ := draw(0.3, 1)
	require.Equal(t, first, again)
	other, _ := draw(0.3, 2)
	require.NotEqual(t, first, other)
	_, n = draw(0, 1)
	require.Zero(t, n)
	_, n = draw(1, 1)
	require.Equal(t, 1000, n)
}
