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

	changes, messages := make(chan struct{}, 1), make(chan string, 1)
	s := hub.Subscribe("unlocked", func(payload string) { messages <- payload }, func() { changes <- struct{}{} })

	<-changes // the subscription is confirmed: time for the decisive try
	fmt.Println("live:", s.Live())

	rdb.Publish(ctx, "unlocked", "0")
	fmt.Println("woken by", <-messages)
	s.Close() // before the hub, whose end would be another change

	// Output:
	// live: true
	// woken by 0
}
