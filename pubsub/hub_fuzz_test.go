package pubsub_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

// FuzzEvents: whatever the first connections say, asked or not, the hub neither
// panics nor hangs, and its waiters are served as soon as one tells the truth.
func FuzzEvents(f *testing.F) {
	f.Add([]byte{0, 5, 3, 4, 0}, "0")                     // join, confirmed, message
	f.Add([]byte{0, 1, 3, 2, 13, 4}, "1")                 // three, both channels
	f.Add([]byte{0, 5, 7, 8, 9, 10}, "")                  // answers nobody asked for
	f.Add([]byte{0, 6, 11, 0, 6}, "owner:1 30000")        // refusals, an error, another connection
	f.Add([]byte{33, 0, 5, 4, 33, 33, 49, 5, 11, 5}, "x") // subscriptions come and go
	f.Add([]byte{0, 5, 2, 12, 12, 0, 14, 5}, "\x80")
	f.Fuzz(func(t *testing.T, steps []byte, payload string) {
		redistest.Bubble(t, func(t *testing.T) {
			s := &script{}
			h := pubsub.NewHub(s, pubsub.Options{})
			waiters := map[string][]*waiter{}
			subs := map[string]*ear{}
			for _, step := range steps[:min(len(steps), 64)] {
				channel := []string{"a", "b"}[step>>4&1]
				all := waiters[channel]
				switch step & 15 {
				case 1:
					if e := subs[channel]; step&32 != 0 && e != nil {
						e.Close()
						delete(subs, channel)
					} else if step&32 != 0 {
						subs[channel] = listen(h, channel)
						break
					}
					fallthrough
				case 0:
					waiters[channel] = append(all, newWaiter(h, channel))
				case 2:
					if len(all) > 0 {
						all[0].Leave()
						waiters[channel] = all[1:]
					}
				case 3:
					if len(all) > 0 {
						awake(all[len(all)-1])
					}
				case 4:
					s.say(pubsub.Event{Kind: pubsub.Message, Channel: channel, Payload: payload})
				case 5:
					s.say(pubsub.Event{Kind: pubsub.Subscribed, Channel: channel})
				case 6:
					s.say(pubsub.Event{Kind: pubsub.Refused, Err: errors.New("ERR " + payload)})
				case 7:
					s.say(pubsub.Event{Kind: pubsub.Unsubscribed, Channel: channel})
				case 8:
					s.say(pubsub.Event{Kind: pubsub.Message, Channel: payload, Payload: payload})
				case 9:
					s.say(pubsub.Event{Kind: pubsub.Kind(int8(len(payload))), Channel: payload, Err: errBroken})
				case 10:
					s.say(pubsub.Event{Kind: pubsub.Pong})
				case 11:
					s.fail()
				case 12:
					time.Sleep(time.Second)
				case 13:
					time.Sleep(7 * time.Second)
				case 15:
					s.say(pubsub.Event{Kind: pubsub.Moved, Err: errors.New("ERR " + payload)})
				case 14:
					time.Sleep(31 * time.Second)
				}
				synctest.Wait()
			}

			s.mu.Lock()
			s.honest = true
			s.mu.Unlock()
			s.fail()
			time.Sleep(2 * time.Minute)
			for channel, all := range waiters {
				served(t, s, channel, payload, all)
			}
			for channel, e := range subs {
				before := len(e.messages())
				s.say(pubsub.Event{Kind: pubsub.Message, Channel: channel, Payload: payload})
				synctest.Wait()
				if after := e.messages(); !e.told() || len(after) != before+1 || after[before] != payload {
					t.Errorf("the subscription of %q is told %v, and has heard %q", channel, e.told(), after[before:])
				}
				e.Close()
			}
			if err := h.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
			for _, all := range waiters {
				for _, w := range all {
					w.Leave()
				}
			}
		})
	})
}

// served takes the wake-ups of all, and checks that a message wakes each.
func served(t *testing.T, s *script, channel, payload string, all []*waiter) {
	t.Helper()
	for i, w := range all {
		if !w.Live() {
			t.Errorf("waiter %d of %q is not live", i, channel)
		}
		awake(w)
	}
	s.say(pubsub.Event{Kind: pubsub.Message, Channel: channel, Payload: payload})
	synctest.Wait()
	for i, w := range all {
		if !awake(w) {
			t.Fatalf("the message %q has not woken waiter %d of %q", payload, i, channel)
		}
	}
}

// script is a server that says what it is told to.
type script struct {
	mu     sync.Mutex // guards what follows
	honest bool       // new connections answer what they are asked
	conn   *scripted
}

type scripted struct {
	honest bool
	events chan pubsub.Event
	broken chan struct{} // capacity 1
	ended  chan struct{}
}

func (s *script) Find(context.Context, string) (string, error) { return "", nil }
func (s *script) Refresh(context.Context)                      {}

func (s *script) Open(context.Context, string, string) (pubsub.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = &scripted{s.honest, make(chan pubsub.Event, 1<<10), make(chan struct{}, 1), make(chan struct{})}
	return s.conn, nil
}

func (s *script) say(e pubsub.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.events <- e
	}
}

func (s *script) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		select {
		case s.conn.broken <- struct{}{}:
		default:
		}
	}
}

func (c *scripted) answer(e pubsub.Event) error {
	if c.honest {
		c.events <- e
	}
	return nil
}

func (c *scripted) Subscribe(channel string) error {
	return c.answer(pubsub.Event{Kind: pubsub.Subscribed, Channel: channel})
}

func (c *scripted) Unsubscribe(channel string) error {
	return c.answer(pubsub.Event{Kind: pubsub.Unsubscribed, Channel: channel})
}

func (c *scripted) Probe(context.Context) (bool, error) {
	return true, c.answer(pubsub.Event{Kind: pubsub.Pong})
}

func (c *scripted) Receive() (pubsub.Event, error) {
	select {
	case e := <-c.events:
		return e, nil
	case <-c.broken:
		return pubsub.Event{}, errBroken
	case <-c.ended:
		return pubsub.Event{}, errBroken
	}
}

func (c *scripted) Close() error {
	close(c.ended)
	return nil
}
