// Measure prints the price of the first page: what a reader meets who follows one call through the library. It only
// reports.
//
//	go run ./internal/firstpage/measure
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/go-rlock/rlock/internal/firstpage"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "firstpage:", err)
		os.Exit(1)
	}
}

// run reports, or is one of the processes that a report needs.
func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 0:
		addr, stop, err := firstpage.Serve(ctx)
		if err != nil {
			return err
		}
		defer stop()
		return firstpage.Report(ctx, os.Stdout, addr)
	case len(args) == 3 && args[0] == "walk":
		return firstpage.Walk(ctx, args[1], args[2])
	case len(args) == 3 && args[0] == "hold":
		return firstpage.Hold(ctx, args[1], args[2])
	}
	return fmt.Errorf("unknown arguments %q: call it without any", args)
}
