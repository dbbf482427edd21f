package rlock

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-rlock/rlock/internal/record"
)

// maxGroups is how many values of Options.Group a client counts separately. The locks of further values are in otherGroup.
const maxGroups = 100

const otherGroup = "other"

// group has the counters of the locks of a group. Every lock is in a group: in that without a name if Options.Group is nil, or returns
// "". A lock counts in the counters of its shard, so that locks with different names seldom write to the same cache line.
type group struct {
	name     string
	counters [shards]counters
}

// groups are the groups of a client.
type groups struct {
	none     group                             // without a name
	all      atomic.Pointer[map[string]*group] // by name; the map never changes, but is replaced
	panicked sync.Once                         // Options.Group, for the log
}

func (gs *groups) init() {
	gs.all.Store(&map[string]*group{"": &gs.none})
}

// group returns the group of a name. It calls code of the application.
func (c *Client) group(name string) *group {
	if c.opts.Group == nil {
		return &c.groups.none
	}
	return c.groups.of(c.groupName(name))
}

// groupName is what Options.Group returns.
func (c *Client) groupName(name string) (group string) {
	defer func() {
		if v := recover(); v != nil {
			group = otherGroup
			c.groups.panicked.Do(func() {
				c.log.Error("rlock: Options.Group panicked: its locks are in the group "+otherGroup, "lock", name, "panic", fmt.Sprint(v))
			})
		}
	}()
	return c.opts.Group(name)
}

// of returns the group of that name, or otherGroup if there are too many.
func (gs *groups) of(name string) *group {
	if g := (*gs.all.Load())[name]; g != nil {
		return g
	}
	name = record.Clean(name) // metrics have to be valid UTF-8
	for {
		before := gs.all.Load()
		if g := (*before)[name]; g != nil {
			return g
		}
		if len(*before) > maxGroups && name != otherGroup {
			name = otherGroup
			continue
		}
		g, after := &group{name: strings.Clone(name)}, maps.Clone(*before) // the name may be part of a long text
		after[g.name] = g
		if gs.all.CompareAndSwap(before, &after) {
			return g
		}
	}
}

// NameGroup replaces what is different in names of the same kind by "*". It returns "order:*" for
// "order:4711". Use it as Group in [Options] if your names are made of words and numbers.
//
// It replaces each UUID, each word of 8 or more hexadecimal digits with at least one of 0 to 9 among
// them, and each other run of the digits 0 to 9. A word begins and ends where there is no letter and
// no digit. NameGroup does not recognize other ids, such as ULIDs. If your names contain these, write a
// function of your own.
func NameGroup(name string) string {
	var group strings.Builder
	done := 0 // so much of the name is in group
	for i := 0; i < len(name); {
		n := idAt(name, i)
		if n == 0 {
			i++
			continue
		}
		group.WriteString(name[done:i])
		group.WriteByte('*')
		i += n
		done = i
	}
	if done == 0 {
		return name
	}
	group.WriteString(name[done:])
	return group.String()
}

// idAt returns the length of what NameGroup replaces at i; 0 if nothing.
func idAt(name string, i int) int {
	ends := func(i int) bool { return i < 0 || i >= len(name) || !isLetter(name[i]) && !isDigit(name[i]) }
	n, digits := 0, 0
	for i+n < len(name) && isDigit(name[i+n]) {
		n++
	}
	if digits = n; !ends(i - 1) {
		return digits
	}
	if isUUID(name[i:]) && ends(i+len(uuid)) {
		return len(uuid)
	}
	found := digits > 0
	for i+n < len(name) && isHex(name[i+n]) {
		found = found || isDigit(name[i+n])
		n++
	}
	if n >= 8 && found && ends(i+n) {
		return n
	}
	return digits
}

// uuid is the form of one.
const uuid = "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh"

func isUUID(text string) bool {
	if len(text) < len(uuid) {
		return false
	}
	for i := range len(uuid) {
		if isHex(text[i]) != (uuid[i] == 'h') || uuid[i] == '-' && text[i] != '-' {
			return false
		}
	}
	return true
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// isLetter also takes each byte of a character outside ASCII for a letter.
func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' || b >= 0x80 }

func isHex(b byte) bool { return isDigit(b) || 'a' <= b|0x20 && b|0x20 <= 'f' }
