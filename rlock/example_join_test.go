package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/go-rlock/rlock/rlock"
)

// A service works under the lock of whoever calls it.
func ExampleLock_Join() {
	rdb, disconnect := connect()
	defer disconnect()
	theirs, closeTheirs := newExample(rdb) // of the service, which is another process
	defer closeTheirs()
	locks, closeLocks := newExample(rdb)
	defer closeLocks()

	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu := theirs.NewLock("invoice:42", rlock.WithFencing())
		ctx, hold, err := mu.Join(r.Context(), r.Header.Get("Rlock-Proof"))
		if err != nil {
			http.Error(w, fmt.Sprint("not held: ", errors.Is(err, rlock.ErrNotHeld)), http.StatusConflict)
			return
		}
		defer func() { _ = hold.Unlock(ctx) }() // ends ctx, and sends nothing

		_ = mu.Do(ctx, func(ctx context.Context) error { // nests, as in the caller's process
			fmt.Fprint(w, "booked with a token: ", mu.Token(ctx) > 0)
			return nil
		})
	}))
	defer service.Close()
	call := func(proof string) {
		req, _ := http.NewRequest(http.MethodPost, service.URL, http.NoBody)
		req.Header.Set("Rlock-Proof", proof)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		fmt.Println(resp.StatusCode, string(text))
	}

	mu := locks.NewLock("invoice:42", rlock.WithFencing())
	var proof string
	err := mu.Do(context.Background(), func(ctx context.Context) error {
		proof = mu.Proof(ctx)
		call(proof) // and wait for the answer before the lock is unlocked
		return nil
	})
	fmt.Println(err)
	call(proof) // too late
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// 200 booked with a token: true
	// <nil>
	// 409 not held: true
}
