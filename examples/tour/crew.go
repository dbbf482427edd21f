//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// crew is the workers, and what they say.
type crew struct {
	out     io.Writer
	began   time.Time
	workers []*worker
	events  chan event
	ended   sync.WaitGroup
}

type worker struct {
	name string
	cmd  *exec.Cmd
	wire *wire
}

// event is a line of a worker.
type event struct {
	*worker
	what string
}

// newCrew starts workers, each with a wire of its own to Redis.
func newCrew(ctx context.Context, out io.Writer, url, addr string, names ...string) (*crew, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &crew{out: out, began: time.Now(), events: make(chan event, 100)}
	for _, name := range names {
		if err := c.start(ctx, program, name, url, addr); err != nil {
			c.dismiss()
			return nil, err
		}
	}
	return c, nil
}

func (c *crew) start(ctx context.Context, program, name, server, addr string) error {
	to, err := url.Parse(server)
	if err != nil {
		return err
	}
	wire, err := newWire(addr)
	if err != nil {
		return err
	}
	to.Host = wire.addr()
	w := &worker{name, exec.CommandContext(ctx, program, "-worker", name, "-url", to.String()), wire}
	w.cmd.Stderr = os.Stderr
	lines, err := w.cmd.StdoutPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		wire.close()
		return err
	}
	c.workers = append(c.workers, w)
	c.ended.Go(func() {
		for scanner := bufio.NewScanner(lines); scanner.Scan(); {
			c.events <- event{w, scanner.Text()}
		}
		_ = w.cmd.Wait()
	})
	return nil
}

// until prints what the workers say until each of these was said, in any order, and returns the worker who
// was the last to say that it works, or else the last who said anything.
func (c *crew) until(ctx context.Context, what ...string) (last *worker, err error) {
	for {
		select {
		case e := <-c.events:
			if e.what == "works" {
				c.say("%s has the lock, and works", e.name)
			} else {
				c.say("%s has lost the lock, and has stopped its work", e.name)
			}
			if last == nil || e.what == "works" {
				last = e.worker
			}
			if what = slices.DeleteFunc(what, func(w string) bool { return w == e.what }); len(what) == 0 {
				return last, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("no worker said %q: %w", what, ctx.Err())
		}
	}
}

func (c *crew) say(format string, args ...any) {
	fmt.Fprintf(c.out, "%4.1f s  %s\n", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

// dismiss ends the workers, also one that is stopped, and waits for them.
func (c *crew) dismiss() {
	for _, w := range c.workers {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Process.Signal(syscall.SIGCONT)
		w.wire.close()
	}
	c.ended.Wait()
}

// wire leads to Redis until it is cut.
type wire struct {
	listener net.Listener
	to       string

	mu    sync.Mutex // guards what follows
	conns map[net.Conn]bool
	isCut bool
}

func newWire(to string) (*wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{listener: l, to: to, conns: make(map[net.Conn]bool)}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go w.join(conn)
		}
	}()
	return w, nil
}

func (w *wire) addr() string { return w.listener.Addr().String() }

// join copies bytes in both directions, as long as both connections are there.
func (w *wire) join(conn net.Conn) {
	server, err := net.Dial("tcp", w.to)
	if err != nil {
		_ = conn.Close()
		return
	}
	w.mu.Lock()
	w.conns[conn], w.conns[server] = true, true
	isCut := w.isCut
	w.mu.Unlock()
	if isCut {
		_ = conn.Close()
	}
	go func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	}()
	_, _ = io.Copy(conn, server)
	_ = conn.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, conn)
	delete(w.conns, server)
}

// cut ends all connections, and each new one at once.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for conn := range w.conns {
		_ = conn.Close()
	}
}

func (w *wire) close() {
	_ = w.listener.Close()
	w.cut()
}
