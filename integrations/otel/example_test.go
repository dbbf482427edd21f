package rlockotel_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	rlockotel "github.com/go-rlock/rlock/integrations/otel"
	"github.com/go-rlock/rlock/rlock"
)

func Example() {
	telemetry, err := rlockotel.New() // with the global providers
	if err != nil {
		fmt.Println(err)
		return
	}
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	rdb.AddHook(telemetry.Hook())
	client, err := rlock.New(rdb, &rlock.Options{Trace: telemetry.Trace()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(context.Background())
	stop, err := telemetry.Observe(client)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = stop() }()
	// Output:
}
