package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/record"
)

// batch is how many keys are read in one go, and readers how many goes are under way.
const (
	batch   = 500
	readers = 3
)

// clientRecord is the record of a client, and what is left of it.
type clientRecord struct {
	record.Record
	id   string
	rest time.Duration
}

// clientRecords are those of all clients, by id.
type clientRecords map[string]*clientRecord

// records reads the records of all clients. Nothing else is looked at.
func (s *server) records(ctx context.Context) (clientRecords, error) {
	ids, err := s.rdb.ZRange(ctx, record.List(s.prefix), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	return s.recordsOf(ctx, ids...)
}

// recordsOf reads those of some clients.
func (s *server) recordsOf(ctx context.Context, ids ...string) (clientRecords, error) {
	all := make([]*clientRecord, len(ids))
	err := inBatches(len(ids), func(from, to int) error {
		pipe := s.rdb.Pipeline()
		fields, rests := make([]*redis.MapStringStringCmd, to-from), make([]*redis.DurationCmd, to-from)
		for i := range fields {
			key := record.Key(s.prefix, ids[from+i])
			fields[i], rests[i] = pipe.HGetAll(ctx, key), pipe.PTTL(ctx, key)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		for i := range fields {
			err := fields[i].Err()
			switch {
			case redis.HasErrorPrefix(err, "WRONGTYPE"):
			case err != nil:
				return err
			case len(fields[i].Val()) > 0 && rests[i].Val() > 0: // otherwise it has ended
				all[from+i] = &clientRecord{record.Read(fields[i].Val()), ids[from+i], rests[i].Val()}
			}
		}
		return nil
	})
	records := make(clientRecords)
	for i, r := range all {
		if r != nil {
			records[ids[i]] = r
		}
	}
	return records, err
}

// inBatches calls f for all numbers below n, some at once and in several goroutines.
func inBatches(n int, f func(from, to int) error) error {
	var wg sync.WaitGroup
	tickets, errs := make(chan struct{}, readers), make([]error, (n+batch-1)/batch)
	for i := range errs {
		tickets <- struct{}{}
		wg.Go(func() {
			errs[i] = f(i*batch, min((i+1)*batch, n))
			<-tickets
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// clientOf returns the id of the client that an owner belongs to.
func clientOf(owner string) string {
	id, _, _ := strings.Cut(owner, ":")
	return strings.TrimSuffix(id, "-poll")
}

// hostView is where a client is, as JSON shows it.
type hostView struct {
	Client  string `json:"client,omitempty"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`
	Version string `json:"version,omitempty"`
}

// host says where a client is; only its id, if it has no record.
func (all clientRecords) host(id string) hostView {
	r := all[id]
	if r == nil {
		return hostView{Client: id}
	}
	return hostView{id, r.Host, r.PID, r.Program, r.Version}
}

// String is host, program and process; "" if they are not known.
func (h hostView) String() string {
	if h.Host == "" && h.Program == "" {
		return ""
	}
	return printable(fmt.Sprintf("%s %s[%d]", cmp.Or(h.Host, "?"), cmp.Or(h.Program, "?"), h.PID))
}

// holdKey names an owner and its lock.
type holdKey struct{ owner, name string }

// toldHold is what a client tells of an owner that holds a lock, or keeps it.
type toldHold struct {
	*clientRecord
	record.Entry
}

// ages returns for how many milliseconds the lock has been held, or kept although nobody
// holds it; the other one is nil.
func (h toldHold) ages() (held, kept *int64) {
	age := new(h.Age(h.Entry, h.rest).Milliseconds())
	if h.What == record.Keeps {
		return nil, age
	}
	return age, nil
}

// holds returns what the clients tell of what they hold or keep.
func (all clientRecords) holds() map[holdKey]toldHold {
	holds := make(map[holdKey]toldHold)
	for _, r := range all {
		for _, e := range r.Entries {
			if e.What == record.Holds || e.What == record.Keeps {
				holds[holdKey{e.Owner, e.Name}] = toldHold{r, e}
			}
		}
	}
	return holds
}

// waitingView is a client whose calls wait, as JSON shows it.
type waitingView struct {
	hostView
	Purpose  string `json:"purpose,omitempty"`
	Calls    int    `json:"calls"`
	WaitedMS int64  `json:"waited_ms"` // the first of them
}

// waiting returns the clients that tell that they wait, by the lock, the first one first.
func (all clientRecords) waiting() map[string][]waitingView {
	waiting := make(map[string][]waitingView)
	for id, r := range all {
		for _, e := range r.Entries {
			if e.What == record.Waits {
				waiting[e.Name] = append(waiting[e.Name], all.waits(id, e))
			}
		}
	}
	for _, clients := range waiting {
		slices.SortFunc(clients, byWait)
	}
	return waiting
}

func (all clientRecords) waits(id string, e record.Entry) waitingView {
	r := all[id]
	return waitingView{all.host(id), e.Purpose, e.Count, r.Age(e, r.rest).Milliseconds()}
}

func byWait(a, b waitingView) int {
	return cmp.Or(cmp.Compare(b.WaitedMS, a.WaitedMS), cmp.Compare(a.Client, b.Client))
}
