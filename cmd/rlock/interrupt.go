package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interrupts are the signals that end a command which has something to put in order first.
var interrupts = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// untilInterrupt returns a context that a signal ends, with the exit status as its cause.
func untilInterrupt(ctx context.Context) (_ context.Context, stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	signals, over := make(chan os.Signal, 1), make(chan struct{})
	notify(signals, interrupts...)
	go func() {
		defer close(over)
		select {
		case sig := <-signals:
			end(&exitError{code: exitSignal + int(sig.(syscall.Signal))})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		end(nil)
		<-over
	}
}

// notify is [signal.Notify], but what this process was told to ignore, as by
// nohup, stays ignored.
func notify(c chan<- os.Signal, signals ...os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}
