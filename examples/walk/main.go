// Walk prints the way of one call through the library, from its source and a run of it: the functions, their places, and
// the first sentence of what is said of each.
//
//	go run ./examples/walk                    a Lock of a free lock
//	go run ./examples/walk -call unlock       its Unlock
//	go run ./examples/walk -call contended    a Lock of one that another process holds
//	go run ./examples/walk -all               with the transport: how requests and messages travel
//
// It is called in the repository, and needs Go. It starts a redis-server, or without one a server of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/go-rlock/rlock/internal/firstpage"
)

func main() {
	call := flag.String("call", "free", "free, unlock or contended")
	all := flag.Bool("all", false, "with the transport")
	flag.Parse()
	if err := walk(context.Background(), os.Stdout, *call, *all); err != nil {
		fmt.Fprintln(os.Stderr, "walk:", err)
		os.Exit(1)
	}
}

// calls are those that are measured, and where they begin.
var calls = map[string]struct{ call, first string }{
	"free":      {firstpage.FreeLock, "(*Lock).Lock"},
	"unlock":    {firstpage.FreeUnlock, "(*Hold).Unlock"},
	"contended": {firstpage.Contended, "(*Lock).Lock"},
}

func walk(ctx context.Context, out io.Writer, call string, all bool) error {
	c, ok := calls[call]
	if !ok {
		return fmt.Errorf("no call %q: there are free, unlock and contended", call)
	}
	addr, stop, err := firstpage.Serve(ctx)
	if err != nil {
		return err
	}
	met, err := firstpage.Measure(ctx, addr)
	stop() // before anything is printed: whoever reads a part of that ends the program, and it would leave the server
	if err != nil {
		return err
	}
	return firstpage.Way(out, met[c.call], c.first, all)
}
