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
	foreign                         // Redisson's clients announce their releases and hear of ours; locks that poll only announce theirs
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
	inspectBoth                     // `rlock inspect` of read/write locks, which needs inspecting as well
)

// The users that docs/acl.md knows.
const (
	lockUser = locking | fencing | waking | foreign | probing | inspecting | recording
	readUser = inspecting | inspectBoth | listing | observing | watching
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
	{"+evalsha", locking | inspecting | recording, "run scripts, which every request does", "evalsha 0000000000000000000000000000000000000000 1 KEY"},
	{"+eval", locking | inspecting | recording, "run scripts, which every request does", "eval return 1 KEY"},
	{"+type", locking | inspecting | recording, "distinguish a lock from other data", "type KEY"},
	{"+hlen", locking, "distinguish a lock, which has one field, from other hashes", "hlen KEY"},
	{"+hgetall", locking | inspecting | observing, "read the holder", "hgetall KEY"},
	{"+hexists", locking, "check the holder, and unlock", "hexists KEY f"},
	{"+hset", locking | recording, "write the owner and the hold count, and set or renew the lease", "hset KEY f v odd"},
	{"+pttl", locking | inspecting | listing | observing | recording, "read the remaining lease", "pttl KEY"},
	{"+pexpire", locking | recording, "write the owner and the hold count, and set or renew the lease", "pexpire KEY 1"},
	{"+hdel", locking, "check the holder, and unlock", "hdel KEY f"},
	{"+del", locking | recording, "force-unlock, and remove a lock that cannot be given a lease", "del KEY"},
	{"+exists", locking, "check whether the lock is free and its queue empty", "exists KEY"},
	{"+time", locking | recording, "read the server's clock for hand-offs and tokens", "time"},
	{"+zadd", locking | recording, "read and change the queue of waiters", "zadd KEY xx 0 m"},
	{"+zrem", locking | recording, "read and change the queue of waiters", "zrem KEY m"},
	{"+zrange", locking | observing, "read the first and the last waiter", "zrange KEY 0 0"},
	{"+zscore", locking, "read the place of a waiter in the queue", "zscore KEY m"},
	{"+zcard", locking | recording, "read and change the queue of waiters", "zcard KEY"},
	{"+zcount", locking | inspecting, "count all waiters, or those ahead of one waiter", "zcount KEY 0 0"},
	{"+zrangebyscore", locking | recording, "read and change the queue of waiters", "zrangebyscore KEY 0 0"},
	{"+get", fencing | inspecting, "read the newest token", "get KEY"},
	{"+set", fencing | sharing, "write a token, or the hold of a reader", "set KEY v nx xx"},
	{"+incrby", fencing, "increment the token", "incrby KEY odd"},
	{"+publish", waking | foreign | sharing, "notify waiters, and send probes", "publish CHANNEL 0"},
	{"+subscribe", waking | foreign | probing | sharing, "receive messages while a call waits", "subscribe CHANNEL"},
	{"+unsubscribe", waking | foreign, "end the subscription after the wait, so that a release does not count the client as a waiter", "unsubscribe CHANNEL"},
	{"+pubsub|numsub", inspecting, "count subscribers, so that a release skips waiters that have died", "pubsub numsub CHANNEL"},
	{"+scan", listing, "iterate over the keys", "scan 0 count 1"},
	{"+hscan", listing | observing, "read the holders", "hscan KEY 0"},
	{"+hget", sharing | electing, "read a writer, or the owner of data next to a lock", "hget KEY f"},
	{"+hmget", sharing | electing | observing, "read the mode and holds of a read/write lock, or data next to a lock", "hmget KEY mode"},
	{"+hrandfield", sharing, "find another reader", "hrandfield KEY"},
	{"+select", database, "select a database other than 0", ""},  // or there is no connection
	{"+cluster|slots", clustered, "find the node of a slot", ""}, // likewise
	{"+asking", moving, "follow keys to another node while their slot moves", "asking"},
	{"+pubsub|shardnumsub", clustered | sharding, "detect sharded channels, and count subscribers", "pubsub shardnumsub"},
	{"+spublish", sharding, "notify waiters, and send probes", "spublish CHANNEL 0"},
	{"+ssubscribe", sharding, "receive messages while a call waits", "ssubscribe CHANNEL"},
	{"+sunsubscribe", sharding, "end the subscription after the wait, so that a release does not count the client as a waiter", "sunsubscribe CHANNEL"},
	{"+psubscribe", watching, "receive the releases of all locks", ""},
	{"+wait", replicating, "count the replicas that have the lock", "wait 0 1"},
}

// relatives are the keys and channels that belong to a lock, as rules; NAME is
// that of the lock, in braces unless it has a hash tag. Another kind of lock adds
// lines.
var relatives = []struct {
	rule  string
	needs feature
	why   string
}{
	{"~rlock_queue:NAME", locking | inspecting, "store the queue of waiters"},
	{"~redisson_lock_token:NAME", fencing | inspecting, "store the newest fencing token"},
	{"&rlock_channel:NAME:*", waking, "notify a client that it holds the lock"},
	{"&redisson_lock__channel:NAME", foreign | watching, "exchange messages about releases with Redisson"},
	{"~redisson_lock_queue:NAME", queueing, "detect a queue of Redisson"},
	{"~redisson_lock_timeout:NAME", queueing, "detect a queue of Redisson"},
	{"~rlock_rwqueue:NAME", sharing | inspectBoth, "store the queue of readers and writers"},
	{"~NAME:*", sharing, "store the leases of readers"},
	{"&rlock_rwchannel:NAME:*", sharing, "notify a client that it holds the lock"},
	{"~rlock_companion:NAME", electing | observing, "store data next to a lock: the leader, the claimed run, the result"},
	{"&redisson_rwlock:NAME", sharing | watching, "exchange messages about releases of read/write locks"},
}

// rightsFor returns all rights for locks whose keys match glob, of clients with a prefix.
func rightsFor(prefix, glob string) []right {
	rights := []right{{"~" + glob, locking | inspecting | listing | observing, "store the locks", useOf("~NAME")}}
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
		{"~" + aclGlob(record.Key(prefix, ""), "*"), recording | observing, "store the records of clients", useOf("~PREFIX" + record.Key("", "x"))},
		{"~" + aclGlob(record.List(prefix), ""), recording | observing, "store the list of clients that have a record", useOf("~PREFIX" + record.List(""))},
	} {
		add(r)
	}
	for _, probe := range []right{
		{"&redisson_lock__channel:{rlock-probe:*}", probing, "probe the subscription of a client", ""},
		{"&redisson_lock__channel:rlock-probe:*", sharding, "probe the subscription at a node by sharded channels", ""},
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
	for i, name := range []string{"lock", "fencing", "wake-up", "Redisson", "probe", "inspect", "ls", "database", "cluster", "fair", "read/write", "sharded", "replicas", "records", "top", "watch", "moving slot", "election", "inspect (read/write)"} {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
