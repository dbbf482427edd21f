package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// counters are those of the server.
type counters struct {
	calls       map[string]int64 // by command, also those of scripts
	reads       int64            // from sockets
	cpu         time.Duration
	connections int64
	limit       int64         // of connections
	bytes       int64         // from and to sockets
	received    int64         // of them, from sockets
	memory      int64         // in use
	reply       int64         // bytes of the answer to the question for these counters, which the next ones include
	questions   int64         // for these counters, since the ones before
	at          time.Time     // on the server's clock
	elapsed     time.Duration // since the ones before
}

func readCounters(ctx context.Context, rdb *redis.Client) (counters, error) {
	text, err := rdb.Info(ctx, "everything").Result()
	if err != nil {
		return counters{}, err
	}
	c := parseCounters(text)
	c.reply = int64(len(text))
	return c, nil
}

// add makes c the counters of two servers.
func (c counters) add(other counters) counters {
	for name, n := range other.calls {
		c.calls[name] += n
	}
	c.reads += other.reads
	c.cpu += other.cpu
	c.connections += other.connections
	c.bytes += other.bytes
	c.received += other.received
	c.memory += other.memory
	c.reply += other.reply
	c.questions += other.questions
	return c
}

// parseCounters leaves at zero what a server does not tell.
func parseCounters(info string) counters {
	c := counters{calls: make(map[string]int64), questions: 1}
	var sent, usec int64
	numbers := map[string]*int64{
		"total_reads_processed": &c.reads, "connected_clients": &c.connections, "maxclients": &c.limit, "used_memory": &c.memory,
		"total_net_input_bytes": &c.received, "total_net_output_bytes": &sent, "server_time_usec": &usec,
	}
	for name, value := range infoFields(info) {
		number, known := numbers[name]
		switch {
		case known:
			*number, _ = strconv.ParseInt(value, 10, 64)
		case name == "used_cpu_sys" || name == "used_cpu_user":
			seconds, _ := strconv.ParseFloat(value, 64)
			c.cpu += time.Duration(seconds * float64(time.Second))
		case strings.HasPrefix(name, "cmdstat_"):
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			c.calls[strings.TrimPrefix(name, "cmdstat_")], _ = strconv.ParseInt(calls, 10, 64)
		}
	}
	c.bytes, c.at = c.received+sent, time.UnixMicro(usec)
	return c
}

func infoFields(info string) map[string]string {
	fields := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// since returns the difference to an earlier reading, less the questions.
func (c counters) since(before counters) counters {
	d := counters{calls: make(map[string]int64), cpu: c.cpu - before.cpu, elapsed: c.at.Sub(before.at)}
	for name, n := range c.calls {
		if n -= before.calls[name]; n > 0 {
			d.calls[name] = n
		}
	}
	d.reads = max(c.reads-before.reads-c.questions, 0)
	d.bytes = max(c.bytes-before.bytes-before.reply, 0)
	d.received = max(c.received-before.received, 0)
	d.calls["info"] = max(d.calls["info"]-c.questions, 0)
	return d
}

func (c counters) commands() (n int64) {
	for _, calls := range c.calls {
		n += calls
	}
	return n
}

func (c counters) scripts() int64 {
	return c.calls["evalsha"] + c.calls["eval"] + c.calls["fcall"]
}

func (c counters) messages() int64 { return c.calls["publish"] + c.calls["spublish"] }

// ErrEmbedded means that the server is embedded in a program, so its numbers say nothing about Redis.
var ErrEmbedded = errors.New("bench: an embedded server: it says nothing about Redis, so nothing is measured on it")

// identify returns what the server calls itself, and how it is run.
func identify(ctx context.Context, rdb *redis.Client) (name, mode string, err error) {
	info, err := rdb.Info(ctx, "server").Result()
	if err != nil {
		if redis.HasErrorPrefix(err, "section (") { // miniredis knows none
			err = ErrEmbedded
		}
		return "", "", err
	}
	fields := infoFields(info)
	version := fields["redis_version"]
	if version == "" || fields["process_id"] == "" {
		return "", "", ErrEmbedded
	}
	name, mode = "Redis", fields["redis_mode"]
	if valkey := fields["valkey_version"]; valkey != "" {
		name, version, mode = "Valkey", valkey, fields["server_mode"]
	}
	return fmt.Sprintf("%s %s, %s", name, version, fields["os"]), mode, nil
}
