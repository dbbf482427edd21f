package kind

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
)

// fake is a server as a client sees it, in the time of a bubble and without a network. It
// answers each command with what a test says, after a while if that sleeps.
type fake struct {
	*Server
	wire *wire

	mu     sync.Mutex // guards what follows
	answer func(ctx context.Context, words []any) any
	owners int
	sent   [][]any // words of commands
	sizes  []int   // of pipelines; 1 for a command by itself
	swept  []sweep
}

// sweep is a release in the background that a kind has asked for.
type sweep struct {
	server, owner string
	silent, late  bool
	likely        bool // there is something of the owner
	gathers       bool // it may be sent with others
	at            time.Time
}

// String leaves out the owner, and when it was.
func (s sweep) String() string {
	text := s.server
	if s.silent {
		text += " silent"
	}
	if s.late {
		text += " late"
	}
	return text
}

// newFake returns a server that grants, renews and releases everything.
func newFake(t *testing.T, id string) *fake {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	f := &fake{wire: &wire{}}
	f.answers(func(context.Context, []any) any { return int64(1) })
	rdb.AddHook(redistest.Answers(f.serve))
	f.Server = &Server{
		ID: id, RDB: rdb, Log: slog.New(slog.DiscardHandler), Scripts: rdb, Trailed: trailed(rdb), Hub: pubsub.NewHub(f.wire, pubsub.Options{}), Channels: NewChannels(nil, id, nil, ShardingOff),
		Closed:     func() error { return nil },
		Owner:      f.owner,
		Background: func(f func()) { go f() },
		Sweep:      f.sweep,
		Sleep:      func(ctx context.Context, d time.Duration) bool { return request.Sleep(ctx, nil, d) },
	}
	t.Cleanup(func() {
		assert.NoError(t, f.Hub.Close(context.Background()))
		assert.NoError(t, rdb.Close())
	})
	return f
}

// maxTrailed is how many pipelines with a trailer are under way at once in these tests.
const maxTrailed = 4

// trailed returns what sends scripts with a trailer.
func trailed(rdb redis.UniversalClient) request.Carrier {
	return request.NewCarrier(request.Config{
		Client: rdb, Begin: func() {}, End: func() {}, Senders: maxTrailed, Callers: true,
		Reload: func() {
			if cluster, ok := rdb.(*redis.ClusterClient); ok {
				cluster.ReloadState(context.Background())
			}
		},
		Send: func(ctx context.Context, rdb redis.UniversalClient, cmds []redis.Cmder, _ bool) bool {
			return lua.Send(ctx, rdb, cmds, false)
		},
	})
}

// newFakes returns servers a, b and c.
func newFakes(t *testing.T) (all []*fake, servers []*Server) {
	for _, id := range []string{"a", "b", "c"} {
		f := newFake(t, id)
		all, servers = append(all, f), append(servers, f.Server)
	}
	return all, servers
}

// answers has the server answer each command so. An error is an error reply.
func (f *fake) answers(answer func(ctx context.Context, words []any) any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *fake) owner() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owners++
	return fmt.Sprint(f.ID, ":", f.owners)
}

func (f *fake) serve(ctx context.Context, cmds ...redis.Cmder) (err error) {
	f.mu.Lock()
	answer := f.answer
	f.sizes = append(f.sizes, len(cmds))
	for _, cmd := range cmds {
		f.sent = append(f.sent, cmd.Args())
	}
	f.mu.Unlock()
	for _, cmd := range cmds {
		words := cmd.Args()
		cmd = unnoted(cmd)
		switch value := answer(ctx, words).(type) {
		case error:
			cmd.SetErr(value)
			err = value
		case string:
			cmd.(interface{ SetVal(string) }).SetVal(value)
		case int64:
			if count, ok := cmd.(*redis.IntCmd); ok {
				count.SetVal(value)
				continue
			}
			cmd.(interface{ SetVal(any) }).SetVal(value)
		default:
			cmd.(interface{ SetVal(any) }).SetVal(value)
		}
	}
	return err
}

// unnoted is the command in the note of package request, if cmd is such a note.
func unnoted(cmd redis.Cmder) redis.Cmder {
	if inner := reflect.Indirect(reflect.ValueOf(cmd)).FieldByName("Cmder"); inner.IsValid() {
		return inner.Interface().(redis.Cmder)
	}
	return cmd
}

func (f *fake) sweep(k Kind, owner string, _ time.Duration, late, likely bool) {
	b := k.(givenBack)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.swept = append(f.swept, sweep{b.server.ID, owner, b.silent, late, likely, k.Gathers(false), time.Now()})
}

// commands returns what the server was sent since the last call.
func (f *fake) commands() [][]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent := f.sent
	f.sent = nil
	return sent
}

// sweeps are those of several servers.
func sweeps(all []*fake) (swept []sweep) {
	for _, f := range all {
		f.mu.Lock()
		swept = append(swept, f.swept...)
		f.mu.Unlock()
	}
	return swept
}

// texts are sweeps as a table has them.
func texts(swept []sweep) (all []string) {
	for _, s := range swept {
		all = append(all, s.String())
	}
	return all
}

// requireSwept fails if the servers were asked for other sweeps, or for those of another owner.
func requireSwept(t *testing.T, all []*fake, owner string, want []string) {
	t.Helper()
	require.Equal(t, want, texts(sweeps(all)))
	for _, s := range sweeps(all) {
		require.Equal(t, owner, s.owner)
	}
}

// wire is the connection of a subscriber. It confirms each subscription at once, or late, unless it is deaf.
type wire struct {
	deaf bool
	late time.Duration

	mu     sync.Mutex // guards events
	events chan pubsub.Event
}

func (w *wire) Find(context.Context, string) (string, error) { return "", nil }
func (w *wire) Refresh(context.Context)                      {}

func (w *wire) Open(context.Context, string, string) (pubsub.Source, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = make(chan pubsub.Event, 100)
	return w, nil
}

func (w *wire) Subscribe(channel string) error {
	switch confirmed := (pubsub.Event{Kind: pubsub.Subscribed, Channel: channel}); {
	case w.deaf:
	case w.late > 0:
		time.AfterFunc(w.late, func() { w.tell(confirmed) })
	default:
		w.tell(confirmed)
	}
	return nil
}

func (w *wire) Unsubscribe(channel string) error {
	w.tell(pubsub.Event{Kind: pubsub.Unsubscribed, Channel: channel})
	return nil
}

func (w *wire) Probe(context.Context) (bool, error) {
	w.tell(pubsub.Event{Kind: pubsub.Pong})
	return true, nil
}

func (w *wire) Receive() (pubsub.Event, error) {
	w.mu.Lock()
	events := w.events
	w.mu.Unlock()
	e, ok := <-events
	if !ok {
		return e, context.Canceled
	}
	return e, nil
}

func (w *wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.events)
	w.events = nil
	return nil
}

// tell brings an event to the hub.
func (w *wire) tell(e pubsub.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.events != nil {
		w.events <- e
	}
}
