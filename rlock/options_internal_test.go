package rlock

import (
	"strings"
	"testing"

	"github.com/go-rlock/rlock/lua"
)

// FuzzNames: a name is refused exactly if, with what Redisson's rule makes of it,
// it would not work on every topology: key, channel and counter in one slot.
func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"", "a", "invoice:42", "{a", "a}", "a}b", "}{a}", "{}x", "{}{t}", "a{t}b", "a{t}b{c}", "{{a}}", "{a}{", "{", "}",
		"\x00\xff{\xfe}", "ключ", strings.Repeat("x", maxNameSize), strings.Repeat("x", maxNameSize+1),
	} {
		f.Add("", name)
		f.Add("app{", name)
		f.Add("app:", name)
	}
	f.Fuzz(func(t *testing.T, prefix, name string) {
		key := prefix + name
		channel, counter := "redisson_lock__channel:{"+key+"}", "redisson_lock_token:{"+key+"}"
		if strings.Contains(key, "{") {
			channel, counter = "redisson_lock__channel:"+key, "redisson_lock_token:"+key
		}
		together := hashed(key) == hashed(channel) && hashed(key) == hashed(counter)
		want := name != "" && len(key) <= maxNameSize && together
		if err := checkName(prefix, name); (err == nil) != want {
			t.Fatalf("checkName(%q, %q) = %v; hashed are %q, %q, %q", prefix, name, err, hashed(key), hashed(channel), hashed(counter))
		}
		if got := lua.Related("redisson_lock__channel", key); got != channel {
			t.Errorf("the channel of %q is %q, not %q", key, channel, got)
		}
		if got := lua.Related("redisson_lock_token", key); got != counter {
			t.Errorf("the counter of %q is %q, not %q", key, counter, got)
		}
	})
}

// hashed is what Redis hashes of a key: keyHashSlot of its cluster.c, line by line.
func hashed(key string) string {
	s := 0
	for s < len(key) && key[s] != '{' {
		s++
	}
	if s == len(key) {
		return key
	}
	e := s + 1
	for e < len(key) && key[e] != '}' {
		e++
	}
	if e == len(key) || e == s+1 {
		return key
	}
	return key[s+1 : e]
}
