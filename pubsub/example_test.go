package pubsub_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/pubsub"
)

func Example() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	ctx := context.Background()

	hub := pubsub.NewHub(pubsub.Redis(rdb, "probe:example"), pubsub.Options{})
	defer func() { _ = hub.Close(ctx) }()

	w := hub.Join("unlocked")
	defer w.Leave()

	<-w.C() // the subscription is confirmed: time for the decisive try
	fmt.Println("live:", w.Live())

	rdb.Publish(ctx, "unlocked", "0")
	<-w.C()
	fmt.Println("woken")

	// Output:
	// live: true
	// woken
}
