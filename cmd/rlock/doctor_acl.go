package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	{waking, warning, "who waits is not told that it has the lock, or counted when it is gone: it asks again every second at most, and others that wait for a lock of this user every 5 s"},
	{foreign, warning, "Redisson's clients, and locks that poll, are not told of a release, and theirs are not heard: who waits then asks again every 5 s, or sleeps until the lease ends"},
	{probing, warning, "a subscription to a master that was replaced is not noticed while that still answers: waiters sleep until the lease ends"},
	{sharding, warning, "releases are announced to all nodes of the cluster in place of one, or waiters are not told: they look again every second at most"},
	{replicating, warning, "locks WithReplicas are refused"},
	{recording, warning, "rlock top, inspect and ls are not told who this user's clients are, what they hold and what they wait for; their locks are as before"},
	{inspecting, warning, "rlock inspect is refused, or does not know who waits; a release that may not ask who listens announces itself to find out"},
}

// checkRights tries every right that a lock needs, as the user that is
// connected, in a way that changes nothing. ACL DRYRUN would do that too, but
// only an administrator may call it, and only since Redis 7.
func (d *doctor) checkRights(ctx context.Context) {
	var missing []right
	wanted := lockUser | d.distributed()
	if !d.mayShard() {
		wanted &^= sharding
	}
	for _, r := range rightsFor(d.prefix, d.glob) {
		if r.needs&wanted == 0 || r.try == "" {
			continue
		}
		err := d.try(ctx, r.try)
		switch {
		case err == nil:
		case refusesCommand(err) && r.item[0] == '+', refusesName(err) && r.item[0] != '+':
			missing = append(missing, r)
		case disconnected(err):
			d.report.add(finding{Check: "acl", Level: unchecked, Text: fmt.Sprintf("%s: %v", r.item, err)})
			return
		}
	}
	user, err := d.rdb.Do(ctx, "acl", "whoami").Text()
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
		if len(items) > 0 {
			d.report.add(finding{
				Check: "acl", Level: c.level, Text: "no right to " + strings.Join(items, " ") + ": " + c.text,
				Advice: strings.Join(append([]string{"ACL SETUSER", user}, items...), " "),
			})
		}
	}
	if len(missing) == 0 {
		d.report.add(finding{Check: "acl", Level: fine, Text: "every command, key and channel that plain locks under " + d.glob + " need is permitted; what fair and read/write locks need beside was not tried"})
	}
}

// try sends a command of the table of rights. The error is nil if the server
// permits it, whatever else it says.
func (d *doctor) try(ctx context.Context, text string) error {
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
		err = d.trySubscribe(ctx, words[0], channel)
	} else {
		cmd := redis.NewCmd(ctx, args...)
		cmd.SetFirstKeyPos(firstKey(words))
		err = d.rdb.Process(ctx, cmd)
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

func (d *doctor) trySubscribe(ctx context.Context, command, channel string) error {
	ps := d.rdb.Subscribe(ctx) // of either kind
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
