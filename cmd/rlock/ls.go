package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

const (
	scanCount = 500 // keys the server looks at in one go: well below a millisecond
	pageSize  = 100 // fields of a hash read in one go; a small hash comes whole
)

func lsCommand() *cli.Command {
	return &cli.Command{
		Name:      "ls",
		Usage:     "list the locks that are held",
		UsageText: "rlock ls [--json] [GLOB]",
		Description: `Lists the locks that are held and whose names match GLOB, a Redis pattern (*, ?, [abc]).
It scans all keys of the database in small steps and does not block the server. A lock
that is acquired or released during the scan can be missing. A key counts as a lock if
it is a hash with fields like <client>:<number> that contain whole numbers.
QUEUED is the number of tickets in the queue: one per waiting client for a plain lock,
one per waiting call for a fair lock, up to two per waiting client for a read/write lock.
WAIT and HOLDER come from the records of clients (see "top"). WAIT is the number of calls
that have waited for longer than a second. HOLDER is the host, program, process and
purpose of the holder, and since when it holds the lock.`,
		Flags: []cli.Flag{jsonFlag()},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() > 1 {
				return usagef(cmd, "expected at most one GLOB: quote it")
			}
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			defer s.close()
			locks, err := s.list(ctx, cmd.Args().First())
			if err != nil {
				return fmt.Errorf("%w: %w", rlock.ErrUnavailable, err)
			}
			records, _ := s.records(ctx) // who may look at locks only is still shown those
			explain(locks, records)
			out := cmd.Root().Writer.(*output)
			if cmd.Bool("json") {
				return printJSON(out, locks)
			}
			return printLocks(out, locks, out.columns())
		},
	}
}

// list returns the locks whose names match glob, sorted by name.
func (s *server) list(ctx context.Context, glob string) ([]lockView, error) {
	if glob == "" {
		glob = "*"
	}
	var mu sync.Mutex                  // guards locks: a cluster's nodes are scanned at the same time
	locks := make(map[string]lockView) // SCAN may return a key twice
	err := s.scan(ctx, glob, func(found []lockView) error {
		mu.Lock()
		defer mu.Unlock()
		for _, v := range found {
			locks[v.Name] = v
		}
		return nil
	})
	sorted := make([]lockView, 0, len(locks))
	for _, v := range locks {
		sorted = append(sorted, v)
	}
	slices.SortFunc(sorted, func(a, b lockView) int { return strings.Compare(a.Name, b.Name) })
	return sorted, err
}

// scan calls found with the locks whose names match glob, some at a time, and from
// several goroutines if the server is a cluster. It ends with the error of found.
func (s *server) scan(ctx context.Context, glob string, found func([]lockView) error) error {
	scan := func(ctx context.Context, node *redis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := node.ScanType(ctx, cursor, escapeGlob(s.prefix)+glob, scanCount, "hash").Result()
			if err != nil {
				return err
			}
			locks, err := s.read(ctx, keys)
			if err != nil {
				return err
			}
			if err := found(locks); err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, scan)
	}
	return scan(ctx, s.rdb.(*redis.Client))
}

// read returns those of the keys that are locks, in one round trip. It reads a
// page of each hash: an application's own may be of any size, and is recognised
// by its first fields. The rest of a lock with more of them, as of many readers, takes
// further round trips. A key that vanishes meanwhile is none any more.
func (s *server) read(ctx context.Context, keys []string) ([]lockView, error) {
	type reading struct {
		fields *redis.ScanCmd
		ttl    *redis.DurationCmd
		queued queues
	}
	readings := make([]reading, len(keys))
	pipe := s.rdb.Pipeline()
	for i, key := range keys {
		readings[i] = reading{
			pipe.HScan(ctx, key, 0, "", pageSize), pipe.PTTL(ctx, key),
			countQueues(ctx, pipe, key),
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	var locks []lockView
	for i, r := range readings {
		page, cursor, err := r.fields.Result()
		if _, ok := parseHolds(page); ok && cursor != 0 {
			page, err = s.readOn(ctx, keys[i], page, cursor)
		}
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			continue // replaced by something else
		}
		ttl, ttlErr := r.ttl.Result()
		if err := cmp.Or(err, ttlErr); err != nil {
			return nil, err
		}
		if holds, ok := parseHolds(page); ok && ttl != -2 {
			v := newLockView(strings.TrimPrefix(keys[i], s.prefix), holds, ttl)
			// Who may look at locks only is still shown those.
			v.Queued = r.queued.of(page)
			locks = append(locks, v)
		}
	}
	return locks, nil
}

// isOwner reports whether a field is of Redisson's form, client:number; ":write" marks the
// writer of a read-write lock.
func isOwner(field string) bool {
	field = strings.TrimSuffix(field, ":write")
	at := strings.LastIndexByte(field, ':')
	return at > 0 && at < len(field)-1 && strings.Trim(field[at+1:], "0123456789") == ""
}

// parseHolds reads the fields and values of a hash. It reports false if that is
// not a lock.
func parseHolds(page []string) (map[string]int64, bool) {
	holds := make(map[string]int64)
	for i := 0; i+1 < len(page); i += 2 {
		field, value := page[i], page[i+1]
		if field == "mode" && (value == "read" || value == "write") {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || !isOwner(field) {
			return nil, false
		}
		holds[field] = n
	}
	return holds, len(holds) > 0
}

// queues are the lengths of both queues that a name may have: what kind its lock is shows in the lock.
type queues struct{ plain, readWrite *redis.IntCmd }

// countQueues reads the lengths.
func countQueues(ctx context.Context, pipe redis.Pipeliner, key string) queues {
	return queues{pipe.ZCount(ctx, lua.QueueOf(key), "1", "+inf"), pipe.ZCount(ctx, lua.QueueOfRW(key), "1", "+inf")}
}

// of returns the length of the queue of a lock with these fields and values; nil if it is not known.
func (q queues) of(page []string) *int64 {
	count := q.plain
	for i := 0; i < len(page); i += 2 {
		if page[i] == "mode" {
			count = q.readWrite
		}
	}
	if count == nil || count.Err() != nil {
		return nil
	}
	return new(count.Val())
}

// calls is how many calls wait, as their clients tell.
func (v lockView) calls() (n int) {
	for _, w := range v.Waiting {
		n += w.Calls
	}
	return n
}

// escapeGlob makes a pattern that matches s itself.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// printLocks writes lines of at most so many columns, of any length if that is 0.
func printLocks(w io.Writer, locks []lockView, columns int) error {
	clip := func(text string, columns int) string {
		if columns == 0 {
			return text
		}
		return cut(text, columns)
	}
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	if len(locks) > 0 {
		fmt.Fprintln(t, "NAME\tOWNER\tHOLDS\tLEASE\tQUEUED\tWAIT\tHOLDER")
	}
	for _, v := range locks {
		for _, o := range v.Owners {
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%d\t%s\n", clip(printable(v.Name), columns/3), printable(o.Owner), o.Holds, v.lease(), v.queued(), v.calls(), cmp.Or(o.tells(), "-"))
		}
	}
	_ = t.Flush()
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(w, clip(strings.TrimSuffix(line, "\n"), columns)); err != nil {
			return err
		}
	}
	return nil
}
