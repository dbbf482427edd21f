package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/rlock"
)

const defaultURL = "redis://127.0.0.1:6379"

// server is a Redis to lock on: a single server, a cluster, or whichever server
// the Sentinels name.
type server struct {
	rdb       redis.UniversalClient
	name      string // where it is, without credentials
	prefix    string
	secure    bool                   // spoken to with TLS
	sentinels *redis.FailoverOptions // nil: not found through Sentinels
	options   redis.Options          // of a client of one of its nodes, apart from the address; not of a cluster
}

// connect returns the server that the flags and the environment name. Nothing
// is sent.
func connect(cmd *cli.Command) (*server, error) {
	text, from := serverURL(cmd)
	a, err := newAccess(cmd)
	if err != nil {
		return nil, usagef(cmd, "%w", err)
	}
	s, err := a.open(text)
	if err != nil {
		return nil, usagef(cmd, "%s: %w", from, err)
	}
	s.prefix, s.secure = cmd.String("prefix"), secure(text)
	return s, nil
}

// serverURL returns the URL of the server, which may be empty, and where it is from.
func serverURL(cmd *cli.Command) (text, from string) {
	text, from = cmd.String("url"), "--url"
	for _, name := range []string{"RLOCK_URL", "REDIS_URL"} {
		if text == "" {
			text, from = os.Getenv(name), "$"+name
		}
	}
	if text == "" {
		from = "no --url"
	}
	return text, from
}

// misread says what is wrong with a URL that go-redis does not take. A password with a special
// character may be in any part of it, so the parser's error is told only if all is clear up to
// the options.
func misread(text string, err error) error {
	scheme, rest, found := strings.Cut(text, "://")
	end := strings.IndexAny(rest+"/", "/?#")
	u, parsed := url.Parse(text)
	var wrong string
	switch {
	case !found:
		wrong = "the scheme is missing: redis://HOST:PORT"
	case !slices.Contains([]string{"redis", "rediss", "unix"}, scheme):
		wrong = "its scheme is none of redis, rediss, unix"
	case strings.Contains(rest[end:], "@"), strings.Contains(rest[:end], "@") && parsed != nil:
		wrong = "special characters of user and password are percent-encoded: % as %25, # as %23, / as %2F, ? as %3F"
	case parsed != nil:
		wrong = "expected HOST or HOST:PORT, with a number as port"
	case scheme == "unix" && u.Path == "":
		wrong = "the path of the socket is missing: unix:///SOCKET"
	case scheme != "unix" && strings.Trim(u.Path, "/0123456789") != "":
		wrong = "its path is the number of a database: redis://HOST/0"
	default:
		wrong = strings.TrimPrefix(err.Error(), "redis: ")
	}
	return fmt.Errorf("not a Redis URL: %s", wrong)
}

// open returns the server that a URL names.
func (a *access) open(text string) (*server, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, misread(text, err)
	case len(a.sentinels) > 0:
		return a.openFailover(text, u)
	case a.cluster || u.Query().Has("addr"): // go-redis' form for a cluster
		return a.openCluster(cmp.Or(text, defaultURL), strings.Trim(u.Path, "/"))
	}
	opts, err := a.parse(cmp.Or(text, defaultURL))
	if err != nil {
		return nil, err
	}
	s := &server{name: fmt.Sprintf("%s/%d", opts.Addr, opts.DB), options: *opts}
	s.rdb = redis.NewClient(opts)
	return s, nil
}

// parse returns the options of a client of a single server.
func (a *access) parse(text string) (*redis.Options, error) {
	opts, err := redis.ParseURL(text)
	if err != nil {
		return nil, misread(text, err)
	}
	if opts.DB < 0 { // go-redis would take 0
		return nil, errors.New("a database has a number, 0 or more")
	}
	impatient(&opts.DialTimeout, &opts.DialerRetries)
	opts.MaxRetries = cmp.Or(opts.MaxRetries, -1) // the library repeats what may be repeated
	opts.Password = cmp.Or(a.password, opts.Password, a.usualPassword)
	return opts, a.secure(opts.TLSConfig)
}

func (a *access) openCluster(text, database string) (*server, error) {
	opts, err := redis.ParseClusterURL(text)
	switch {
	case err != nil:
		return nil, misread(text, err)
	case database != "" && database != "0": // go-redis does not look
		return nil, errors.New("a cluster has no database but 0")
	}
	impatient(&opts.DialTimeout, &opts.DialerRetries)
	opts.Password = cmp.Or(a.password, opts.Password, a.usualPassword)
	if err := a.secure(opts.TLSConfig); err != nil {
		return nil, err
	}
	return &server{rdb: redis.NewClusterClient(opts), name: opts.Addrs[0] + "/0"}, nil
}

// openFailover takes from the URL what the master wants: user, password and
// database; TLS and time-outs are for the Sentinels as well.
func (a *access) openFailover(text string, u *url.URL) (*server, error) {
	if u.Host != "" || u.Scheme == "unix" || u.Query().Has("addr") {
		return nil, errors.New("with --sentinel the Sentinels say where the server is: leave the host out, as in redis://USER@/DB")
	}
	opts, err := a.parse(cmp.Or(text, "redis://"))
	if err != nil {
		return nil, err
	}
	if opts.TLSConfig != nil {
		opts.TLSConfig.ServerName = "" // that of each server
	}
	f := &redis.FailoverOptions{
		MasterName: a.master, SentinelAddrs: a.sentinels,
		SentinelPassword: a.sentinelPassword,
		Username:         opts.Username, Password: opts.Password, DB: opts.DB, TLSConfig: opts.TLSConfig,
		DialTimeout: opts.DialTimeout, DialerRetries: opts.DialerRetries, MaxRetries: opts.MaxRetries,
		ReadTimeout: opts.ReadTimeout, WriteTimeout: opts.WriteTimeout, PoolSize: opts.PoolSize,
	}
	s := &server{name: fmt.Sprintf("%s@%s/%d", a.master, a.sentinels[0], opts.DB), sentinels: f, options: *opts}
	s.rdb = redis.NewFailoverClient(f)
	return s, nil
}

// impatient lets an unreachable server be one within seconds: by default,
// go-redis would dial for half a minute.
func impatient(timeout *time.Duration, tries *int) {
	*timeout = cmp.Or(*timeout, 2*time.Second)
	*tries = 1
}

func (s *server) close() { _ = s.rdb.Close() }

// closeTimeout bounds what may delay the exit: requests that an interrupted
// wait left behind are taken back.
const closeTimeout = time.Second

func closeWithin(client *rlock.Client, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_ = client.Close(ctx) // what is still held ends with its lease
}
