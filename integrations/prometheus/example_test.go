package rlockprom_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	rlockprom "github.com/go-rlock/rlock/integrations/prometheus"
	"github.com/go-rlock/rlock/rlock"
)

func ExampleNewCollector() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	client, err := rlock.New(rdb, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(context.Background())

	registry := prometheus.NewRegistry()
	registry.MustRegister(rlockprom.NewCollector(client))

	// Clients of two servers in one process:
	//	prometheus.WrapRegistererWith(prometheus.Labels{"server": "billing"}, registry).MustRegister(…)

	families, err := registry.Gather()
	fmt.Println(len(families), err)
	// Output: 7 <nil>
}
