package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// consequences are what a user without the rights to a feature has to expect.
var consequences = []struct {
	feature feature
	level   level
	text    string
}{
	{locking, broken, "locks cannot be taken, renewed, waited for or released; one whose release is refused ends with its lease"},
	{fencing, warning, "locks with fencing tokens, and so rlock run, are refused"},
	{waking, warning, "waiters are not told that they have the lock, and dead ones are still counted: waiters of this user ask again every second at most, others that wait for a lock of this user at least every 5.5 s"},
	{foreign, warning, "Redisson's clients, and locks that poll, are not told of a release, and theirs are not heard: waiters then ask again at least every 5.5 s, or sleep until the lease ends"},
	{probing, warning, "a subscription to a master that was replaced is not noticed while that still answers: waiters sleep until the lease ends"},
	{sharding, warning, "releases are announced to all nodes of the cluster in place of one, or waiters are not told: they look again every second at most"},
	{moving, warning, "while a slot of the cluster moves to another node, its locks can neither be had nor renewed nor released: holds are lost"},
	{replicating, warning, "locks WithReplicas are refused"},
	{recording, warning, "rlock top, inspect and ls are not told who this user's clients are, what they hold and what they wait for; their locks are as before"},
	{inspecting, warning, "rlock inspect is refused, or does not know who waits; a release that may not ask who listens announces itself to find out"},
	{electing, fine, "elections, jobs, shared results and idempotency keys are refused; locks need none of it"},
}

// checkRights tries every right that a lock needs, as the user that is
// connected, in a way that changes nothing. ACL DRYRUN would do that too, but
// only an administrator may call it, and only since Redis 7. Each node of a cluster has
// users of its own.
func (d *doctor) checkRights(ctx context.Context) {
	if d.topology() != "cluster" {
		server := d.nodes[0]
		server.addr = "" // goes without saying
		d.addRights(d.rightsOn(ctx, &server)...)
		return
	}
	findings := make([][]finding, len(d.nodes))
	var asked sync.WaitGroup
	for i := range d.nodes {
		asked.Go(func() { findings[i] = d.rightsOn(ctx, &d.nodes[i]) })
	}
	asked.Wait()
	d.addRights(slices.Concat(findings...)...)
}

// nameThem is the advice for a user who may use some names only. Rights to all names would
// open all keys of the server.
const nameThem = "say which: --prefix P or --name GLOB"

// addRights reports findings of rightsOn. The lines for a user who may use all names go if
// this user may not.
func (d *doctor) addRights(findings ...finding) {
	d.report.add(findings...)
	if slices.ContainsFunc(findings, func(f finding) bool { return f.Advice == nameThem }) {
		d.report.ACL.Locks, d.report.ACL.ReadOnly = "", ""
	}
}

// rightsOn says which rights are missing on a node.
func (d *doctor) rightsOn(ctx context.Context, n *node) (findings []finding) {
	var missing []right
	wanted := lockUser | d.distributed()
	if d.unsharded {
		wanted &^= sharding
	}
	for _, r := range rightsFor(d.prefix, d.glob) {
		if r.needs&(wanted|electing) == 0 || r.try == "" {
			continue
		}
		err := d.try(ctx, n.rdb, r.try)
		switch {
		case err == nil:
		case refusesCommand(err) && r.item[0] == '+', refusesName(err) && r.item[0] != '+':
			missing = append(missing, r)
		case disconnected(err):
			return []finding{n.finding("acl", unchecked, "%s: %v", r.item, err)}
		}
	}
	if d.glob == "*" && slices.ContainsFunc(missing, func(r right) bool { return r.item == "~*" }) {
		findings = append(findings, n.finding("acl", warning, "this user may not use all names, and which it may use is not known").advise(nameThem))
		missing = slices.DeleteFunc(missing, func(r right) bool { return r.item[0] != '+' })
	} else if !slices.ContainsFunc(missing, func(r right) bool { return r.needs&wanted != 0 }) {
		kinds := "plain locks, elections, jobs and shared results"
		if len(missing) > 0 {
			kinds = "plain locks"
		}
		findings = append(findings, n.finding("acl", fine, "every command, key and channel that %s under %s need is permitted; what fair and read/write locks need beside was not tried", kinds, d.glob))
	}
	user, err := n.rdb.Do(ctx, "acl", "whoami").Text()
	if err != nil {
		user = "USER" // that is not told
	}
	for _, c := range consequences {
		var items []string
		for _, r := range missing {
			if r.needs&c.feature != 0 {
				items = append(items, r.item)
			}
		}
		if len(items) == 0 {
			continue
		}
		level, text := c.level, "no right to "+strings.Join(items, " ")+": "+c.text
		if n.role == "replica" && level != fine {
			level, text = warning, "once this replica has become a master, "+text
		}
		findings = append(findings, n.finding("acl", level, "%s", text).advise("ACL SETUSER %s %s", user, strings.Join(items, " ")))
	}
	return findings
}

// try sends a command of the table of rights. The error is nil if the server
// permits it, whatever else it says: that another node has the key, say.
func (d *doctor) try(ctx context.Context, rdb *redis.Client, text string) error {
	key := d.prefix + d.name
	channel := "redisson_lock__channel:{" + key + "}"
	if strings.Contains(key, "{") {
		channel = "redisson_lock__channel:" + key
	}
	replace := strings.NewReplacer("KEY", key, "CHANNEL", channel, "NAME", d.prefix+d.sample, "PREFIX", d.prefix)
	words := strings.Fields(text)
	args := make([]any, len(words))
	for i, w := range words {
		args[i] = replace.Replace(w)
	}
	var err error
	if strings.HasSuffix(words[0], "subscribe") {
		err = trySubscribe(ctx, rdb, words[0], channel)
	} else {
		cmd := redis.NewCmd(ctx, args...)
		cmd.SetFirstKeyPos(firstKey(words))
		err = rdb.Process(ctx, cmd)
	}
	if refusesCommand(err) || refusesName(err) || disconnected(err) {
		return err
	}
	return nil
}

// firstKey is the position of the key, 0 if there is none.
func firstKey(words []string) int8 {
	for i, w := range words {
		if strings.Contains(w, "KEY") || strings.Contains(w, "PREFIX") || strings.Contains(w, "NAME") && words[0] != "publish" {
			return int8(i)
		}
	}
	return 0
}

func trySubscribe(ctx context.Context, rdb *redis.Client, command, channel string) error {
	ps := rdb.Subscribe(ctx) // of either kind
	defer func() { _ = ps.Close() }()
	send := map[string]func(context.Context, ...string) error{
		"subscribe": ps.Subscribe, "unsubscribe": ps.Unsubscribe, "ssubscribe": ps.SSubscribe, "sunsubscribe": ps.SUnsubscribe,
	}[command]
	if err := send(ctx, channel); err != nil {
		return err
	}
	_, err := ps.ReceiveTimeout(ctx, 5*time.Second)
	return err
}

func refusesCommand(err error) bool {
	return redis.IsPermissionError(err) && strings.Contains(err.Error(), "permissions to run")
}

// refusesName is for keys and channels.
func refusesName(err error) bool {
	return redis.IsPermissionError(err) && strings.Contains(err.Error(), "permissions to access")
}

// disconnected tells an error of the connection from an answer.
func disconnected(err error) bool {
	_, answer := errors.AsType[redis.Error](err)
	return err != nil && !answer
}
