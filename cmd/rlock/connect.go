package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
)

const defaultURL = "redis://127.0.0.1:6379"

// server is a Redis to lock on.
type server struct {
	rdb    redis.UniversalClient
	name   string // its address, without credentials
	prefix string
}

// connect returns the server that the flags and the environment name. Nothing
// is sent.
func connect(cmd *cli.Command) (*server, error) {
	text, from := cmd.String("url"), "--url"
	for _, name := range []string{"RLOCK_URL", "REDIS_URL"} {
		if text == "" {
			text, from = os.Getenv(name), "$"+name
		}
	}
	s, err := parseURL(cmp.Or(text, defaultURL))
	if err != nil {
		return nil, usagef(cmd, "%s: %w", from, err)
	}
	s.prefix = cmd.String("prefix")
	return s, nil
}

var errURL = errors.New("not a Redis URL: want redis://[USER[:PASSWORD]@]HOST[:PORT][/DB], rediss:// alike, or unix://[USER[:PASSWORD]@]/SOCKET[?db=DB], with special characters percent-encoded")

// parseURL never says what is wrong with a URL: the text of the parser's error
// repeats parts of it, and the password may be one of them.
func parseURL(text string) (*server, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errURL
	}
	if u.Query().Has("addr") { // go-redis' form for a cluster
		opts, err := redis.ParseClusterURL(text)
		if err != nil {
			return nil, errURL
		}
		impatient(&opts.DialTimeout, &opts.DialerRetries)
		return &server{rdb: redis.NewClusterClient(opts), name: opts.Addrs[0] + "/0"}, nil
	}
	opts, err := redis.ParseURL(text)
	if err != nil {
		return nil, errURL
	}
	impatient(&opts.DialTimeout, &opts.DialerRetries)
	opts.MaxRetries = cmp.Or(opts.MaxRetries, -1) // the library repeats what may be repeated
	return &server{rdb: redis.NewClient(opts), name: fmt.Sprintf("%s/%d", opts.Addr, opts.DB)}, nil
}

// impatient lets an unreachable server be one within seconds: by default,
// go-redis would dial for half a minute.
func impatient(timeout *time.Duration, tries *int) {
	*timeout = cmp.Or(*timeout, 2*time.Second)
	*tries = 1
}

func (s *server) close() { _ = s.rdb.Close() }
