package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/record"
)

// topView is what `rlock top` shows.
type topView struct {
	At      time.Time   `json:"at"`
	Clients []topClient `json:"clients"`
	Locks   []*topLock  `json:"locks"`
	Lost    []lossView  `json:"lost"`       // of the last half minute
	Dead    []deadlock  `json:"deadlocks"`  // that last
	Hot     []hotName   `json:"hot_names"`  // the worst first
	Groups  []hotGroup  `json:"hot_groups"` // of these names
	records clientRecords
}

// topClient is a client that has a record.
type topClient struct {
	hostView
	Started   time.Time `json:"started"`
	Acquired  int64     `json:"acquired"`
	PerSecond float64   `json:"acquired_per_second"`
	Losses    int64     `json:"losses"`
	LeftOut   int       `json:"left_out,omitempty"` // locks that the record has no room for
}

// topLock is a lock that a record names.
type topLock struct {
	Name    string        `json:"name"`
	Quoted  string        `json:"name_quoted,omitempty"` // see quoted
	Kind    string        `json:"kind,omitempty"`
	Holders []holderView  `json:"holders"` // as the server knows them; empty: free
	TTL     *int64        `json:"ttl_ms"`  // null: free, or no end
	Waiters int           `json:"waiters"` // calls, by the records
	Queued  *int64        `json:"queued,omitempty"`
	Waiting []waitingView `json:"waiting,omitempty"`
}

// holderView is an owner of a lock.
type holderView struct {
	Owner  string `json:"owner"`
	Quoted string `json:"owner_quoted,omitempty"` // see quoted
	hostView
	Purpose string `json:"purpose,omitempty"`
	HeldMS  *int64 `json:"held_ms,omitempty"` // not there: not for long, or not known
	KeptMS  *int64 `json:"kept_ms,omitempty"` // for so long its client has kept it, and nobody there holds it
}

// lossView is a loss that a record tells.
type lossView struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Cause   string `json:"cause"`
	Owner   string `json:"owner"`
	Purpose string `json:"purpose,omitempty"`
	AgoMS   int64  `json:"ago_ms"`
	hostView
	Quoted string `json:"name_quoted,omitempty"` // see quoted
}

// deadlock is one that a record tells of: calls that wait for each other's locks.
type deadlock struct {
	Name   string `json:"name"` // of the lock that the client waits for
	Cycle  string `json:"cycle"`
	WaitMS int64  `json:"waited_ms"`
	hostView
	Quoted string `json:"name_quoted,omitempty"` // see quoted
}

// held returns for how long the lock has been held, negative if that is not known.
func (l *topLock) held() (d time.Duration) {
	d = -1
	for _, h := range l.Holders {
		if h.HeldMS != nil {
			d = max(d, time.Duration(*h.HeldMS)*time.Millisecond)
		}
	}
	return d
}

// kept reports whether nobody holds the lock, although it has an owner.
func (l *topLock) kept() bool {
	return len(l.Holders) > 0 && !slices.ContainsFunc(l.Holders, func(h holderView) bool { return h.KeptMS == nil })
}

// rest returns what is left of the lease, negative if it has no end or there is none.
func (l *topLock) rest() time.Duration {
	if l.TTL == nil {
		return -1
	}
	return time.Duration(*l.TTL) * time.Millisecond
}

// rate returns how many locks the client of the first holder acquires in a second.
func (v *topView) rate(l *topLock) float64 {
	if len(l.Holders) == 0 || v.records[l.Holders[0].Client] == nil {
		return -1
	}
	return v.records[l.Holders[0].Client].PerSecond
}

// top reads the records, and the locks that they name and keep accepts, and also others, in
// no order.
func (s *server) top(ctx context.Context, keep func(name string) bool, also ...string) (*topView, error) {
	records, err := s.records(ctx)
	if err != nil {
		return nil, err
	}
	v := &topView{At: time.Now(), Clients: []topClient{}, Locks: []*topLock{}, Lost: []lossView{}, Dead: []deadlock{}, records: records}
	v.Hot = records.hotNames(keep)
	v.Groups = hotGroups(v.Hot)
	locks := make(map[string]*topLock)
	for id, r := range records {
		v.Clients = append(v.Clients, topClient{records.host(id), r.Started, r.Acquired, r.PerSecond, r.Rates.Lost, r.More})
		for _, e := range r.Entries {
			if keep(e.Name) {
				v.note(locks, id, e)
			}
		}
	}
	for _, name := range also {
		if locks[name] == nil {
			locks[name] = &topLock{Name: name, Quoted: quoted(name), Holders: []holderView{}}
		}
	}
	names := make([]*topLock, 0, len(locks))
	for _, l := range locks {
		slices.SortFunc(l.Waiting, byWait)
		names = append(names, l)
	}
	if err := s.readLocks(ctx, names, records); err != nil {
		return nil, err
	}
	for _, l := range names {
		if len(l.Holders)+l.Waiters > 0 { // or it was held when the record was written
			v.Locks = append(v.Locks, l)
		}
	}
	slices.SortFunc(v.Clients, func(a, b topClient) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Program, b.Program), cmp.Compare(a.Client, b.Client))
	})
	slices.SortFunc(v.Dead, func(a, b deadlock) int { return cmp.Or(cmp.Compare(b.WaitMS, a.WaitMS), cmp.Compare(a.Name, b.Name)) })
	slices.SortFunc(v.Lost, func(a, b lossView) int { return cmp.Or(cmp.Compare(a.AgoMS, b.AgoMS), cmp.Compare(a.Name, b.Name)) })
	return v, nil
}

// note adds what a client tells of a lock.
func (v *topView) note(locks map[string]*topLock, id string, e record.Entry) {
	if e.What == record.Lost {
		r := v.records[id]
		v.Lost = append(v.Lost, lossView{e.Name, e.Kind, e.Cause, e.Owner, e.Purpose, r.Age(e, r.rest).Milliseconds(), v.records.host(id), quoted(e.Name)})
		return
	}
	l := locks[e.Name]
	if l == nil {
		l = &topLock{Name: e.Name, Quoted: quoted(e.Name), Holders: []holderView{}}
		locks[e.Name] = l
	}
	if e.Cycle != "" {
		r, last := v.records[id], e
		for _, u := range e.Under { // e tells when the first call began
			if u.Since.After(last.Since) {
				last.Since = u.Since
			}
		}
		v.Dead = append(v.Dead, deadlock{e.Name, e.Cycle, r.Age(last, r.rest).Milliseconds(), v.records.host(id), quoted(e.Name)})
	}
	if e.What == record.Waits {
		l.Kind = cmp.Or(l.Kind, e.Kind)
		l.Waiters += e.Count
		l.Waiting = append(l.Waiting, v.records.waits(id, e))
	}
}

// readLocks reads who holds the locks, for how long still and, if somebody waits, how many
// have a place in the queue: a record may be ten seconds old. A key that is no lock is
// taken for a free one.
func (s *server) readLocks(ctx context.Context, locks []*topLock, records clientRecords) error {
	holds := records.holds()
	return inBatches(len(locks), func(from, to int) error {
		type reading struct {
			fields *redis.ScanCmd
			ttl    *redis.DurationCmd
			queued queues
		}
		pipe, readings := s.rdb.Pipeline(), make([]reading, to-from)
		for i, l := range locks[from:to] {
			key := s.prefix + l.Name
			readings[i] = reading{fields: pipe.HScan(ctx, key, 0, "", pageSize), ttl: pipe.PTTL(ctx, key)}
			if l.Waiters > 0 {
				readings[i].queued = countQueues(ctx, pipe, key)
			}
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		for i, l := range locks[from:to] {
			page, cursor, err := readings[i].fields.Result()
			if redis.HasErrorPrefix(err, "WRONGTYPE") {
				continue
			}
			if _, ok := parseHolds(page); ok && cursor != 0 {
				page, err = s.readOn(ctx, s.prefix+l.Name, page, cursor)
			}
			if err := cmp.Or(err, readings[i].ttl.Err()); err != nil {
				return err
			}
			l.hold(page, readings[i].ttl.Val(), records, holds)
			l.Queued = readings[i].queued.of(page)
		}
		return nil
	})
}

// readOn reads the rest of a hash that has more than a page: of a lock, many readers.
func (s *server) readOn(ctx context.Context, key string, read []string, cursor uint64) ([]string, error) {
	for cursor != 0 {
		page, next, err := s.rdb.HScan(ctx, key, cursor, "", pageSize).Result()
		if err != nil {
			return nil, err
		}
		read, cursor = append(read, page...), next
	}
	return read, nil
}

// hold notes the fields of a lock's key.
func (l *topLock) hold(page []string, ttl time.Duration, records clientRecords, holds map[holdKey]toldHold) {
	owners, ok := parseHolds(page)
	if !ok || ttl == -2 {
		return
	}
	if ttl >= 0 {
		l.TTL = new(ttl.Milliseconds())
	}
	for i := 0; i+1 < len(page); i += 2 {
		if page[i] == "mode" { // who waits may want it in the other way
			l.Kind = page[i+1]
		}
	}
	for field := range owners {
		owner := strings.TrimSuffix(field, ":write")
		if _, reads := owners[owner]; reads && field != owner { // a writer that reads as well
			continue
		}
		h := holderView{Owner: owner, Quoted: quoted(owner), hostView: records.host(clientOf(owner))}
		if told, ok := holds[holdKey{owner, l.Name}]; ok {
			l.Kind, h.Purpose = told.Kind, told.Purpose
			h.HeldMS, h.KeptMS = told.ages()
		}
		l.Holders = append(l.Holders, h)
	}
	slices.SortFunc(l.Holders, func(a, b holderView) int { return cmp.Compare(a.Owner, b.Owner) })
}
