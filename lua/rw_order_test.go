package lua_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

var (
	orders     = flag.Int("orders", 60, "random runs of TestReadWriteInAnyOrder")
	firstOrder = flag.Int64("first-order", 0, "seed of the first run")
)

// rwTicket is a member of the queue of a read/write lock.
type rwTicket struct {
	owner  string
	shared bool
	how    lua.Hearing
	called bool // after a lapse, and its client has not asked since
}

// rwState is what the server has of a read/write lock. Names are short.
type rwState struct {
	fields  map[string]string
	holds   map[string]bool // keys
	tickets []rwTicket
	record  string // owner of the newest grant by the queue
}

func (s rwState) mode() string { return s.fields["mode"] }

// holders returns the fields of owners.
func (s rwState) holders() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.fields)), func(f string) bool { return f == "mode" })
}

func (s rwState) waits(owner string) bool {
	return slices.ContainsFunc(s.tickets, func(t rwTicket) bool { return t.owner == owner })
}

func (s rwState) holdsIt(owner string) bool {
	return s.fields[owner] != "" || s.fields[owner+":write"] != ""
}

func (s rwState) String() string {
	return fmt.Sprint(s.fields, " holds ", slices.Sorted(maps.Keys(s.holds)), " tickets ", s.tickets)
}

// rwOrder is a random run: four clients, Redisson's in every third run, and requests that arrive
// again and late.
type rwOrder struct {
	t     *testing.T
	r     *rand.Rand
	rdb   *redis.Client
	lock  func(owner string) lua.RW
	subs  map[string]*redis.PubSub // by client; Redisson's is "redisson"
	heard map[string]func() []string

	n      int
	sent   []rwOrderRequest
	lapsed map[string]bool // fields of readers whose leases the run has ended
	passed map[string]int  // by ticket: so many batches have passed it
	log    []string
}

type rwOrderRequest struct {
	script        string
	owner         string
	shared        bool
	ticket        lua.Ticket
	tickets       []string
	writes, reads int
}

func (o *rwOrder) fail(format string, args ...any) {
	o.t.Helper()
	o.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(o.log[max(0, len(o.log)-12):], "\n"))
}

func (o *rwOrder) hear(client string) {
	channel := lua.UnlockChannelRW("lock")
	if client != "redisson" {
		channel = lua.GrantChannelRW("lock", strings.Repeat(client, 20))
	}
	o.subs[client], o.heard[client] = subscribe(o.t, o.rdb, channel, false)
}

func (o *rwOrder) deafen(client string) {
	require.NoError(o.t, o.subs[client].Close())
	channel := lua.UnlockChannelRW("lock")
	if client != "redisson" {
		channel = lua.GrantChannelRW("lock", strings.Repeat(client, 20))
	}
	for o.rdb.PubSubNumSub(context.Background(), channel).Val()[channel] > 0 {
		time.Sleep(time.Millisecond)
	}
	delete(o.subs, client)
	delete(o.heard, client)
}

func (o *rwOrder) look() rwState {
	ctx := context.Background()
	s := rwState{fields: make(map[string]string), holds: make(map[string]bool)}
	for field, value := range o.rdb.HGetAll(ctx, "lock").Val() {
		s.fields[shorten(field)] = value
	}
	for _, key := range o.rdb.Keys(ctx, "{lock}:*").Val() {
		s.holds[shorten(strings.TrimPrefix(key, "{lock}:"))] = true
	}
	for _, z := range o.rdb.ZRangeWithScores(ctx, lua.QueueOfRW("lock"), 0, -1).Val() {
		n, member := int64(z.Score), z.Member.(string)
		if isRecord(member) {
			if s.record != "" || len(s.tickets) > 0 {
				o.fail("a second record, or one behind a ticket")
			}
			s.record = shorten(strings.Trim(member, "!:"))
			continue
		}
		s.tickets = append(s.tickets, rwTicket{shorten(member), n/32768%2 == 1, lua.Hearing(n % 4), n/4%8192 == 400})
	}
	return s
}

// deliver sends a request. It returns whether the server did it, and the lines for the own client.
func (o *rwOrder) deliver(r rwOrderRequest) (done bool, reply lua.Reply, message string) {
	ctx, g := context.Background(), o.lock(own(r.owner))
	var released lua.Released
	var err error
	switch r.script {
	case "ask":
		g.Shared = r.shared
		reply, err = lua.AskRW(ctx, o.rdb, g, time.Minute, r.ticket)
		done = reply.Acquired
	case "release":
		var e lua.Ending
		for _, ticket := range r.tickets {
			e.Tickets = append(e.Tickets, own(ticket))
		}
		released, err = lua.ReleaseRW(ctx, o.rdb, g, e)
		done = err == nil
	case "count":
		released, err = lua.CountRW(ctx, o.rdb, g, time.Minute, r.writes, r.reads)
		done = err == nil
	}
	if err != nil && err != lua.ErrNotOwner { //nolint:errorlint // it is not wrapped
		o.fail("%+v: %v", r, err)
	}
	return done, reply, released.Message
}

// settled returns the clients whose tickets a request may take out, as a grant has lapsed: that of the grant,
// and those that were called by the lapse before and have not asked since.
func (s rwState) settled(r rwOrderRequest) (gone map[string]bool) {
	if s.record == "" || clientOf(s.record) == clientOf(r.owner) {
		return nil
	}
	gone = make(map[string]bool)
	for _, t := range s.tickets {
		if called, ok := gone[clientOf(t.owner)]; t.called && (called || !ok) {
			gone[clientOf(t.owner)] = true
		} else {
			gone[clientOf(t.owner)] = false
		}
	}
	gone[clientOf(s.record)], gone[clientOf(r.owner)] = true, false
	return gone
}

// told returns who was granted the lock by messages, and who is to ask. A client gets one message at
// most, besides the call to all of its waiters after a lapse.
func (o *rwOrder) told(r rwOrderRequest, before rwState, answer string) (granted, prompted []string) {
	var payloads []string
	for client, heard := range o.heard {
		messages := heard()
		if client == "redisson" {
			continue
		}
		if i := slices.Index(messages, lua.Everybody); i >= 0 {
			messages = slices.Delete(messages, i, i+1)
			for _, t := range before.tickets {
				if clientOf(t.owner) == client {
					prompted = append(prompted, t.owner)
				}
			}
		}
		if len(messages) > 1 {
			o.fail("client %s got several messages: %q", client, messages)
		}
		for _, m := range messages {
			payloads = append(payloads, m)
			if clientOf(shorten(m)) != client {
				o.fail("client %s heard %q", client, m)
			}
		}
	}
	if answer != "" {
		payloads = append(payloads, answer)
		if clientOf(shorten(answer)) != clientOf(r.owner) {
			o.fail("%s was answered %q", r.owner, answer)
		}
	}
	for _, payload := range payloads {
		for m := range lua.ReadMessages(payload) {
			if m.Granted {
				granted = append(granted, shorten(m.Owner))
			} else {
				prompted = append(prompted, shorten(m.Owner))
			}
		}
	}
	return granted, prompted
}

func (o *rwOrder) hears(owner string) bool { return o.subs[clientOf(owner)] != nil }

// lengthen makes short leases longer. Those of 400 ms, after a lapse, would end by themselves on a busy machine, and here a
// lease ends only where the test ends it.
func (o *rwOrder) lengthen() {
	ctx := context.Background()
	for _, key := range append(o.rdb.Keys(ctx, "{lock}:*").Val(), "lock") {
		if ttl := o.rdb.PTTL(ctx, key).Val(); ttl > 0 && ttl < time.Minute {
			o.rdb.PExpire(ctx, key, time.Minute)
		}
	}
}

// step delivers a request and checks what it has done.
func (o *rwOrder) step(r rwOrderRequest, again bool) {
	o.lengthen()
	before := o.look()
	done, reply, answer := o.deliver(r)
	after := o.look()
	granted, prompted := o.told(r, before, answer)
	o.log = append(o.log, fmt.Sprintf("%+v\n    before %v\n    done %v %+v, granted %v, prompted %v, Redisson listens %v\n    after  %v",
		r, before, done, reply, granted, prompted, o.subs["redisson"] != nil, after))
	acquired := r.script == "ask" && done && !before.holdsIt(r.owner)
	o.shape(r, done, before, after)

	// Whoever holds it anew had a ticket and was told, once. Of those who are believed to hear some do not.
	var fresh []string
	for _, field := range after.holders() {
		owner := strings.TrimSuffix(field, ":write")
		if before.fields[field] != "" || r.script == "count" && owner == r.owner {
			continue
		}
		fresh = append(fresh, owner)
		i := slices.IndexFunc(before.tickets, func(t rwTicket) bool { return t.owner == owner })
		if i >= 0 && before.tickets[i].how%2 == 0 && !o.hears(owner) && owner != r.owner && !slices.Contains(granted, owner) {
			granted = append(granted, owner)
		}
	}
	news := slices.Clone(granted)
	if acquired {
		news = append(news, r.owner)
	}
	slices.Sort(fresh)
	slices.Sort(news)
	if !slices.Equal(fresh, news) {
		o.fail("%v hold it anew, %v know", fresh, news)
	}
	for _, owner := range granted {
		if !before.waits(owner) {
			o.fail("%s was granted it without a ticket", owner)
		}
	}
	for _, field := range after.holders() {
		if owner := strings.TrimSuffix(field, ":write"); after.waits(owner) {
			o.fail("%s holds it and has a ticket", owner)
		}
	}
	if r.script == "release" && (after.holdsIt(r.owner) || after.waits(r.owner)) {
		o.fail("a released owner has the lock, or a ticket")
	}
	if r.script == "release" && after.record == r.owner {
		o.fail("the grant of a released owner counts as lapsed later")
	}
	o.order(r, acquired, before, after, news)

	// Redisson's clients get their chance: nothing that was freed is granted.
	if o.subs["redisson"] != nil && len(granted) > 0 && r.script != "ask" && after.mode() != before.mode() {
		o.fail("granted to %v although Redisson listens", granted)
	}
	o.awake(r, done, before, after, prompted)
	if again && o.subs["redisson"] == nil { // at once: it changes nothing
		o.deliver(r)
		third := o.look()
		for _, s := range []*rwState{&after, &third} { // the answer to a release may have reached a client that is not subscribed
			s.tickets = slices.DeleteFunc(s.tickets, func(t rwTicket) bool { return t.how%2 == 1 && !o.hears(t.owner) })
		}
		if granted, _ := o.told(r, after, ""); third.String() != after.String() || len(granted) > 0 {
			o.fail("repeated: granted %v, %v", granted, third)
		}
	}
}

// shape checks that the data is that of Redisson, one writer or readers, and nothing without end.
func (o *rwOrder) shape(r rwOrderRequest, done bool, before, after rwState) {
	for field := range o.lapsed {
		owner := strings.TrimSuffix(field, ":write")
		if after.fields[field] == "" || before.fields[field] == "" || done && owner == r.owner && r.script != "release" {
			delete(o.lapsed, field)
		}
	}
	writers, owners, holds := 0, make(map[string]bool), make(map[string]bool)
	for _, field := range after.holders() {
		owner, writes := strings.CutSuffix(field, ":write")
		owners[owner] = true
		if writes {
			writers++
			continue
		}
		n, err := strconv.Atoi(after.fields[field])
		require.NoError(o.t, err)
		for i := range n {
			if !o.lapsed[field] {
				holds[fmt.Sprintf("%s:rwlock_timeout:%d", owner, i+1)] = true
			}
		}
	}
	switch mode := after.mode(); {
	case mode == "write" && (writers != 1 || len(owners) != 1), mode == "read" && (writers != 0 || len(owners) == 0), mode == "" && len(owners) > 0:
		o.fail("not one writer, and not readers only")
	}
	for key := range after.holds { // Redisson's readers may leave keys of their own
		if owner, _, _ := strings.Cut(key, ":rwlock_timeout"); !owners[owner] && strings.HasPrefix(owner, "redisson") {
			delete(after.holds, key)
		}
	}
	if !maps.Equal(holds, after.holds) {
		o.fail("read holds %v, wanted %v", slices.Sorted(maps.Keys(after.holds)), slices.Sorted(maps.Keys(holds)))
	}
	ctx := context.Background()
	if len(after.fields) > 0 && o.rdb.PTTL(ctx, "lock").Val() <= 0 || len(after.tickets) > 0 && o.rdb.PTTL(ctx, lua.QueueOfRW("lock")).Val() <= 0 {
		o.fail("without TTL")
	}
}

// order checks that no ticket is lost or changes its place, and which tickets the granted ones have
// passed: a batch of readers that begins passes writers, once.
func (o *rwOrder) order(r rwOrderRequest, acquired bool, before, after rwState, news []string) {
	var kept []string
	gone := before.settled(r)
	for i, t := range before.tickets {
		if after.waits(t.owner) {
			kept = append(kept, t.owner)
		} else if gone[clientOf(t.owner)] {
			continue
		} else if !slices.Contains(news, t.owner) && t.owner != r.owner && !slices.Contains(r.tickets, t.owner) && (t.how%2 == 0 || o.hears(t.owner)) {
			o.fail("the ticket of %s was lost", t.owner)
		}
		if !slices.Contains(news, t.owner) {
			continue
		}
		begins := r.script == "count" || !slices.ContainsFunc(before.holders(), func(f string) bool { return after.fields[f] != "" })
		for _, other := range before.tickets[:i] {
			if after.waits(other.owner) && !(t.shared && !other.shared && begins) {
				o.fail("%s has passed %s", t.owner, other.owner)
			}
		}
	}
	for i, owner := range kept {
		if after.tickets[i].owner != owner {
			o.fail("the order has changed")
		}
	}
	if acquired && !before.waits(r.owner) && slices.ContainsFunc(after.tickets, func(t rwTicket) bool { return !r.shared || !t.shared }) {
		begun := slices.ContainsFunc(before.tickets, func(t rwTicket) bool { return slices.Contains(news, t.owner) })
		if !r.shared || !begun {
			o.fail("%s came last and has it", r.owner)
		}
	}
	for i, t := range after.tickets {
		if i >= len(kept) {
			delete(o.passed, t.owner) // it is new
			continue
		}
		place := slices.IndexFunc(before.tickets, func(b rwTicket) bool { return b.owner == t.owner })
		later := func(b rwTicket) bool { return slices.Contains(news, b.owner) }
		if slices.ContainsFunc(before.tickets[place:], later) || acquired && !before.waits(r.owner) {
			if o.passed[t.owner]++; o.passed[t.owner] > 1 {
				o.fail("%s was passed by a second batch", t.owner)
			}
		}
	}
}

// awake checks that nobody sleeps beside a lock that is free for the first ticket.
func (o *rwOrder) awake(r rwOrderRequest, done bool, before, after rwState, prompted []string) {
	effective := r.script == "release" || r.script == "ask" && !(done && before.holdsIt(r.owner)) || r.script == "count" && done && r.writes == 0 && before.mode() == "write"
	if !effective || len(after.tickets) == 0 {
		return
	}
	head := after.tickets[0]
	if r.script == "ask" && after.mode() == "read" && len(after.holds) == 0 {
		o.fail("the dead keep it")
	}
	if o.subs["redisson"] == nil && after.mode() == "read" && head.how%2 == 1 && !o.hears(head.owner) && clientOf(head.owner) != clientOf(r.owner) && before.waits(head.owner) {
		o.fail("a ticket of a dead client keeps others out")
	}
	sleeps := func(t rwTicket) bool { return o.hears(t.owner) && !slices.Contains(prompted, t.owner) }
	if after.mode() == "" || after.mode() == "read" && head.shared {
		if sleeps(head) {
			o.fail("the lock admits %s, which sleeps", head.owner)
		}
		for _, t := range after.tickets[1:] {
			if !head.shared || !t.shared {
				break
			}
			if sleeps(t) {
				o.fail("reader %s sleeps", t.owner)
			}
		}
	}
	if r.script == "release" && done && after.mode() == "read" && sleeps(head) && !slices.ContainsFunc(after.holders(), func(f string) bool { return !strings.HasPrefix(f, "redisson") || o.lapsed[f] }) {
		o.fail("Redisson's readers are left, which will not tell %s", head.owner)
	}
}

// Whatever is delivered, in whatever order, repeated or late, while clients come and go, leases end
// and the queue is lost: there is one writer or there are readers, whoever holds the lock anew had a
// ticket and was told once, the order is that of the tickets, one batch of readers at most passes a
// ticket, and nobody sleeps beside a lock that is free for the first ticket.
func TestReadWriteInAnyOrder(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t, patient)
	for seed := *firstOrder; seed < *firstOrder+int64(*orders); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			require.NoError(t, rdb.FlushAll(t.Context()).Err())
			o := &rwOrder{t: t, r: rand.New(rand.NewSource(seed)), rdb: rdb, lock: rw, subs: make(map[string]*redis.PubSub), heard: make(map[string]func() []string), lapsed: make(map[string]bool), passed: make(map[string]int)}
			if seed%2 == 1 {
				o.lock = func(owner string) lua.RW {
					g := rw(owner)
					g.Counter = "redisson_lock_token:{lock}"
					return g
				}
			}
			defer func() {
				for client := range o.subs {
					o.deafen(client)
				}
			}()
			for _, client := range []string{"a", "b", "c", "d"} {
				o.hear(client)
			}
			for range 150 {
				o.event(seed%3 == 2)
			}
		})
	}
}

func (o *rwOrder) event(redisson bool) {
	r, now, ctx := o.r, o.look(), context.Background()
	client := string("abcd"[r.Intn(4)])
	again := r.Intn(4) == 0
	var mine []string
	for _, field := range now.holders() {
		if owner := strings.TrimSuffix(field, ":write"); !strings.HasPrefix(owner, "redisson") && !slices.Contains(mine, owner) {
			mine = append(mine, owner)
		}
	}
	send := func(q rwOrderRequest) {
		o.sent = append(o.sent, q)
		o.step(q, again)
	}
	switch x := r.Intn(100); {
	case x < 38 || len(o.sent) == 0: // a new owner asks
		o.n++
		q := rwOrderRequest{script: "ask", owner: fmt.Sprintf("%s:%d", client, o.n), shared: r.Intn(5) > 1, ticket: lua.Ticket{Claim: claim, Hears: lua.Counted}}
		switch r.Intn(10) {
		case 0:
			q.ticket = lua.Ticket{}
		case 1:
			q.ticket.Hears = lua.Deaf
		case 2:
			q.ticket.Hears = lua.Uncounted
		}
		send(q)
	case x < 66 && len(mine) > 0: // a holder releases
		send(rwOrderRequest{script: "release", owner: mine[r.Intn(len(mine))]})
	case x < 72 && len(mine) > 0: // a holder nests, or becomes a reader
		q := rwOrderRequest{script: "count", owner: mine[r.Intn(len(mine))], writes: r.Intn(3), reads: 1 + r.Intn(2)}
		if now.mode() == "read" {
			q.writes = 0
		}
		send(q)
		delete(o.lapsed, q.owner)
	case x < 76: // somebody asks again, or gives up, also for another ticket
		q := o.sent[r.Intn(len(o.sent))]
		if r.Intn(2) == 0 {
			q = rwOrderRequest{script: "release", owner: q.owner}
			if other := o.sent[r.Intn(len(o.sent))].owner; r.Intn(2) == 0 && !now.holdsIt(other) {
				q.tickets = []string{other}
			}
		} else if o.lapsed[q.owner] {
			return
		}
		send(q)
	case x < 86: // an old request arrives
		q := o.sent[r.Intn(len(o.sent))]
		if o.lapsed[q.owner] && q.script != "release" || q.tickets != nil {
			return // it would revive the hold, as a renewal does
		}
		o.step(q, false)
	case x < 90 && len(now.holders()) > 0: // a lease ends
		field := now.holders()[r.Intn(len(now.holders()))]
		owner, writes := strings.CutSuffix(field, ":write")
		o.log = append(o.log, "the lease of "+field+" ends")
		if now.mode() == "write" != writes {
			return
		}
		for n := range 3 {
			require.NoError(o.t, o.rdb.Del(ctx, holdKey(own(owner), n+1)).Err())
		}
		if o.lapsed[field] = true; len(now.holders()) == 1 || writes {
			require.NoError(o.t, o.rdb.Del(ctx, "lock").Err())
			delete(o.lapsed, field)
		}
	case x < 92: // a client goes or comes
		o.log = append(o.log, "client "+client)
		if o.subs[client] != nil {
			o.deafen(client)
		} else {
			o.hear(client)
		}
	case x == 92 && r.Intn(3) == 0:
		o.log = append(o.log, "the queue is lost")
		require.NoError(o.t, o.rdb.Del(ctx, lua.QueueOfRW("lock")).Err())
	case redisson && x < 95:
		if o.subs["redisson"] != nil {
			o.deafen("redisson")
		} else {
			o.hear("redisson")
		}
	case redisson:
		o.redisson(now)
	}
}

// redisson makes a request of an owner of Redisson's.
func (o *rwOrder) redisson(now rwState) {
	owner := fmt.Sprintf("redisson-%d:1", o.r.Intn(3))
	if o.lapsed[owner] {
		return
	}
	name := []string{"read", "write", "unread", "unwrite"}[o.r.Intn(4)]
	switch {
	case now.fields[owner] != "":
		name = "unread"
	case now.fields[owner+":write"] != "":
		name = "unwrite"
	}
	keys := []string{"lock", lua.UnlockChannelRW("lock")}
	err := redissons[name].Run(context.Background(), o.rdb, keys, 60000, owner, "{lock}:"+owner+":rwlock_timeout", "{lock}:").Err()
	require.True(o.t, err == nil || err == redis.Nil, "%v", err) //nolint:errorlint // it is not wrapped
	for _, heard := range o.heard {
		heard()
	}
	after := o.look()
	o.log = append(o.log, fmt.Sprintf("Redisson's %s %s\n    after  %v", owner, name, after))
	for field := range o.lapsed {
		if after.fields[field] == "" {
			delete(o.lapsed, field)
		}
	}
}

// redissons are Redisson's scripts in own words, without the latch of an unlock.
var redissons = map[string]*redis.Script{
	"read": redis.NewScript(`
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
    redis.call('hset', KEYS[1], 'mode', 'read', ARGV[2], 1)
    redis.call('set', ARGV[3] .. ':1', 1, 'px', ARGV[1])
    return redis.call('pexpire', KEYS[1], ARGV[1])
elseif mode == 'read' then
    local n = redis.call('hincrby', KEYS[1], ARGV[2], 1)
    redis.call('set', ARGV[3] .. ':' .. n, 1, 'px', ARGV[1])
    redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1]))
end
`),
	"write": redis.NewScript(`
if redis.call('exists', KEYS[1]) == 0 then
    redis.call('hset', KEYS[1], 'mode', 'write', ARGV[2] .. ':write', 1)
    redis.call('pexpire', KEYS[1], ARGV[1])
end
`),
	"unread": redis.NewScript(`
if redis.call('exists', KEYS[1]) == 0 then
    return redis.call('publish', KEYS[2], 0)
elseif redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
    return
end
local n = redis.call('hincrby', KEYS[1], ARGV[2], -1)
if n == 0 then
    redis.call('hdel', KEYS[1], ARGV[2])
end
redis.call('del', ARGV[3] .. ':' .. (n + 1))
if redis.call('hlen', KEYS[1]) > 1 then
    local most = -3
    for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
        for i = tonumber(redis.call('hget', KEYS[1], field)) or 0, 1, -1 do
            most = math.max(redis.call('pttl', ARGV[4] .. field .. ':rwlock_timeout:' .. i), most)
        end
    end
    if most > 0 then
        return redis.call('pexpire', KEYS[1], most)
    end
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], 0)
`),
	"unwrite": redis.NewScript(`
if redis.call('exists', KEYS[1]) == 0 then
    return redis.call('publish', KEYS[2], 1)
elseif redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 0 then
    return
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], 1)
`),
}
