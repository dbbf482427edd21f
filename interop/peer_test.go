package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

const peerEnv = "RLOCK_INTEROP_PEER"

// goPeer runs this test binary as a peer.
func goPeer(tb testing.TB) *process {
	tb.Helper()
	exe, err := os.Executable()
	require.NoError(tb, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), peerEnv+"=1")
	return startProcess(tb, cmd)
}

// peer is the other end of a process: the counterpart of Peer.java.
type peer struct {
	mu      sync.Mutex // guards what follows, and standard output
	parties map[string]*goParty
	actors  map[string]*goActor
	queues  map[string]chan []string // by actor; never closed: the process ends
}

// runPeer answers requests until standard input ends.
func runPeer() {
	p := &peer{parties: make(map[string]*goParty), actors: make(map[string]*goActor), queues: make(map[string]chan []string)}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		word := strings.Split(in.Text(), " ")
		queue := p.queues[word[1]]
		if queue == nil {
			queue = make(chan []string, 100)
			p.queues[word[1]] = queue
			go func() {
				for word := range queue {
					p.answer(word)
				}
			}()
		}
		queue <- word
	}
}

func (p *peer) answer(word []string) {
	begun := time.Now().UnixMicro()
	value, err := p.execute(word[1], word[2], word[3:])
	ended := time.Now().UnixMicro()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		fmt.Println(word[0], begun, ended, "failed", "error", err)
	} else {
		fmt.Println(word[0], begun, ended, "ok", value)
	}
}

func (p *peer) execute(actor, command string, args []string) (any, error) {
	switch command {
	case "open":
		ms, err := strconv.ParseInt(args[3], 10, 64)
		if err != nil {
			return nil, err
		}
		rdb := dial(args[1], args[2])
		c, err := rlock.New(rdb, options(args[1], time.Duration(ms)*time.Millisecond))
		p.mu.Lock()
		defer p.mu.Unlock()
		p.parties[args[0]] = &goParty{c, rdb}
		return "", err
	case "close":
		p.mu.Lock()
		party := p.parties[args[0]]
		p.mu.Unlock()
		return "", errors.Join(party.client.Close(context.Background()), party.rdb.Close())
	}
	a := p.actor(actor, args[0], args[1], args[2])
	var n [2]int64
	for i := range min(len(args)-3, len(n)) {
		var err error
		if n[i], err = strconv.ParseInt(args[3+i], 10, 64); err != nil {
			return nil, err
		}
	}
	switch command {
	case "lock":
		got := a.lock(time.Duration(n[0]) * time.Millisecond)
		return got.token, got.err
	case "tryLock":
		return a.tryLock()
	case "unlock":
		_, err := a.unlock()
		return "", err
	case "work":
		most, d := int(n[0]), time.Duration(n[1])*time.Millisecond
		if us, err := strconv.Atoi(args[5]); err == nil {
			return a.shift(most, d, func(context.Context, *shift) (int64, error) {
				pause(time.Duration(us) * time.Microsecond)
				return 0, nil
			})
		}
		return a.work(most, d, args[5] == "checked")
	}
	return nil, fmt.Errorf("no command %s", command)
}

func (p *peer) actor(id, client, kind, name string) *goActor {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := strings.Join([]string{id, client, kind, name}, " ")
	if p.actors[key] == nil {
		p.actors[key] = newGoActor(p.parties[client], kind, name)
	}
	return p.actors[key]
}
