package rlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-rlock/rlock/rlock"
)

// A writer that goes on reading lets other readers in, and no writer.
func ExampleClient_NewRWLock() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()
	elsewhere, closeElsewhere := newExample(rdb)
	defer closeElsewhere()

	prices, theirs := client.NewRWLock("prices"), elsewhere.NewRWLock("prices")
	try := func(side *rlock.Lock) bool {
		held, hold, err := side.TryLock(context.Background())
		if err != nil {
			return false
		}
		return hold.Unlock(held) == nil
	}

	writing, write, err := prices.Writer().Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("writing; others read:", try(theirs.Reader()))

	reading, read, err := prices.Reader().Lock(writing)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = write.Unlock(writing)
	fmt.Println("only reading; others read:", try(theirs.Reader()), "write:", try(theirs.Writer()))

	_, _, err = prices.Writer().Lock(reading)
	fmt.Println("no way back:", errors.Is(err, rlock.ErrUpgrade))
	_ = read.Unlock(reading)
	fmt.Println("free; others write:", try(theirs.Writer()))
	// Output:
	// writing; others read: false
	// only reading; others read: true write: false
	// no way back: true
	// free; others write: true
}
