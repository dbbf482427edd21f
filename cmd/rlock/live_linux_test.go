package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// On a terminal top draws one picture over the other, obeys keys and sizes, and leaves the
// terminal as it was.
func TestTopOnATerminal(t *testing.T) {
	for _, noColour := range []string{"", "1"} {
		srv := redistest.Start(t)
		tells(t, srv.Client(t), record.Holds, "first", "second", "evil\x1b]0;x\a")
		cmd := prepare(t, srv.URL(), "top", "--interval", "100ms")
		cmd.Env = append(cmd.Env, "NO_COLOR="+noColour)
		s := onTerminal(t, cmd)
		fd := int(s.master.Fd())
		s.shows(`\x1b\[\?1049h.*\x1b\[H\x1b\[Klong holds 3`)
		s.shows(`sorted by wait`)
		require.Equal(t, noColour == "", strings.Contains(s.text(), "\x1b[7m"))
		s.types("s")
		s.shows(`sorted by rate`)
		require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 5, Col: 30}))
		s.shows(`\x1b\[H\x1b\[Klong holds 3, calls waiting 0…`)
		require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}))
		s.types("/sec")
		s.shows(`filter: sec_`)
		s.types("\r")
		s.shows(`only sec \(esc\)`)
		s.shows(`long holds 1`)
		s.types("\x1b[Bjk")
		srv.Kill()
		s.shows(`Redis does not answer`)
		s.types("q")
		require.Zero(t, s.code())
		s.shows(`\x1b\[\?25h\x1b\[\?1049l$`) // what it wrote last may come after its end
		require.NotContains(t, s.text(), "\x1b]0;", "names are no commands")
		term, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		require.NoError(t, err)
		require.NotZero(t, term.Lflag&unix.ICANON)
		require.NotZero(t, term.Lflag&unix.ECHO)
	}
}

// Ctrl-Z gives the shell the terminal as it was, and fg brings the picture and the keys back.
func TestTopIsSuspended(t *testing.T) {
	srv := redistest.Start(t)
	tells(t, srv.Client(t), record.Holds, "first")
	s := onTerminal(t, shell(t, srv.URL(), `
		"$SELF" top; echo "status $?"; stty -a; read x; echo "shell got $x"; fg; exit $?`))
	s.shows("first")
	s.types("\x1a")
	s.shows(`\x1b\[\?25h\x1b\[\?1049l(?s).*status 147`) // SIGSTOP
	s.shows(` icanon (?s).* echo `)
	s.types("one\n")
	s.shows(`shell got one(?s).*\x1b\[\?1049h.*first`)
	s.types("q")
	require.Zero(t, s.code())
	s.shows(`\x1b\[\?1049l$`)
}

// Nobody could resume what a terminal has without a shell: Ctrl-Z does nothing.
func TestTopWithoutAShell(t *testing.T) {
	srv := redistest.Start(t)
	tells(t, srv.Client(t), record.Holds, "first")
	s := onTerminal(t, prepare(t, srv.URL(), "top"))
	s.shows("first")
	s.types("\x1a")
	s.shows(`\x1b\[\?1049l(?s).*\x1b\[\?1049h.*first`)
	s.types("q")
	require.Zero(t, s.code())
}

// Ctrl-C ends it as well, and a pipe gets plain lines.
func TestTopEnds(t *testing.T) {
	srv := redistest.Start(t)
	tells(t, srv.Client(t), record.Holds, "first")
	s := onTerminal(t, prepare(t, srv.URL(), "top"))
	s.shows("first")
	s.types("\x03")
	require.Zero(t, s.code())
	s.shows(`\x1b\[\?1049l$`)

	p := begin(t, srv.URL(), "top", "--interval", "100ms")
	for range 3 {
		p.says("long holds 1")
		p.says("first ")
	}
	p.signal(unix.SIGTERM)
	r := p.end()
	require.Zero(t, r.code)
	require.NotContains(t, r.stdout, "\x1b")
}

// A signal ends them also while nobody reads what they print.
func TestEndsWhileNobodyReads(t *testing.T) {
	srv := redistest.Start(t)
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("a lock with a long name, the number of which is ", i))
	}
	tells(t, srv.Client(t), record.Holds, names...)
	for _, args := range [][]string{{"top"}, {"top", "--once", "--json"}, {"watch", "*"}} {
		read, write, err := os.Pipe()
		require.NoError(t, err)
		size, err := unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, 4096)
		require.NoError(t, err)
		cmd := prepare(t, srv.URL(), args...)
		cmd.Stdout = write
		require.NoError(t, cmd.Start())
		redistest.Eventually(t, "the pipe is full", func() bool {
			n, err := unix.IoctlGetInt(int(read.Fd()), unix.TIOCINQ)
			return err == nil && n > size-200 // not a line more
		})
		require.NoError(t, terminated(t, cmd))
		require.NoError(t, read.Close())
		require.NoError(t, write.Close())
	}
}

// tellsEvent reads up to an event that watch tells.
func (p *program) tellsEvent(text string) {
	p.t.Helper()
	for {
		got, err := p.lines.ReadString('\n')
		p.seen.WriteString(got)
		require.NoError(p.t, err, text)
		if regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3}  ` + text + `\n$`).MatchString(got) {
			return
		}
	}
}

// watch tells of releases at once, and of all else when it looks.
func TestWatch(t *testing.T) {
	f := newFixture(t)
	rdb := f.Client(t)
	tells(t, rdb, record.Holds, "job:a", "job:b", "other")
	p := begin(t, f.URL(), "watch", "--interval", "100ms", "job:*")
	line := p.tellsEvent
	line(`held      job:a  plain  by h p\[1\]: "sums"  for \d+\.\ds`)
	line(`held      job:b  plain  by h p\[1\]: "sums"  for \d+\.\ds`)
	redistest.Eventually(t, "it listens", func() bool { return rdb.PubSubNumPat(t.Context()).Val() == 4 })
	f.hold("elsewhere")()
	for _, name := range []string{"job:quick", "job:{tag}x", "job:odd\x1b[2J"} {
		f.hold(name)()
		line(`released  ` + regexp.QuoteMeta(printable(name)))
	}
	for _, key := range rdb.Keys(t.Context(), "rlock_client*").Val() {
		require.NoError(t, rdb.Del(t.Context(), key).Err()) // as that of a process that was killed
	}
	time.Sleep(500 * time.Millisecond)
	f.hold("job:later")()
	line("released  job:later")
	require.NotContains(t, p.seen.String(), "free", "somebody holds what no record names")
	require.NoError(t, rdb.HDel(t.Context(), "job:a", "c:1").Err())
	line(`free      job:a  plain`)
	_, err := rdb.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error { // so that watch does not find it free
		pipe.Del(t.Context(), "job:b")
		pipe.HSet(t.Context(), "job:b", "d:1", 1)
		return nil
	})
	require.NoError(t, err)
	line(`(passed|held) +job:b  (plain  )?by d:1`)
	tells(t, rdb, record.Waits, "job:b")
	line(`waits     job:b  plain  by h p\[1\]: "sums"  for \d+\.\ds`)
	tells(t, rdb, record.Lost, "job:b")
	line(`lost      job:b  plain  by h p\[1\]: "sums"  \(gone\)`)
	p.signal(unix.SIGINT)
	r := p.end()
	require.Zero(t, r.code)
	require.Empty(t, r.stderr)
	require.NotContains(t, r.stdout, "elsewhere")
	require.Empty(t, obeyed(r.stdout))
}

// The releases of a hot lock are a few lines, which leave out none, and other names are not
// printed; as JSON, each release is a line.
func TestWatchOfAHotLock(t *testing.T) {
	f := newFixture(t)
	rdb := f.Client(t)
	const releases = 500
	for _, format := range [][]string{nil, {"--json"}} {
		p := begin(t, f.URL(), append([]string{"watch"}, append(slices.Clone(format), "--only", "hot,*", "--only", "rare", "--not", "*cold", "[hr]*")...)...)
		redistest.Eventually(t, "it listens", func() bool { return rdb.PubSubNumPat(t.Context()).Val() == 4 })
		_, err := rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			for range releases {
				for _, name := range []string{"hot,1", "hot,cold", "elsewhere", "huge"} {
					pipe.Publish(t.Context(), lua.UnlockChannel(name), "0")
				}
			}
			pipe.Publish(t.Context(), lua.UnlockChannel("rare"), "0")
			return nil
		})
		require.NoError(t, err)
		seen, lines := 0, 0
		for rare := false; seen < releases || !rare; {
			line, err := p.lines.ReadString('\n')
			require.NoError(t, err)
			if strings.Contains(line, "rare") {
				rare = true
				continue
			}
			require.Contains(t, line, "hot,1")
			lines++
			n := 1
			if sum := regexp.MustCompile(`^\S+  released  hot,1  (\d+) times in \d+(\.\d)?s\n$`).FindStringSubmatch(line); sum != nil {
				n, err = strconv.Atoi(sum[1])
				require.NoError(t, err)
			}
			seen += n
		}
		require.Equal(t, releases, seen)
		if format == nil {
			require.Less(t, lines, releases)
		} else {
			require.Equal(t, releases, lines)
		}
		p.signal(unix.SIGINT)
		r := p.end()
		require.Zero(t, r.code, r.stderr)
		redistest.Eventually(t, "it has gone", func() bool { return rdb.PubSubNumPat(t.Context()).Val() == 0 })
	}
}

// A run whose lock is taken away ends at once, and is seen to have lost it.
func TestWatchTellsOfAForcedRelease(t *testing.T) {
	f := newFixture(t)
	watch := begin(t, f.URL(), "watch", "--interval", "100ms", "a")
	redistest.Eventually(t, "it listens", func() bool { return f.Client(t).PubSubNumPat(t.Context()).Val() == 4 })
	run := begin(t, f.URL(), "run", "--ttl", "3s", "a", "--", "sh", "-c", "echo ready; exec sleep 1000")
	run.says("ready")
	require.Zero(t, outcome(t, f.URL(), "unlock", "--force", "a").code)
	require.Equal(t, exitLost, run.end().code)
	watch.tellsEvent(`released  a`)
	watch.tellsEvent(`lost      a  plain  by \S+ \S+\[\d+\]: "sh"  \(gone\)`)
}

// While the server is away, watch says why once, and that it is back.
func TestWatchTellsATroubleOnce(t *testing.T) {
	f := newFixture(t)
	rdb := f.Client(t)
	p := begin(t, f.URL(), "watch", "--interval", "100ms", "*")
	redistest.Eventually(t, "it listens", func() bool { return rdb.PubSubNumPat(t.Context()).Val() == 4 })
	f.Kill()
	time.Sleep(time.Second) // for several looks
	f.Restart()
	redistest.Eventually(t, "it listens again", func() bool { return rdb.PubSubNumPat(t.Context()).Val() == 4 })
	redistest.Eventually(t, "a release is heard", func() bool {
		_, _ = rdb.Publish(t.Context(), lua.UnlockChannel("a"), "0").Result()
		line, err := p.lines.ReadString('\n')
		return err == nil && strings.Contains(line, "released")
	})
	time.Sleep(300 * time.Millisecond) // for another look
	p.signal(unix.SIGTERM)
	r := p.end()
	require.Zero(t, r.code)
	said := strings.Split(strings.TrimSpace(r.stderr), "\n")
	require.Equal(t, said, slices.Compact(slices.Clone(said)))
	require.GreaterOrEqual(t, len(said), 2, r.stderr)
	require.Equal(t, "rlock: the server can be looked at again", said[len(said)-1])
}

// rlock watch does not count as a waiter: while it listens, a release still grants the
// lock to the next in the queue.
func TestWatchingChangesNothing(t *testing.T) {
	f := newFixture(t)
	rdb := f.Client(t)
	begin(t, f.URL(), "watch", "--json") // all names
	redistest.Eventually(t, "it listens", func() bool { return rdb.PubSubNumPat(t.Context()).Val() == 4 })
	unlock := f.hold("a")
	next := newFixtureOf(t, f.Server)
	got := make(chan error, 1)
	go func() {
		_, hold, err := next.client.NewLock("a").Lock(t.Context())
		if err == nil {
			err = hold.Unlock(t.Context())
		}
		got <- err
	}()
	redistest.Eventually(t, "it has a ticket", func() bool { return rdb.ZCount(t.Context(), lua.QueueOf("a"), "1", "+inf").Val() == 1 })
	m := f.Monitor(t)
	unlock()
	require.NoError(t, <-got)
	granted, announced := 0, 0
	for _, c := range m.Commands() {
		if c.Client != "lua" || !strings.EqualFold(c.Args[0], "publish") {
			continue
		}
		switch {
		case strings.HasPrefix(c.Args[1], "rlock_channel:{a}:"):
			granted++
		case c.Args[1] == "redisson_lock__channel:{a}":
			announced++
		}
	}
	require.Equal(t, 1, granted, "one message to the next in the queue")
	require.LessOrEqual(t, announced, 1, "when it is free")
}

// The releases of locks whose names, or whose prefix, begin with a hash tag are told, each
// once.
func TestWatchOfHashTags(t *testing.T) {
	f := newFixture(t)
	for _, args := range [][]string{{"watch", "--json", "{user}:*"}, {"--prefix", "{user}:", "watch", "--json", "*"}} {
		rdb := f.Client(t)
		p := begin(t, f.URL(), args...)
		redistest.Eventually(t, "it listens", func() bool { return rdb.PubSubNumPat(t.Context()).Val() == 4 })
		for _, name := range []string{"a", "b"} {
			f.hold("{user}:" + name)()
			line, err := p.lines.ReadString('\n')
			require.NoError(t, err)
			require.Regexp(t, `"event":"released","lock":"({user}:)?`+name+`"`, line)
		}
		p.signal(unix.SIGTERM)
		require.Zero(t, p.end().code)
		redistest.Eventually(t, "it has gone", func() bool { return rdb.PubSubNumPat(t.Context()).Val() == 0 })
	}
}
