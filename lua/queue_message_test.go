package lua_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
)

func TestReadMessage(t *testing.T) {
	for payload, want := range map[string]lua.Message{
		"":                                 {},
		"a:1":                              {Owner: "a:1"},
		"*":                                {Owner: lua.Everybody},
		"a:1 5 6000 7 8":                   {Owner: "a:1", Granted: true, Time: 5, Claim: 6 * time.Second, Token: 7, Spare: 8, Next: []string{}},
		"a:1 5 1 0 0 a:2 a:3":              {Owner: "a:1", Granted: true, Time: 5, Claim: time.Millisecond, Next: []string{"a:2", "a:3"}},
		"a:1 5 6000 9223372036854775807 0": {Owner: "a:1", Granted: true, Time: 5, Claim: 6 * time.Second, Token: math.MaxInt64, Next: []string{}},
		// No grants.
		"a:1 5 6000 7":                     {Owner: "a:1"},
		"a:1 5 6000 7 x":                   {Owner: "a:1"},
		"a:1 5 6000  8":                    {Owner: "a:1"},
		"a:1 5.5 6000 7 8":                 {Owner: "a:1"},
		"a:1 5 6000 9223372036854775808 0": {Owner: "a:1"},
		"a:1 5 -1 7 8":                     {Owner: "a:1"},
		"a:1 5 0 7 8":                      {Owner: "a:1"},
		"a:1 -5 6000 7 8":                  {Owner: "a:1"},
		"a:1 5 6000 -7 8":                  {Owner: "a:1"},
		"a:1 5 6000 7 -8":                  {Owner: "a:1"},
		"a:1 5 9223372036854775807 7 8":    {Owner: "a:1"},
		"a:1 5 6000 9223372036854775807 1": {Owner: "a:1"},
		" 5 6000 7 8":                      {},
		"* 5 6000 7 8":                     {Owner: "*"},
	} {
		t.Run(payload, func(t *testing.T) {
			require.Equal(t, want, lua.ReadMessage(payload))
		})
	}
}

// FuzzReadMessage: whatever is heard, a grant is of the form of one, and its numbers
// can be counted with.
func FuzzReadMessage(f *testing.F) {
	for _, seed := range []string{
		"", " ", "*", "a:1", "a:1 5 6000 7 8", "a:1 5 6000 7 8 a:2 a:3", "a:1 5 -1 7 8", "a:1 +5 +6 +7 +8",
		"a:1 5 6000 9223372036854775807 9223372036854775807", "a:1 0 99999999999999999999 0 0", "* 1 2 3 4", "a:1 1 2 3 4 ",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		m := lua.ReadMessage(payload)
		if !strings.HasPrefix(payload, m.Owner) || strings.Contains(m.Owner, " ") {
			t.Errorf("%q: %+v", payload, m)
		}
		if !m.Granted {
			if fmt.Sprint(m) != fmt.Sprint(lua.Message{Owner: m.Owner}) {
				t.Errorf("%q: no grant, but %+v", payload, m)
			}
			return
		}
		words := strings.Split(payload, " ")
		if len(words) != 5+len(m.Next) || m.Owner == "" || m.Owner == lua.Everybody {
			t.Errorf("%q: %+v", payload, m)
		}
		if m.Time < 0 || m.Claim <= 0 || m.Token < 0 || m.Spare < 0 || m.Token+m.Spare < m.Token {
			t.Errorf("%q: %+v", payload, m)
		}
	})
}
