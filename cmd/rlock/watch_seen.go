package main

import (
	"cmp"
	"slices"
	"strings"
)

// seen is what `rlock watch` knows of the locks.
type seen struct {
	locks    map[string]*topLock
	released map[string]bool    // since the newest look
	waiting  map[[2]string]bool // lock and client
	lost     map[[2]string]bool // lock and owner
}

// release notes a message: that the lock is free is no news then.
func (s *seen) release(name string) {
	if s.released == nil {
		s.released = make(map[string]bool)
	}
	s.released[name] = true
}

// compare returns what has happened since the look before.
func (s *seen) compare(v *topView) (events []event) {
	locks, waiting, lost := make(map[string]*topLock), make(map[[2]string]bool), make(map[[2]string]bool)
	for _, l := range v.Lost {
		key := [2]string{l.Name, l.Owner}
		if lost[key] = true; !s.lost[key] {
			events = append(events, event{At: v.At, Event: "lost", Lock: l.Name, Kind: l.Kind, Owner: l.Owner, hostView: l.hostView, Purpose: l.Purpose, Cause: l.Cause})
		}
	}
	for _, l := range v.Locks {
		locks[l.Name] = l
		if before := s.locks[l.Name]; before != nil {
			l.Kind = cmp.Or(l.Kind, before.Kind)
		}
		events = append(events, s.holder(v, l)...)
		for _, w := range l.Waiting {
			key := [2]string{l.Name, w.Client}
			if waiting[key] = true; !s.waiting[key] {
				events = append(events, event{At: v.At, Event: "waits", Lock: l.Name, Kind: l.Kind, hostView: w.hostView, Purpose: w.Purpose, Calls: w.Calls, ForMS: new(w.WaitedMS)})
			}
		}
	}
	for name, before := range s.locks {
		if locks[name] == nil {
			events = append(events, s.freed(v, before)...)
		}
	}
	s.locks, s.waiting, s.lost, s.released = locks, waiting, lost, nil
	slices.SortStableFunc(events, func(a, b event) int { return strings.Compare(a.Lock, b.Lock) })
	return events
}

// holder reports whether somebody else holds a lock than before.
func (s *seen) holder(v *topView, l *topLock) (events []event) {
	before := s.locks[l.Name]
	if len(l.Holders) == 0 {
		if before == nil {
			return nil
		}
		return s.freed(v, before)
	}
	for _, h := range l.Holders {
		e := event{At: v.At, Event: "held", Lock: l.Name, Kind: l.Kind, Owner: h.Owner, hostView: h.hostView, Purpose: h.Purpose, ForMS: h.HeldMS}
		switch {
		case before == nil || len(before.Holders) == 0 || s.released[l.Name]:
			if before != nil && before.has(h.Owner) {
				continue
			}
		case before.has(h.Owner):
			continue
		default:
			e.Event = "passed"
		}
		events = append(events, e)
	}
	return events
}

// held returns the names of the locks that somebody holds.
func (s *seen) held() (names []string) {
	for name, l := range s.locks {
		if len(l.Holders) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// has reports whether an owner holds the lock.
func (l *topLock) has(owner string) bool {
	return slices.ContainsFunc(l.Holders, func(h holderView) bool { return h.Owner == owner })
}

// freed tells that nobody holds a lock any more, unless a message has told it.
func (s *seen) freed(v *topView, before *topLock) []event {
	if len(before.Holders) == 0 || s.released[before.Name] {
		return nil
	}
	return []event{{At: v.At, Event: "free", Lock: before.Name, Kind: before.Kind}}
}
