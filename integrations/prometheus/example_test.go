package rlockprom_test

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/election"
	rlockprom "github.com/go-rlock/rlock/integrations/prometheus"
	"github.com/go-rlock/rlock/jobs"
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
	// Output: 9 <nil>
}

// An election has a client of its own, because its candidates wait for long. Whether this process leads, and the age of the
// newest fire of a job, which costs a round trip in each scrape, are gauges of the program.
func ExampleNewCollector_election() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := rlock.New(rdb, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close(context.Background())

	registry := prometheus.NewRegistry()
	prometheus.WrapRegistererWith(prometheus.Labels{"client": "election"}, registry).MustRegister(rlockprom.NewCollector(locks))
	e := election.New(locks, "scheduler", "10.0.0.7:8080")
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "scheduler_leads"}, func() float64 {
		if e.IsLeader(context.Background()) != nil {
			return 0
		}
		return 1
	}))
	report := jobs.New(locks, "report", jobs.Every(time.Hour))
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "report_newest_fire_timestamp_seconds"}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		fire, err := report.Newest(ctx)
		if err != nil {
			return math.NaN()
		}
		return float64(fire.Unix())
	}))

	err = e.Run(context.Background(), func(context.Context, *election.Term) error {
		families, err := registry.Gather()
		for _, f := range families {
			if f.GetName() == "scheduler_leads" {
				fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
			}
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// scheduler_leads 1
	// <nil>
}
