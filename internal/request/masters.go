package request

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Masters sends each call to the master of the key's slot. Each master has a [Group], so that a silent
// or dead master delays no call to another master. A replica is never asked.
//
// The client's map of the cluster tells the master of a slot. The map may be out of date, or the slot
// may be moving: a redirected call is sent again alone, through the client of the cluster, and go-redis
// finds the right node and loads the map anew. When a silent node is replaced, the calls for the
// successor leave the node's group.
//
// A hook of the application sees the pipelines of a master only if it was added by OnNewNode, as redisotel
// does, and not if it was added to the client of the cluster.
type Masters struct {
	Config
	pool
	cluster  *redis.ClusterClient
	readOnly bool        // the client also reads from replicas
	known    atomic.Bool // the client has loaded its map

	mu     sync.Mutex               // guards what follows
	groups map[*redis.Client]*Group // of the masters asked so far
}

func newMasters(config Config, cluster *redis.ClusterClient) *Masters {
	m := &Masters{
		Config: config, cluster: cluster, readOnly: cluster.Options().ReadOnly,
		groups: make(map[*redis.Client]*Group),
	}
	m.home = m
	return m
}

// Server implements [Carrier]. Each master is a server, so that no caller is held back because of
// orphans on another master.
func (m *Masters) Server(key string) Server {
	if g := m.group(key); g != nil {
		return g
	}
	return nowhere{}
}

// nowhere is the server of a key as long as the client has no map. Calls are then sent one by
// one, and never held back.
type nowhere struct{}

func (nowhere) Hold(bool) {}

func (m *Masters) process(c *Call) error {
	bound, until := c.opts.Bound, time.Now().Add(c.opts.Bound)
	defer func() { c.opts.Bound = bound }()
	for {
		g := m.group(c.opts.Key)
		if g == nil {
			if err := m.load(c); err != nil {
				return err
			}
			if g = m.group(c.opts.Key); g == nil {
				if c.opts.Trailer != (Trailer{}) {
					return ErrCrowded
				}
				return m.alone(c)
			}
			c.opts.Bound = time.Until(until)
		}
		err := g.process(c)
		c.opts.Bound = time.Until(until)
		switch {
		case err == ErrReplaced && c.opts.Bound > 0:
		case c.opts.Trailer != (Trailer{}): // go-redis cannot route the trailer: the caller follows a redirection
			m.sentAway(err)
			return err
		case m.sentAway(err) && c.opts.Bound > 0:
			return m.alone(c)
		case m.readOnly && moved(err):
			return ErrReplaced
		default:
			return err
		}
	}
}

// sentAway reports whether the call was redirected, and must look for the right node now. A client for
// reading from replicas must not look after MOVED: go-redis would first ask the same node again; the
// node may have become a replica, and a replica executes scripts of such a client. The calls end with
// ErrReplaced, and are made again with a new map.
func (m *Masters) sentAway(err error) bool {
	if moved(err) {
		m.Reload()
		return !m.readOnly
	}
	_, asked := redis.IsAskError(err)
	return asked || errors.Is(err, redis.ErrClosed) // the node has left the cluster
}

// moved reports whether err says that another node has the slot.
func moved(err error) bool {
	_, moved := redis.IsMovedError(err)
	return moved
}

// group returns the group of the master of a key, nil if the master is not known yet. Before making a
// new group, group forgets each unused group whose master has lost the slot of the group's first key;
// such a group is made again when needed.
func (m *Masters) group(key string) *Group {
	node := m.master(key)
	if node == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.groups[node]
	if g == nil {
		maps.DeleteFunc(m.groups, func(_ *redis.Client, g *Group) bool { return g.replaced(g.first) && g.unused() })
		g = m.newGroup(node, key)
		m.groups[node] = g
	}
	return g
}

// master is the master of a key by the client's map, nil without one. master does not block.
func (m *Masters) master(key string) *redis.Client {
	if !m.known.Load() { // go-redis would load the map now
		return nil
	}
	node, err := m.cluster.MasterForKey(context.Background(), key)
	if err != nil {
		return nil
	}
	return node
}

func (m *Masters) newGroup(node *redis.Client, key string) *Group {
	config := m.Config
	config.Client = node
	g := NewGroup(config)
	g.first, g.guard = key, m.readOnly
	g.replaced = func(key string) bool { return m.master(key) != node }
	return g
}

// unused reports whether nothing of a group is under way or held back.
func (g *Group) unused() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.hold && g.ready.n+g.held.n+len(g.open)+g.starting == 0
}

// load has the client load the map, from any node. Sending the command by the client of the cluster
// would also load the map, and then ask any node for the list of commands: two nodes unrelated to the
// key, and each may hang.
func (m *Masters) load(c *Call) error {
	key := c.opts.Key
	_, err := Detached(c.ctx, m.apart(c), func(ctx context.Context) (struct{}, error) {
		_, err := m.cluster.MasterForKey(ctx, key)
		if err == nil {
			m.known.Store(true)
		}
		return struct{}{}, err
	}, nil)
	switch err {
	case ErrAbandoned: // the command was not sent
		return ErrNotSent
	case ErrNoAnswer:
		return ErrCrowded
	}
	return err
}

// alone sends the command of one call by the client of the cluster.
func (m *Masters) alone(c *Call) error {
	var late func(struct{}, error)
	if tell := c.opts.Late; tell != nil {
		late = func(_ struct{}, err error) { tell(cmp.Or(err, ErrUnread)) }
	}
	cmd := c.cmd // the call may be another's by then
	ctx, copied := Doubtful(c.ctx)
	_, err := Detached(ctx, m.apart(c), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, m.Process(ctx, cmd)
	}, late)
	if copied() {
		c.copied = true
		doubt(c.ctx)
	}
	return err
}

// apart returns the way of a call without a group.
func (m *Masters) apart(c *Call) Alone {
	background := func(f func()) {
		m.Begin()
		go func() {
			defer m.End()
			f()
		}()
	}
	return Alone{Background: background, Bound: c.opts.Bound, Stop: c.opts.Stop}
}
