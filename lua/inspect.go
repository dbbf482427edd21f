package lua

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"
)

//go:embed inspect.lua
var inspectSource string

var inspectScript = newScript("inspect", tokenSource+inspectSource, 1)

// State is the state of a lock in Redis.
type State struct {
	Holds   map[string]int64 // hold count of each owner; 0 for an owner that keeps the lock without a hold; empty if the lock is free
	Shared  map[string]int64 // how many of each owner's holds are for reading
	TTL     time.Duration    // rest of the lease; negative if the lease has no end, 0 if the lock is free
	Token   int64            // latest fencing token; 0 without Counter
	Waiters int64            // number of tickets in the queue and of connections that listen for a release; -1 if it is not known
}

// Inspect reads from Redis the state of the lock that g names by its keys. It does not use g.Owner.
func Inspect(ctx context.Context, r Runner, g Grant) (State, error) {
	answer, err := g.inspect(ctx, r)
	if err != nil {
		return State{}, err
	}
	return answer.state(g.Key, holdCount)
}

func (g Grant) inspect(ctx context.Context, r Runner) (reply, error) {
	numsub := "NUMSUB"
	if g.ChannelKind != Ordinary {
		numsub = "SHARDNUMSUB"
	}
	keys, queue, counter := []string{g.Key}, 0, 0
	least := 32768 // see queue.lua
	if g.Queue == QuorumOf(g.Key) {
		least = 1 // see turn.lua
	}
	if g.Queue != "" {
		keys = append(keys, g.Queue)
		queue = len(keys)
	}
	if g.Counter != "" {
		keys = append(keys, g.Counter)
		counter = len(keys)
	}
	return inspectScript.run(ctx, r, keys, numsub, cmp.Or(g.Channel, UnlockChannel(g.Key)), queue, counter, least)
}

// state reads the answer to an inspection. read reads a field, and fails for a field of no lock.
func (r reply) state(key string, read func(s *State, field, value string) error) (State, error) {
	if len(r.list) < 4 || !r.begins(1) {
		return State{}, fmt.Errorf("lua: unexpected reply to the inspect script: %v", r.list)
	}
	s := State{Holds: make(map[string]int64), Waiters: r.int(3)}
	s.Token, _ = r.token(2)
	for i := 4; i+1 < len(r.list); i += 2 {
		if field := r.text(i); read(&s, field, r.text(i+1)) != nil {
			if field == "mode" {
				return State{}, &ConflictError{Key: key, Type: ReadWriteLock}
			}
			return State{}, &ConflictError{Key: key, Type: foreignField + strconv.Quote(field)}
		}
	}
	if len(s.Holds) > 0 {
		s.TTL = r.millis(1)
	}
	return s, nil
}

// holdCount reads the field of an owner.
func holdCount(s *State, field, value string) (err error) {
	s.Holds[field], err = strconv.ParseInt(value, 10, 64)
	return err
}
