package main

import (
	"slices"
	"strings"
	"unicode"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/lua"
)

// feature is what somebody who uses locks may want. All that has to do with
// holding one needs locking as well.
type feature uint

const (
	locking     feature = 1 << iota // lock, wait, nested lock, renewal, unlock, which passes the lock on, force-unlock
	fencing                         // tokens; `rlock run` always has them
	waking                          // who waits for a lock is told when it has it
	foreign                         // Redisson's clients, and locks that poll, tell of their releases and are told of ours
	probing                         // a subscription that has gone deaf is noticed although it answers PING
	inspecting                      // `rlock inspect`
	listing                         // `rlock ls`
	database                        // any but number 0
	clustered                       // any use of a cluster
	queueing                        // fair locks
	sharing                         // read/write locks
	sharding                        // waking and probing by sharded channels, on a cluster
	replicating                     // WithReplicas
	recording                       // a client says who it is, what it holds and waits for
	observing                       // `rlock top`, and what inspect and ls tell of clients
	watching                        // `rlock watch` hears releases
	moving                          // a lock whose slot moves to another node of a cluster
	electing                        // elections, jobs and shared results: data next to a lock
)

// The users that docs/acl.md knows.
const (
	lockUser = locking | fencing | waking | foreign | probing | inspecting | recording
	readUser = inspecting | listing | observing | watching
)

// right is an item of a user's ACL rules.
type right struct {
	item  string  // as ACL SETUSER takes it
	needs feature // each of which is broken without it
	why   string
	try   string // a use of it that changes nothing; KEY and CHANNEL are those of a lock that nobody has, NAME is the key of one in question, PREFIX that of all names
}

// commandRights are the commands that the library and this program send, and
// those that the scripts call, which the server checks one by one. TestRights
// proves every line: what it says is needed, and nothing else is. What fair and
// read/write locks need beside their own rows is in those of the others.
var commandRights = []right{
	{"+evalsha", locking | inspecting | recording, "runs a script by its hash, as every request does", "evalsha 0000000000000000000000000000000000000000 1 KEY"},
	{"+eval", locking | inspecting | recording, "sends a script that the server does not know yet", "eval return 1 KEY"},
	{"+type", locking | inspecting | recording, "distinguishes a lock from other data", "type KEY"},
	{"+hlen", locking, "the same: a lock has one field", "hlen KEY"},
	{"+hgetall", locking | inspecting | observing, "reads the holder", "hgetall KEY"},
	{"+hexists", locking, "checks the holder before a renewal or a nested lock", "hexists KEY f"},
	{"+hset", locking | recording, "writes the owner and the hold count", "hset KEY f v odd"},
	{"+pttl", locking | inspecting | listing | observing | recording, "reads the remaining lease", "pttl KEY"},
	{"+pexpire", locking | recording, "sets and renews the lease", "pexpire KEY 1"},
	{"+hdel", locking, "unlocks", "hdel KEY f"},
	{"+del", locking | recording, "force-unlocks; removes a lock that cannot be given a lease", "del KEY"},
	{"+exists", locking, "checks whether the lock is free, and its queue empty", "exists KEY"},
	{"+time", locking | recording, "hand-offs and tokens use the server's clock", "time"},
	{"+zadd", locking | recording, "adds a waiter to the queue", "zadd KEY xx 0 m"},
	{"+zrem", locking | recording, "removes a waiter from the queue", "zrem KEY m"},
	{"+zrange", locking | observing, "reads the first and the last waiter", "zrange KEY 0 0"},
	{"+zscore", locking, "reads the place of a waiter", "zscore KEY m"},
	{"+zcard", locking | recording, "checks whether the queue is empty", "zcard KEY"},
	{"+zcount", locking | inspecting, "counts waiters, and those ahead of one", "zcount KEY 0 0"},
	{"+zrangebyscore", locking | recording, "reads the waiters behind the first while Redisson holds the lock", "zrangebyscore KEY 0 0"},
	{"+get", fencing | inspecting, "reads the newest token", "get KEY"},
	{"+set", fencing | sharing, "writes a token, or a read hold", "set KEY v nx xx"},
	{"+incrby", fencing, "increments the token", "incrby KEY odd"},
	{"+publish", waking | foreign | sharing, "notifies waiters; probes the subscription", "publish CHANNEL 0"},
	{"+subscribe", waking | foreign | probing | sharing, "receives messages while waiting", "subscribe CHANNEL"},
	{"+unsubscribe", waking | foreign, "ends the subscription, so that unlock no longer counts the waiter", "unsubscribe CHANNEL"},
	{"+pubsub|numsub", inspecting, "counts subscribers; without it, unlock takes a dead waiter for a live one", "pubsub numsub CHANNEL"},
	{"+scan", listing, "iterates over the keys", "scan 0 count 1"},
	{"+hscan", listing | observing, "reads the holders", "hscan KEY 0"},
	{"+hget", sharing | electing, "reads a writer, or whose the data next to a lock is", "hget KEY f"},
	{"+hmget", sharing | electing | observing, "reads mode and holds, or data next to a lock", "hmget KEY mode"},
	{"+hrandfield", sharing, "finds another reader", "hrandfield KEY"},
	{"+select", database, "selects a database other than 0", ""},  // or there is no connection
	{"+cluster|slots", clustered, "finds the node of a slot", ""}, // likewise
	{"+asking", moving, "follows keys to another node while their slot moves", "asking"},
	{"+pubsub|shardnumsub", clustered | sharding, "detects sharded channels, and counts subscribers", "pubsub shardnumsub"},
	{"+spublish", sharding, "notifies waiters; probes the subscription", "spublish CHANNEL 0"},
	{"+ssubscribe", sharding, "receives messages while waiting", "ssubscribe CHANNEL"},
	{"+sunsubscribe", sharding, "ends the subscription, so that unlock no longer counts the waiter", "sunsubscribe CHANNEL"},
	{"+psubscribe", watching, "receives the releases of all locks", ""},
	{"+wait", replicating, "counts the replicas that have the lock", "wait 0 1"},
}

// relatives are the keys and channels that belong to a lock, as rules; NAME is
// that of the lock, in braces unless it has a hash tag. Another kind of lock adds
// lines.
var relatives = []struct {
	rule  string
	needs feature
	why   string
}{
	{"~rlock_queue:NAME", locking | inspecting, "waiters"},
	{"~redisson_lock_token:NAME", fencing | inspecting, "fencing tokens"},
	{"&rlock_channel:NAME:*", waking, "a channel per client: notifies it that it holds the lock"},
	{"&redisson_lock__channel:NAME", foreign | watching, "unlock messages from and for Redisson"},
	{"~redisson_lock_queue:NAME", queueing, "detects a queue of Redisson"},
	{"~redisson_lock_timeout:NAME", queueing, "the same"},
	{"~rlock_rwqueue:NAME", sharing, "waiting readers and writers"},
	{"~NAME:*", sharing, "leases of readers"},
	{"&rlock_rwchannel:NAME:*", sharing, "a channel per client: notifies it that it holds the lock"},
	{"~rlock_companion:NAME", electing | observing, "data next to a lock: the leader, the claimed run, the result"},
	{"&redisson_rwlock:NAME", sharing | watching, "unlock messages of read/write locks"},
}

// rightsFor returns all rights for locks whose keys match glob, of clients with a prefix.
func rightsFor(prefix, glob string) []right {
	rights := []right{{"~" + glob, locking | inspecting | listing | observing, "the locks", useOf("~NAME")}}
	add := func(r right) {
		if covers("~"+glob, r.item) {
			rights[0].needs |= r.needs
		} else {
			rights = append(rights, r)
		}
	}
	for _, r := range relatives {
		as := func(name, why string) right {
			rule := strings.Replace(r.rule, "NAME", strings.Replace(name, "NAME", glob, 1), 1)
			if strings.HasSuffix(rule, "*:*") && !strings.HasSuffix(rule, `\*:*`) {
				rule = strings.TrimSuffix(rule, ":*")
			}
			return right{rule, r.needs, why, useOf(strings.Replace(r.rule, "NAME", name, 1))}
		}
		switch {
		case glob == "*", strings.Contains(glob, "{"):
			apart := strings.Contains(r.rule, "rlock_") && lua.Own("", glob) != lua.Related("", glob) // see lua.Own
			if !apart || wild(glob) {
				add(as("NAME", r.why))
			}
			if apart {
				add(as("NAME:", r.why))
			}
		case wild(glob):
			add(as("{NAME}", r.why))
			add(as("NAME", r.why)) // for names with a hash tag
		default:
			add(as("{NAME}", r.why))
		}
	}
	for _, r := range []right{
		{"~" + aclGlob(record.Key(prefix, ""), "*"), recording | observing, "records of clients: what they hold and wait for", useOf("~PREFIX" + record.Key("", "x"))},
		{"~" + aclGlob(record.List(prefix), ""), recording | observing, "the list of clients", useOf("~PREFIX" + record.List(""))},
	} {
		add(r)
	}
	for _, probe := range []right{
		{"&redisson_lock__channel:{rlock-probe:*}", probing, "a channel per client, for probes", ""},
		{"&redisson_lock__channel:rlock-probe:*", sharding, "a channel per node, for probes by sharded channels", ""},
	} {
		covering := slices.IndexFunc(rights, func(r right) bool { return r.item == "&redisson_lock__channel:*" })
		if covering >= 0 {
			rights[covering].needs |= probe.needs
			continue
		}
		probe.try = useOf(probe.item)
		rights = append(rights, probe)
	}
	return append(rights, commandRights...)
}

// covers reports whether a rule that ends in a star permits what another does.
func covers(rule, other string) bool {
	begin, open := strings.CutSuffix(rule, "*")
	return open && !strings.HasSuffix(begin, `\`) && strings.HasPrefix(other, begin)
}

// useOf tells how to try the right to a key or channel: HSET fails, as a value is
// missing, and a message only makes its receivers look at the lock.
func useOf(rule string) string {
	name := strings.ReplaceAll(rule[1:], "*", "x")
	if rule[0] == '&' {
		return "publish " + name + " 0"
	}
	return "hset " + name + " f v odd"
}

// wild reports whether a glob matches more than one name.
func wild(glob string) bool {
	return strings.ContainsAny(strings.NewReplacer(`\\`, "", `\*`, "", `\?`, "", `\[`, "").Replace(glob), "*?[")
}

// aclLine returns the command that makes a user who may do what f needs, on
// locks whose keys match glob, of clients with that prefix, and nothing else.
func aclLine(user, prefix, glob string, f feature) string {
	return "ACL SETUSER " + user + " reset resetchannels on >PASSWORD " + aclItems(prefix, glob, f)
}

// aclItems returns the rules for what f needs.
func aclItems(prefix, glob string, f feature) string {
	var items []string
	for _, r := range rightsFor(prefix, glob) {
		if f&r.needs != 0 {
			items = append(items, r.item)
		}
	}
	return strings.Join(items, " ")
}

// aclGlob returns an ACL pattern for the keys that a prefix and a glob of names
// describe. A pattern cannot contain spaces, and quotes would be redis-cli's: a
// question mark stands for each.
func aclGlob(prefix, glob string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) || r == '"' || r == '\'' {
			return '?'
		}
		return r
	}, escapeGlob(prefix)+glob)
}

// String lists the names of the features.
func (f feature) String() string {
	var names []string
	for i, name := range []string{"lock", "fencing", "wake-up", "Redisson", "probe", "inspect", "ls", "database", "cluster", "fair", "read/write", "sharded", "replicas", "records", "top", "watch", "moving slot", "election"} {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
