package record_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
)

// fixture is a Writer without a server, on the clock of a bubble.
type fixture struct {
	*record.Writer
	mu sync.Mutex // the test has it, unless it waits

	start   time.Time
	tell    record.Snapshot
	looks   int
	writes  []time.Duration // since the start
	removes []time.Duration
	refused int
	err     error
	hangs   time.Duration // each request
	newest  *record.Record
	listed  int64         // clients with a record
	lasts   time.Duration // as the newest snapshot was told
}

var errFinal = errors.New("NOPERM")

// onBubble calls f with a Writer, which is closed after it.
func onBubble(t *testing.T, test func(t *testing.T, f *fixture)) {
	redistest.Bubble(t, func(t *testing.T) {
		f := &fixture{start: time.Now()}
		f.Writer = record.NewWriter(record.Source{
			Who:  func() record.Who { return record.Who{Host: "h", Started: f.start} },
			Take: f.take,
			Send: f.send,

			Final:   func(err error) bool { return err == errFinal },
			Refused: func(error) { f.mu.Lock(); f.refused++; f.mu.Unlock() },
		})
		f.mu.Lock()
		test(t, f)
		f.close(t.Context())
	})
}

// unlocked has the Writer's goroutine go on while wait waits.
func (f *fixture) unlocked(wait func()) {
	f.mu.Unlock()
	defer f.mu.Lock()
	wait()
}

func (f *fixture) close(ctx context.Context) { f.unlocked(func() { f.Close(ctx) }) }

func (f *fixture) take(_ time.Time, lasts time.Duration) record.Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	f.lasts = lasts
	return f.tell
}

func (f *fixture) send(ctx context.Context, r *record.Record) (listed int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if hangs := time.After(f.hangs); f.hangs > 0 {
		f.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-hangs:
		}
		f.mu.Lock()
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	if r == nil {
		f.removes = append(f.removes, time.Since(f.start))
	} else {
		f.writes = append(f.writes, time.Since(f.start))
		f.newest = r
	}
	return f.listed, f.err
}

// after lets time pass.
func (f *fixture) after(d time.Duration) {
	f.unlocked(func() {
		time.Sleep(time.Until(f.start.Add(d)))
		synctest.Wait()
	})
}

const s = time.Second

func entries() []record.Entry { return []record.Entry{{What: record.Holds, Name: "a"}} }

// Of very many clients, each writes less often: a thousand records in a second together. A record lasts
// three intervals, and says so to its readers.
func TestManyClientsWriteLessOften(t *testing.T) {
	onBubble(t, func(t *testing.T, f *fixture) {
		f.tell.Entries = entries()
		f.listed = 10_000
		f.Notice()
		f.after(12 * s)
		f.listed = 100_000
		f.after(250 * s)
		require.Equal(t, []time.Duration{1 * s, 11 * s, 21 * s, 121 * s, 221 * s}, f.writes)
		require.Equal(t, 300*s, f.lasts)
		fields := make(map[string]string)
		for words := f.newest.Fields(); len(words) > 0; words = words[2:] {
			fields[words[0].(string)] = words[1].(string)
		}
		r := record.Read(fields)
		require.Equal(t, 300*s, r.Lasts)
		require.Equal(t, 40*s, r.Age(record.Entry{Since: r.Written}, 260*s))
		f.listed = 1 << 30
		f.after(630 * s)
		f.listed = 1
		f.after(940 * s)
		require.Equal(t, []time.Duration{321 * s, 621 * s, 921 * s, 931 * s}, f.writes[5:], "5 minutes at most")
	})
}

// Nothing is sent, and nobody looks, as long as there is nothing to tell.
func TestNothingToTell(t *testing.T) {
	onBubble(t, func(t *testing.T, f *fixture) {
		f.after(time.Hour)
		require.Zero(t, f.looks)
		f.Notice()
		f.after(2 * time.Hour)
		require.Equal(t, 1, f.looks, "the goroutine has ended")
		require.Empty(t, f.writes)
		f.tell.Next = time.Now().Add(time.Minute)
		f.Notice()
		f.after(2*time.Hour + 30*s)
		require.Equal(t, 2, f.looks)
		f.tell.Next = time.Time{}
		f.after(3 * time.Hour)
		require.Equal(t, 3, f.looks)
	})
	onBubble(t, func(t *testing.T, f *fixture) { require.NotPanics(t, (*record.Writer)(nil).Notice) })
}

// Hot names are enough for a record.
func TestHotNamesAlone(t *testing.T) {
	onBubble(t, func(t *testing.T, f *fixture) {
		f.tell.Hot = []record.Hot{{Name: "a", Waiting: 1}}
		f.Notice()
		f.after(3 * s)
		require.Equal(t, []time.Duration{1 * s}, f.writes)
		require.Equal(t, f.tell.Hot, f.newest.Hot)
		f.tell.Hot = nil
		f.after(12 * s)
		require.Equal(t, []time.Duration{11 * s}, f.removes)
	})
}

// A record is written after a second, each ten seconds, and removed when there is nothing
// to tell any more: never more than one of these within ten seconds.
func TestPace(t *testing.T) {
	onBubble(t, func(t *testing.T, f *fixture) {
		f.tell.Entries = entries()
		for range 100 {
			f.Notice()
		}
		f.after(25 * s)
		require.Equal(t, []time.Duration{1 * s, 11 * s, 21 * s}, f.writes)
		f.tell.Entries = nil
		f.after(26 * s)
		f.tell.Entries = entries()
		f.after(30 * s)
		f.tell.Entries = nil
		f.after(35 * s)
		require.Equal(t, []time.Duration{31 * s}, f.removes)
		f.tell.Entries = entries()
		f.Notice()
		f.after(45 * s)
		require.Equal(t, []time.Duration{1 * s, 11 * s, 21 * s, 41 * s}, f.writes)
		f.close(t.Context())
		require.Equal(t, []time.Duration{31 * s, 45 * s}, f.removes, "at once")
		f.Notice()
		f.after(time.Hour)
		require.Len(t, f.writes, 4)
		f.close(t.Context())
		require.Len(t, f.removes, 2)
	})
}

// What should not wait is told at once, but not more often than each second. All else keeps its
// pace.
func TestHurry(t *testing.T) {
	onBubble(t, func(t *testing.T, f *fixture) {
		f.tell.Entries = entries()
		f.Hurry()
		f.after(0)
		require.Equal(t, []time.Duration{0}, f.writes)
		f.after(400 * time.Millisecond)
		for range 10 {
			f.Hurry()
		}
		f.after(5 * s)
		require.Equal(t, []time.Duration{0, s}, f.writes)
		f.Hurry()
		f.after(16 * s)
		require.Equal(t, []time.Duration{0, s, 5 * s, 15 * s}, f.writes)
		f.tell.Entries = nil
		f.after(24 * s)
		require.Empty(t, f.removes)
		f.after(26 * s)
		require.Equal(t, []time.Duration{25 * s}, f.removes)
	})
	onBubble(t, func(t *testing.T, f *fixture) { require.NotPanics(t, (*record.Writer)(nil).Hurry) })
}

// Close leaves a record of the losses, and of nothing else; not at a server that refuses.
func TestCloseLeavesLosses(t *testing.T) {
	lost := append(entries(), record.Entry{What: record.Lost, Name: "b"}, record.Entry{What: record.Waits, Name: "c"})
	for _, written := range []bool{false, true} {
		onBubble(t, func(t *testing.T, f *fixture) {
			if f.tell.Entries = entries(); written {
				f.Notice()
				f.after(3 * s)
			}
			f.tell.Entries, f.tell.Hot = slices.Clone(lost), []record.Hot{{Name: "d", Waiting: 1}}
			f.Notice()
			f.close(t.Context())
			require.Equal(t, lost[1:2], f.newest.Entries)
			require.Empty(t, f.newest.Hot)
			require.Empty(t, f.removes)
		})
	}
	onBubble(t, func(t *testing.T, f *fixture) {
		f.tell.Entries, f.err = slices.Clone(lost), errFinal
		f.Notice()
		f.after(3 * s)
		f.close(t.Context())
		require.Len(t, f.writes, 1)
	})
}

// Whoever notices something while the goroutine is about to end is not overlooked.
func TestNoticedWhileItLooks(t *testing.T) {
	onBubble(t, func(t *testing.T, f *fixture) {
		f.Take = func(now time.Time, lasts time.Duration) record.Snapshot {
			got := f.take(now, lasts)
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.looks == 1 {
				f.tell.Entries = entries()
				f.Notice()
			}
			return got
		}
		f.Notice()
		f.after(3 * s)
		require.Equal(t, []time.Duration{2 * s}, f.writes)
	})
}

// A server that fails is asked again as if it had answered; one that refuses is left alone.
func TestFailures(t *testing.T) {
	onBubble(t, func(t *testing.T, f *fixture) {
		f.tell.Entries, f.err = entries(), errors.New("no network")
		f.Notice()
		f.after(25 * s)
		require.Equal(t, []time.Duration{1 * s, 11 * s, 21 * s}, f.writes)
		require.Zero(t, f.refused)
		f.err = errFinal
		f.after(20 * time.Minute)
		require.Equal(t, []time.Duration{1 * s, 11 * s, 21 * s, 31 * s, 10*time.Minute + 31*s}, f.writes)
		require.Equal(t, 1, f.refused, "told once")
		f.err = nil
		f.after(21 * time.Minute)
		require.Len(t, f.writes, 8)
	})
}

// A hook of the application that ends the goroutine costs that record, and no later one.
func TestGoexit(t *testing.T) {
	onBubble(t, func(t *testing.T, f *fixture) {
		f.Send = func(context.Context, *record.Record) (int64, error) {
			runtime.Goexit()
			return 0, nil
		}
		f.tell.Entries = entries()
		f.Notice()
		f.after(2 * s)
		f.Send = f.send
		f.Notice()
		f.after(20 * s)
		require.Equal(t, []time.Duration{11 * s}, f.writes)
	})
}

// Close waits for a request under way, so that the record is removed after it; but not for
// longer than its context.
func TestCloseWhileAWriteHangs(t *testing.T) {
	onBubble(t, func(t *testing.T, f *fixture) {
		f.tell.Entries, f.hangs = entries(), 1500*time.Millisecond
		f.Notice()
		f.after(2 * s)
		f.close(t.Context())
		require.Equal(t, []time.Duration{2500 * time.Millisecond}, f.writes)
		require.Equal(t, []time.Duration{4 * s}, f.removes)
	})
	onBubble(t, func(t *testing.T, f *fixture) {
		f.tell.Entries, f.hangs = entries(), time.Hour
		f.Notice()
		f.after(2 * s)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		f.close(ctx)
		require.Equal(t, 2100*time.Millisecond, time.Since(f.start))
		f.after(10 * s) // the goroutine ends by itself
		require.Empty(t, f.writes)
		require.Empty(t, f.removes)
	})
}

func TestRates(t *testing.T) {
	onBubble(t, func(t *testing.T, f *fixture) {
		f.tell = record.Snapshot{Entries: entries(), Rates: record.Rates{Acquired: 5}}
		f.Notice()
		f.after(1 * s)
		require.InDelta(t, 5, f.newest.PerSecond, 0.1, "since the start")
		f.tell.Rates = record.Rates{Acquired: 25, Lost: 1}
		f.after(11 * s)
		require.Equal(t, record.Rates{Acquired: 25, Lost: 1, PerSecond: 2}, f.newest.Rates)
		f.tell.Entries = nil
		f.after(22 * s)
		require.Len(t, f.removes, 1)
		f.tell.Entries, f.tell.Rates.Acquired = entries(), 125
		f.Notice()
		f.after(32 * s)
		require.Len(t, f.writes, 3)
		require.InDelta(t, 100/(f.writes[2]-f.writes[1]).Seconds(), f.newest.PerSecond, 0.1, "since the newest record")
		require.Equal(t, "h", f.newest.Host)
	})
}
