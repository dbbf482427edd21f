package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-rlock/rlock/internal/servers"
)

const oldestVersion = "6.2" // that the README names

func (n *node) checkVersion() finding {
	f := n.finding("version", fine, "%s: tested", n.version)
	name, version, _ := strings.Cut(n.fork, " ")
	series := strings.Join(append(strings.Split(cmp.Or(version, n.version), "."), "")[:2], ".")
	tested := slices.Contains(servers.Tested[name], series)
	f.Values = map[string]any{"version": n.version}
	if n.fork != "" {
		f.Values["fork"] = n.fork
	}
	switch {
	case n.version == "":
		return n.finding("version", unchecked, "the server does not tell: %v", cmp.Or(n.infoErr, errNotTold))
	case older(n.version, oldestVersion):
		f.Level, f.Text = broken, fmt.Sprintf("%s: older than %s", n.version, oldestVersion)
		return f.advise("rlock needs Redis %s or later", oldestVersion)
	case strings.HasSuffix(n.fork, " "+n.version): // as which version of Redis is not told
		f.Text = n.fork + ": tested"
	case n.fork != "":
		f.Text = fmt.Sprintf("%s, as Redis %s: tested", n.fork, n.version)
	}
	if !tested {
		f.Text = strings.TrimSuffix(f.Text, "tested") + "not among the tested versions"
	}
	return f
}

var errNotTold = fmt.Errorf("its answer does not contain it")

// older compares dotted versions; what is no number counts as 0.
func older(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		x, y := 0, 0
		if i < len(as) {
			x, _ = strconv.Atoi(as[i])
		}
		if i < len(bs) {
			y, _ = strconv.Atoi(bs[i])
		}
		if x != y {
			return x < y
		}
	}
	return false
}

const freeMemory = "free memory, raise maxmemory, or use a server for the locks alone"

// checkEviction: every lock and every fencing counter has a TTL, so that volatile
// policies are no better than the others.
func (n *node) checkEviction() finding {
	policy, ok := n.info["maxmemory_policy"]
	if !ok {
		return n.finding("eviction", unchecked, "INFO memory: %v", cmp.Or(n.infoErr, errNotTold)).
			advise("make sure that maxmemory-policy is noeviction: any other may evict a lock while it is held")
	}
	limit := n.info["maxmemory"]
	var f finding
	switch {
	case limit == "0" && policy == "noeviction":
		f = n.finding("eviction", fine, "noeviction; no memory limit is set")
	case limit == "0":
		f = n.finding("eviction", fine, "%s; no memory limit is set, so that nothing is evicted", policy).
			advise("should maxmemory ever be set, set maxmemory-policy noeviction first")
	case policy == "noeviction" && number(n.info["used_memory"]) > number(limit):
		f = n.finding("eviction", broken, "memory is used up, %s of %s: new locks are refused; held ones are renewed and released all the same", n.info["used_memory_human"], n.info["maxmemory_human"]).
			advise(freeMemory)
	case policy == "noeviction":
		f = n.finding("eviction", fine, "noeviction: at %s new locks are refused, held ones are renewed and released all the same", n.info["maxmemory_human"])
	case strings.HasPrefix(policy, "volatile-"):
		f = n.finding("eviction", warning, "%s: at %s keys with a TTL are evicted, and every lock has one: it may be lost while it is held", policy, n.info["maxmemory_human"])
	default:
		f = n.finding("eviction", warning, "%s: at %s any key may be evicted, a lock while it is held among them", policy, n.info["maxmemory_human"])
	}
	if f.Level == warning {
		f = f.advise("maxmemory-policy noeviction, or a server for the locks alone")
	}
	f.Values = map[string]any{"policy": policy, "maxmemory_bytes": number(limit)}
	return f
}

// checkPersistence tells what a restart does to locks. An operating system that
// goes down is worse than a server that does, whose writes the system completes.
func (n *node) checkPersistence() finding {
	aof, ok := n.info["aof_enabled"]
	if !ok {
		return n.finding("persistence", unchecked, "INFO persistence: %v", cmp.Or(n.infoErr, errNotTold))
	}
	if aof == "1" {
		if n.info["aof_last_write_status"] == "err" {
			return n.finding("persistence", broken, "the append-only file cannot be written: the server refuses to write").
				advise("see the server's log: the disk may be full")
		}
		fsync, ok := n.config["appendfsync"]
		switch {
		case !ok:
			return n.finding("persistence", unchecked, "append-only file, but how often it is synced is not told: %v", cmp.Or(n.configErr, errNotTold))
		case fsync == "always":
			return n.finding("persistence", fine, "append-only file, synced always: locks survive a restart")
		case fsync == "everysec":
			return n.finding("persistence", fine, "append-only file, synced every second: locks survive a restart; a crash of the machine loses the last second or two, and grants in it")
		}
		return n.finding("persistence", warning, "append-only file, not synced: a crash of the machine loses the last half a minute, and a lock taken in it can be granted again").
			advise("appendfsync everysec")
	}
	advice := "turn on the append-only file: CONFIG SET appendonly yes now, then appendonly yes in redis.conf (in that order: a server started with the setting, but without the file, comes up empty); or keep a server that has lost its data down for the longest lease"
	save, ok := n.config["save"]
	switch {
	case !ok:
		return n.finding("persistence", warning, "no append-only file: a restart forgets locks that are held, and others are let in until the holders' next renewal").advise("%s", advice)
	case save != "":
		return n.finding("persistence", warning, "snapshots only: a restart forgets the locks taken since the last one, and others are let in until the holders' next renewal; locks released since are back until their leases end").
			advise("%s", advice)
	}
	return n.finding("persistence", warning, "none: a restart forgets all locks, and others are let in until the holders' next renewal").advise("%s", advice)
}

// checkConnections finds settings that cut or keep connections.
func (n *node) checkConnections() []finding {
	if n.configErr != nil {
		return []finding{n.finding("connections", unchecked, "CONFIG GET: %v", n.configErr)}
	}
	var bad []finding
	if hard, ok := pubsubLimit(n.config["client-output-buffer-limit"]); ok && hard > 0 && hard < 1<<20 {
		bad = append(bad, n.finding("connections", warning, "client-output-buffer-limit pubsub ends a subscription at %d bytes: a burst of releases cuts the waiters off, who come back and all ask again", hard).
			advise("client-output-buffer-limit pubsub 32mb 8mb 60"))
	}
	if s := number(n.config["timeout"]); s > 0 && s < 60 {
		bad = append(bad, n.finding("connections", warning, "timeout %d: idle connections are closed after %d s, not subscriptions; a lock call then has to connect anew, or to repeat its request", s, s).
			advise("timeout 0, or 60 at least"))
	}
	if n.config["tcp-keepalive"] == "0" {
		bad = append(bad, n.finding("connections", warning, "tcp-keepalive 0: the connections of hosts that are gone are kept, and counted as waiting").
			advise("tcp-keepalive 300"))
	}
	if len(bad) == 0 {
		return []finding{n.finding("connections", fine, "pubsub buffers, timeout and tcp-keepalive do no harm")}
	}
	return bad
}

// pubsubLimit reads the hard limit for subscribers from "normal 0 0 0 … pubsub
// 33554432 8388608 60".
func pubsubLimit(text string) (bytes int64, ok bool) {
	words := strings.Fields(text)
	for i := 0; i+1 < len(words); i++ {
		if words[i] == "pubsub" {
			return number(words[i+1]), true
		}
	}
	return 0, false
}

// number is 0 for what is none.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
