package record_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
)

// now has whole milliseconds, as a record has.
func now() time.Time { return time.UnixMilli(time.Now().UnixMilli()) }

// hash returns the fields as the server has them.
func hash(t *testing.T, fields []any) map[string]string {
	t.Helper()
	m := make(map[string]string)
	for i := 0; i < len(fields); i += 2 {
		require.NotContains(t, m, fields[i])
		m[fields[i].(string)] = fields[i+1].(string)
	}
	return m
}

// What is written is read again, whatever the names are.
func TestRoundTrip(t *testing.T) {
	at := now()
	r := record.Record{
		Who:   record.Who{Host: "web-1", PID: 42, Program: "api", Version: "v1.2.3", Started: at.Add(-time.Hour)},
		Rates: record.Rates{Acquired: 17, Lost: 2, PerSecond: 0.5}, Written: at,
	}
	for i, name := range []string{"a", "", ":", "wait:x", "with space\nand\x1b[2J", "\xff\x00", "host", strings.Repeat("n", 10<<10), "a{b}"} {
		for _, what := range []record.What{record.Holds, record.Waits, record.Keeps, record.Lost} {
			r.Entries = append(r.Entries, record.Entry{
				What: what, Name: name, Kind: "plain", Purpose: "monthly \"invoices\" €", Owner: "x:1", Cause: "gone", Since: at.Add(-time.Duration(i) * time.Second), Count: i + 1,
			})
		}
	}
	for i, e := range r.Entries[:record.MaxHot] {
		r.Hot = append(r.Hot, record.Hot{Name: e.Name + fmt.Sprint(i), Group: []string{"", "orders of 1 \"day\" €"}[i%2], PerSecond: 0.25, Waiting: 19.125, Most: i})
	}
	for i := range r.Entries {
		if e := &r.Entries[i]; e.What == record.Waits {
			e.AddUnder(record.Under{Owner: "x:1", Since: at, Ends: true}, record.Under{Owner: "y-poll:2", Since: at.Add(-time.Hour)})
			e.Cycle = `x:1 holds "` + e.Name[:min(len(e.Name), 100)] + `" and waits = for "b"`
		}
	}
	got := record.Read(hash(t, r.Fields()))
	require.ElementsMatch(t, r.Hot, got.Hot)
	got.Hot, r.Hot = nil, nil
	require.Len(t, got.Entries, len(r.Entries))
	for _, e := range got.Entries {
		require.Contains(t, r.Entries, e)
	}
	got.Entries, r.Entries = nil, nil
	require.Equal(t, r, got)
}

// The calls of a wait that own locks are few, and one for each owner. What is no such call is left out.
func TestUnder(t *testing.T) {
	e := record.Entry{What: record.Waits, Name: "a", Since: now(), Count: 1, Cycle: strings.Repeat("é", 10<<10)}
	for i := range 100 {
		e.AddUnder(record.Under{Owner: fmt.Sprint("x:", i/2), Since: now()})
	}
	require.Len(t, e.Under, record.MaxUnder)
	require.Equal(t, "x:31", e.Under[31].Owner)
	got := record.Read(hash(t, (&record.Record{Entries: []record.Entry{e}}).Fields())).Entries[0]
	require.Equal(t, strings.Repeat("é", 2<<10), got.Cycle)
	require.Equal(t, e.Under, got.Under)

	got = record.Read(map[string]string{"wait:a": "since=1 under=,@,x:1@,@5,x:2@7!!,x:3@8!,x:3@9,x:4@10?,x:5@-1 cycle=%zz n=2"}).Entries[0]
	require.Equal(t, []record.Under{{Owner: "x:3", Since: time.UnixMilli(8), Ends: true}, {Owner: "x:5", Since: time.UnixMilli(0)}}, got.Under)
	require.Empty(t, got.Cycle)
	require.Equal(t, 2, got.Count)
}

// A record of another version has more, or other, fields.
func TestReadsWhatItKnows(t *testing.T) {
	got := record.Read(map[string]string{
		"host": "h", "pid": "x", "shoe size": "42", "hold:a": "mood=good since=1 = x", "hold:b": "since=yesterday", "hold:c": "", "dream:d": "since=1",
		"wait:e": "n=-3 since=2 purpose=since=x n=7", "per_second": "many", "written": "99999999999999999999", "more": "1e9",
	})
	require.Equal(t, "h", got.Host)
	require.Len(t, got.Entries, 2)
	for _, e := range got.Entries {
		require.Contains(t, []string{"a", "e"}, e.Name)
		require.Equal(t, 1, e.Count)
		require.Contains(t, []string{"", "since=x n=7"}, e.Purpose)
	}
	require.Empty(t, record.Read(nil).Entries)
	got = record.Read(map[string]string{
		"hot:a": "waiting=2 longest=40 per_second=-1 most=-7 group=x most=1", "hot:b": "waiting=NaN", "hot:c": "waiting=-1", "hot:d": "per_second=7", "hot": "waiting=1",
	})
	require.Equal(t, []record.Hot{{Name: "a", Waiting: 2, Group: "x most=1"}}, got.Hot)
	got = record.Read(map[string]string{"hot:a": "waiting=1e308 most=9223372036854775807"})
	require.Equal(t, []record.Hot{{Name: "a", Waiting: 1e9, Most: 1e9}}, got.Hot, "readers add up those of many clients")
	for _, rate := range []string{"NaN", "Inf", "-Inf", "1e999", "-1"} { // what can be read has to be told as JSON
		got := record.Read(map[string]string{"per_second": rate, "started": "9000000000000000", "written": "-9000000000000000", "hold:a": "since=9000000000000000"})
		require.Zero(t, got.PerSecond, rate)
		_, err := json.Marshal([]any{got.PerSecond, got.Started, got.Written, got.Entries[0].Since})
		require.NoError(t, err)
	}
}

func TestBounds(t *testing.T) {
	r := record.Record{Who: record.Who{Host: strings.Repeat("h", 1000)}, More: 1}
	for i := range 3000 {
		r.Entries = append(r.Entries, record.Entry{What: record.Holds, Name: fmt.Sprint(i), Purpose: strings.Repeat("€", 1000)})
	}
	for i := range 20 {
		r.Hot = append(r.Hot, record.Hot{Name: fmt.Sprint(i), Group: strings.Repeat("€", 1000), Waiting: 1})
	}
	size := func(fields []any) (n int) {
		for _, f := range fields {
			n += len(f.(string))
		}
		return n
	}
	require.Less(t, size(r.Fields()), 300<<10)
	for i := range r.Entries {
		r.Entries[i].Purpose = ""
	}
	got := record.Read(hash(t, r.Fields()))
	require.Len(t, got.Entries, 1000)
	require.Equal(t, 2001, got.More)
	require.Len(t, got.Host, 256)
	require.Len(t, got.Hot, 10)
	for i := range r.Entries {
		r.Entries[i].Name += strings.Repeat("n", 64<<10)
	}
	for i := range r.Hot {
		r.Hot[i].Name += strings.Repeat("n", 10<<10)
	}
	require.Len(t, record.Read(hash(t, r.Fields())).Hot, 3)
	require.Less(t, size(r.Fields()), 300<<10)
}

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"a\xffb":                 "a\uFFFDb",
		strings.Repeat("€", 100): strings.Repeat("€", 85),
		strings.Repeat("a", 256): strings.Repeat("a", 256),
		strings.Repeat("a", 257): strings.Repeat("a", 256),
	} {
		require.Equal(t, want, record.Clean(text))
	}
	require.LessOrEqual(t, len(record.Clean(strings.Repeat("\xff", 300))), 256)
}

// The age of an entry is that of its client, and what the server says of the record's.
func TestAge(t *testing.T) {
	r := record.Record{Written: time.UnixMilli(1_000_000)}
	e := record.Entry{Since: time.UnixMilli(940_000)}
	require.Equal(t, time.Minute, r.Age(e, record.Lasts))
	require.Equal(t, 67*time.Second, r.Age(e, record.Lasts-7*time.Second))
	require.Equal(t, time.Minute, r.Age(e, record.Lasts+time.Second))
	require.Zero(t, r.Age(record.Entry{Since: r.Written.Add(time.Hour)}, record.Lasts))
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Dials) }
