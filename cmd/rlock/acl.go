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
	{"+evalsha", locking | inspecting | recording, "every request is a script, named by its hash", "evalsha 0000000000000000000000000000000000000000 1 KEY"},
	{"+eval", locking | inspecting | recording, "sends the script itself to a server that does not know it yet", "eval return 1 KEY"},
	{"+type", locking | inspecting | recording, "tells a lock from an application's key", "type KEY"},
	{"+hlen", locking, "likewise: a lock has one field", "hlen KEY"},
	{"+hgetall", locking | inspecting | observing, "the holder", "hgetall KEY"},
	{"+hexists", locking, "is it still the holder, before renewal and nesting", "hexists KEY f"},
	{"+hset", locking | recording, "the hold count", "hset KEY f v odd"},
	{"+pttl", locking | inspecting | listing | observing | recording, "what is left of the lease", "pttl KEY"},
	{"+pexpire", locking | recording, "the lease, and its renewal", "pexpire KEY 1"},
	{"+hdel", locking, "unlock", "hdel KEY f"},
	{"+del", locking | recording, "forced unlock; takes a lock back that could not be given a lease", "del KEY"},
	{"+exists", locking, "does anybody queue, is the lock free", "exists KEY"},
	{"+time", locking | recording, "when a lock was passed on; tokens follow the server's clock", "time"},
	{"+zadd", locking | recording, "a waiter takes a place in the queue", "zadd KEY xx 0 m"},
	{"+zrem", locking | recording, "gives it up, or gets the lock", "zrem KEY m"},
	{"+zrange", locking | observing, "who is next, who is last", "zrange KEY 0 0"},
	{"+zscore", locking, "where a waiter stands", "zscore KEY m"},
	{"+zcard", locking | recording, "does anybody queue", "zcard KEY"},
	{"+zcount", locking | inspecting, "is anybody before a waiter; how many wait", "zcount KEY 0 0"},
	{"+zrangebyscore", locking | recording, "who is behind the first, while Redisson holds the lock", "zrangebyscore KEY 0 0"},
	{"+get", fencing | inspecting, "the newest token", "get KEY"},
	{"+set", fencing | sharing, "the next token; a read hold", "set KEY v nx xx"},
	{"+incrby", fencing, "the tokens after it", "incrby KEY odd"},
	{"+publish", waking | foreign | sharing, "unlock tells the next that it has the lock, or everybody; probes of the subscription", "publish CHANNEL 0"},
	{"+subscribe", waking | foreign | probing | sharing, "waiters listen", "subscribe CHANNEL"},
	{"+unsubscribe", waking | foreign, "who has stopped to wait is not counted any longer", "unsubscribe CHANNEL"},
	{"+pubsub|numsub", inspecting, "how many connections wait; unlock asks as well, and does without: it takes a dead waiter for one that listens", "pubsub numsub CHANNEL"},
	{"+scan", listing, "goes through the keys", "scan 0 count 1"},
	{"+hscan", listing | observing, "reads the holders", "hscan KEY 0"},
	{"+hget", sharing | electing, "one field: a writer; of the data next to a lock, whose it is", "hget KEY f"},
	{"+hmget", sharing | electing | observing, "mode and holds; the data next to a lock", "hmget KEY mode"},
	{"+hrandfield", sharing, "any other reader", "hrandfield KEY"},
	{"+select", database, "a database other than 0", ""},           // or there is no connection
	{"+cluster|slots", clustered, "which node has which slot", ""}, // likewise
	{"+asking", moving, "while a slot moves, requests follow its keys to the other node", "asking"},
	{"+pubsub|shardnumsub", clustered | sharding, "has it sharded channels, and how many connections wait there", "pubsub shardnumsub"},
	{"+spublish", sharding, "unlock tells the waiters; probes of the subscription", "spublish CHANNEL 0"},
	{"+ssubscribe", sharding, "waiters listen", "ssubscribe CHANNEL"},
	{"+sunsubscribe", sharding, "who has stopped to wait is not counted any longer", "sunsubscribe CHANNEL"},
	{"+psubscribe", watching, "releases of all locks", ""},
	{"+wait", replicating, "how many replicas have the grant", "wait 0 1"},
}

// relatives are the keys and channels that belong to a lock, as rules; NAME is
// that of the lock, in braces unless it has a hash tag. Another kind of lock adds
// lines.
var relatives = []struct {
	rule  string
	needs feature
	why   string
}{
	{"~rlock_queue:NAME", locking | inspecting, "who waits"},
	{"~redisson_lock_token:NAME", fencing | inspecting, "fencing counters"},
	{"&rlock_channel:NAME:*", waking, "each client's own channel, where it is told that it has the lock"},
	{"&redisson_lock__channel:NAME", foreign | watching, "unlock messages, Redisson's and for Redisson"},
	{"~redisson_lock_queue:NAME", queueing, "is there a queue of Redisson's"},
	{"~redisson_lock_timeout:NAME", queueing, "likewise"},
	{"~rlock_rwqueue:NAME", sharing, "who waits to read or to write"},
	{"~NAME:*", sharing, "leases of readers"},
	{"&rlock_rwchannel:NAME:*", sharing, "each client's own channel, where it is told that it reads or writes"},
	{"~rlock_companion:NAME", electing | observing, "the data next to a lock: who leads, which fire was claimed, a result"},
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
			add(as("NAME", r.why+", for names with a hash tag: a{b}"))
		default:
			add(as("{NAME}", r.why))
		}
	}
	for _, r := range []right{
		{"~" + aclGlob(record.Key(prefix, ""), "*"), recording | observing, "who the clients are, what they hold and wait for", useOf("~PREFIX" + record.Key("", "x"))},
		{"~" + aclGlob(record.List(prefix), ""), recording | observing, "which clients there are", useOf("~PREFIX" + record.List(""))},
	} {
		add(r)
	}
	for _, probe := range []right{
		{"&redisson_lock__channel:{rlock-probe:*}", probing, "each client's own channel, for probes", ""},
		{"&redisson_lock__channel:rlock-probe:*", sharding, "one for each node, where channels are sharded", ""},
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
