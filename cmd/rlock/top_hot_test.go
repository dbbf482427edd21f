package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// top --by sums up what the records of all clients say of a name, or of the names of a group. Without Options.Group, the
// group follows from the name.
func TestTopByNameAndGroup(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, ctx := srv.Client(t), t.Context()
	tell := func(id string, hot ...record.Hot) {
		r := record.Record{Who: record.Who{Host: "h"}, Written: time.Now(), Hot: hot}
		require.NoError(t, lua.WriteRecord(ctx, rdb, record.Key("", id), record.Lasts, r.Fields()))
		require.NoError(t, enlist(ctx, rdb, record.List(""), id, record.Lasts))
	}
	plain := func(args ...string) string {
		r := outcome(t, srv.URL(), append([]string{"top", "--once"}, args...)...)
		require.Zero(t, r.code, r.stderr)
		require.Empty(t, obeyed(r.stdout))
		return r.stdout
	}
	require.Equal(t, noneHot+"\n", plain("--by", "name"))
	require.Equal(t, noneHot+"\n", plain("--by", "group"))

	odd := "odd\x1b[2J\xff"
	tell("c1", record.Hot{Name: "order:1", PerSecond: 100, Waiting: 9.5, Most: 12}, record.Hot{Name: "mail:1", Group: "all mail", Waiting: 14})
	tell("c2", record.Hot{Name: "order:1", PerSecond: 50, Waiting: 8.25, Most: 10}, record.Hot{Name: "order:2", PerSecond: 2, Waiting: 0.5, Most: 1}, record.Hot{Name: odd, Waiting: 0.25})
	var others []record.Hot
	for i := range 10 {
		others = append(others, record.Hot{Name: fmt.Sprint("x", i), Group: "x", Waiting: 0.02})
	}
	tell("c3", others...)

	lines := strings.Split(plain("--by", "name"), "\n")
	require.Len(t, lines, 12, "titles, ten names, and the end")
	require.Regexp(t, `^LOCK +GROUP +WAITING +WAITS/S +MOST +CLIENTS$`, lines[0])
	require.Regexp(t, `^order:1 +order:\* +17\.8 +150\.0 +22 +2$`, lines[1])
	require.Regexp(t, `^mail:1 +all mail +14\.0 +0\.0 +0 +1$`, lines[2])
	require.Regexp(t, `^order:2 +order:\* +0\.5 +2\.0 +1 +1$`, lines[3])
	require.Equal(t, "LOCK     GROUP    WAITING  WAITS/S  MOST  CLIENTS\norder:2  order:*  0.5      2.0      1     1\n", plain("--by", "name", "*:2"))

	lines = strings.Split(plain("--by", "group"), "\n")
	require.Len(t, lines, 6)
	require.Regexp(t, `^GROUP +WAITING +WAITS/S +MOST +NAMES$`, lines[0])
	require.Regexp(t, `^order:\* +18\.2 +152\.0 +23 +2$`, lines[1])
	require.Regexp(t, `^all mail +14\.0 +0\.0 +0 +1$`, lines[2])
	require.Regexp(t, `^x +0\.2 +0\.0 +0 +10$`, lines[4])

	for _, args := range [][]string{{"--json"}, {"--json", "--by", "name"}} {
		var v topView
		require.NoError(t, json.Unmarshal([]byte(plain(args...)), &v))
		require.Len(t, v.Hot, 14)
		require.Equal(t, hotName{Name: "order:1", Group: "order:*", waitView: waitView{17.75, 150, 22}, Clients: 2}, v.Hot[0])
		require.Equal(t, strconv.Quote(odd), v.Hot[3].Quoted)
		require.Equal(t, hotGroup{Group: "order:*", waitView: waitView{18.25, 152, 23}, Names: 2}, v.Groups[0])
		require.Empty(t, v.Locks, "nothing is held for long")
	}
}

// The picture of names or groups fits, and the filter and the key n act on it.
func TestHotPictures(t *testing.T) {
	v := sample()
	for i := range 12 {
		v.Hot = append(v.Hot, hotName{Name: fmt.Sprint("a:", i, strings.Repeat("エ", 50)), Group: "a", waitView: waitView{20, 1e6, 1e6}, Clients: 1e6})
	}
	v.Groups = hotGroups(v.Hot)
	l := &live{top: &top{order: "lock", by: byName, server: &server{name: "s"}}, view: v}
	for _, columns := range []int{1, 10, 40, 80, 200} {
		for range topLines() {
			lines := l.lines(columns, 24)
			require.Len(t, lines, 24)
			for _, line := range lines {
				require.LessOrEqual(t, display.StringWidth(line), columns, "%q", line)
			}
			l.press("n")
		}
	}
	require.Contains(t, l.lines(80, 24)[2], "a:0")
	require.Contains(t, l.lines(80, 24)[23], "hottest by name")
	l.press("/a:11\r")
	require.Contains(t, l.lines(80, 24)[2], "a:11")
	require.Empty(t, l.lines(80, 24)[3])
	l.press("n")
	require.Regexp(t, `^a +20\.0 .* 1$`, l.lines(80, 24)[2])
	l.press("/none\r")
	require.Equal(t, noneHot, l.lines(80, 24)[1])
	l.press("\x1bn")
	require.Contains(t, l.lines(80, 24)[2], "catalogue", "the locks again")
}

// crowdOfOneName has 20 goroutines that hold one lock for 5 ms each, and 20 that go through so many other names and wait
// for each of them for a moment.
func crowdOfOneName(args []string) {
	rdb := redis.NewClient(&redis.Options{Addr: args[0]})
	client, err := rlock.New(rdb, nil)
	if err != nil {
		panic(err)
	}
	work := func(name string, d time.Duration) {
		err := client.NewLock(name).Do(context.Background(), func(context.Context) error { time.Sleep(d); return nil })
		if err != nil {
			panic(err)
		}
	}
	for range 20 {
		go func() {
			for {
				work("hot:4711", 5*time.Millisecond)
			}
		}()
	}
	fmt.Println("started")
	cold, _ := strconv.Atoi(args[1])
	var all sync.WaitGroup
	var next atomic.Int64
	for range 10 {
		all.Go(func() {
			for n := next.Add(1); n <= int64(cold); n = next.Add(1) {
				var two sync.WaitGroup
				for range 2 {
					two.Go(func() { work(fmt.Sprintf("cold:%d:%d", os.Getpid(), n), time.Millisecond) })
				}
				two.Wait()
			}
		})
	}
	all.Wait()
	fmt.Println("went through all names")
	select {}
}

// TestTopFindsTheHotLock has 60 goroutines in three processes hold one lock for 5 ms each, and finds its name in the first
// line of top --by name within 10 s; with 10,000 other names as well, before and after all of them were waited for.
func TestTopFindsTheHotLock(t *testing.T) {
	redistest.Long(t, "three processes wait for many names")
	for _, cold := range []int{0, 3334} {
		t.Run(fmt.Sprint(3*cold, " other names"), func(t *testing.T) {
			srv := redistest.Start(t)
			var children []*redistest.Child
			for range 3 {
				children = append(children, redistest.Spawn(t, "crowd", srv.Addr(), strconv.Itoa(cold)))
			}
			for _, c := range children {
				c.Expect("started", 10*time.Second)
			}
			began := time.Now()
			finds := func() bool {
				r := outcome(t, srv.URL(), "top", "--once", "--by", "name")
				require.Zero(t, r.code, r.stderr)
				lines := strings.Split(r.stdout, "\n")
				return strings.HasPrefix(lines[min(1, len(lines)-1)], "hot:4711 ")
			}
			for !finds() {
				require.Less(t, time.Since(began), 10*time.Second)
				time.Sleep(100 * time.Millisecond)
			}
			t.Logf("found after %v", time.Since(began))
			for _, c := range children {
				c.Expect("went through all names", time.Minute)
			}
			time.Sleep(time.Until(began.Add(12 * time.Second))) // each client has written a second record
			require.True(t, finds())
			for _, by := range []string{"name", "group"} {
				t.Logf("after %v:\n%s", time.Since(began), outcome(t, srv.URL(), "top", "--once", "--by", by).stdout)
			}
			var v topView
			require.NoError(t, json.NewDecoder(bytes.NewBufferString(outcome(t, srv.URL(), "top", "--once", "--json").stdout)).Decode(&v))
			require.Equal(t, 3, v.Hot[0].Clients)
			require.InDelta(t, 58, v.Hot[0].Waiting, 8, "59 of 60 wait, but for the time of requests")
			require.Equal(t, "hot:*", v.Groups[0].Group)
		})
	}
}
