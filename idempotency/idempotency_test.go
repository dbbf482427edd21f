package idempotency_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/idempotency"
	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestMain(m *testing.M) {
	redistest.RunChild(map[string]func([]string){"pays": pays})
	_ = flag.Set("test.parallel", "16")
	logging.Disable()
	goleak.VerifyTestMain(m, redistest.Dials)
}

const lease = 2 * time.Second

func dial(addr string) (*rlock.Client, *redis.Client, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialTimeout: time.Second, DialerRetries: 1})
	locks, err := rlock.New(rdb, &rlock.Options{LeaseTime: lease})
	return locks, rdb, err
}

func user(r *http.Request) string { return r.Header.Get("User") }

// host returns the address of a host that serves h behind a guard.
func host(t testing.TB, addr string, opts idempotency.Options, h http.Handler) string {
	locks, rdb, err := dial(addr)
	require.NoError(t, err)
	if opts.Scope == nil {
		opts.Scope = user
	}
	guarded := idempotency.New(locks, opts).Wrap(h)
	var requests atomic.Int64
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Served-By", "outer")
		w.Header().Set("Request-Id", fmt.Sprint(requests.Add(1), addr))
		w.Header().Set("Secret", "of the outer handler")
		guarded.ServeHTTP(w, r)
	}))
	web.Config.ErrorLog = log.New(io.Discard, "", 0) // panics
	web.Start()
	t.Cleanup(func() {
		web.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = locks.Close(ctx)
		_ = rdb.Close()
	})
	return web.URL
}

// transport makes a connection for each request: a request with an Idempotency-Key is repeated by net/http
// if a reused connection breaks.
var transport = &http.Transport{DisableKeepAlives: true}

type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) title() string {
	var p struct {
		Title  string
		Status int
		Detail string
	}
	if r.header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(r.body), &p) != nil || p.Status != r.status || p.Detail == "" {
		return ""
	}
	return p.Title
}

// post sends a request of alice. Each edit changes it.
func post(t testing.TB, url, key, body string, edit ...func(*http.Request)) reply {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("User", "alice")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for _, e := range edit {
		e(r)
	}
	res, err := transport.RoundTrip(r)
	if err != nil {
		return reply{}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return reply{}
	}
	return reply{res.StatusCode, res.Header, string(text)}
}

func as(name string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("User", name) }
}

// counter is a handler that says who has called it and how often it was called.
type counter struct{ calls atomic.Int64 }

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := c.calls.Add(1)
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Location", fmt.Sprintf("/payments/%d", n))
	w.Header().Set("Set-Cookie", "session=1")
	w.Header().Set("Secret", "of the handler")
	w.WriteHeader(http.StatusCreated)
	w.Header().Set("Late", "not sent")
	_, _ = fmt.Fprintf(w, "%s %s %s %s %d", user(r), r.Method, r.URL, body, n)
}

func TestReplay(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := new(counter)
	a, b := host(t, s.Addr(), idempotency.Options{}, c), host(t, s.Addr(), idempotency.Options{}, c)
	first := post(t, a+"/pay", `"k"`, "10")
	require.Equal(t, http.StatusCreated, first.status)
	require.Equal(t, "alice POST /pay 10 1", first.body)
	require.Equal(t, "session=1", first.header.Get("Set-Cookie"))
	require.Empty(t, first.header.Get("Idempotent-Replayed"))
	require.Empty(t, first.header.Get("Late"))

	n := 0
	for _, key := range []string{`"k"`, "k", ` "k" `, `"k";a=1;b="x;y"; c`, `"\k"`} {
		again := post(t, b+"/pay", key, "10")
		if key == `"\k"` {
			require.Equal(t, http.StatusBadRequest, again.status)
			continue
		}
		require.Equal(t, first.status, again.status)
		require.Equal(t, first.body, again.body)
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
		require.Empty(t, again.header.Values("Set-Cookie"), "a later session must not get an earlier one")
		for _, name := range []string{"Location", "Content-Type", "Content-Length", "Secret", "Served-By"} {
			require.Equal(t, first.header.Values(name), again.header.Values(name), name)
		}
		require.NotEmpty(t, again.header.Get("Date"))
		n++
		require.Equal(t, fmt.Sprint(n, s.Addr()), again.header.Get("Request-Id"), "what is of the outer handler is not that of the first request")
	}
	require.EqualValues(t, 1, c.calls.Load())
}

// The five defects of Fiber's middleware, none of which is here.
func TestFiber(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)

	t.Run("another user, path, query, method, header or body gets the answer of the first", func(t *testing.T) {
		c := new(counter)
		web := host(t, s.Addr(), idempotency.Options{Headers: []string{"Content-Type", "Currency"}}, c)
		require.Equal(t, "alice POST /pay 10 1", post(t, web+"/pay", "k", "10").body)
		require.Equal(t, "bob POST /pay 10 2", post(t, web+"/pay", "k", "10", as("bob")).body)
		for what, r := range map[string]reply{
			"path":   post(t, web+"/refund", "k", "10"),
			"query":  post(t, web+"/pay?to=bob", "k", "10"),
			"body":   post(t, web+"/pay", "k", "11"),
			"method": post(t, web+"/pay", "k", "10", func(r *http.Request) { r.Method = http.MethodPatch }),
			"header": post(t, web+"/pay", "k", "10", func(r *http.Request) { r.Header.Set("Currency", "EUR") }),
		} {
			require.Equal(t, http.StatusUnprocessableEntity, r.status, what)
			require.Equal(t, "Idempotency-Key is already used", r.title())
		}
		require.Equal(t, http.StatusCreated, post(t, web+"/pay", "k", "10", func(r *http.Request) { r.Header.Set("User-Agent", "another") }).status)
		require.EqualValues(t, 2, c.calls.Load())
	})

	t.Run("a key must have 36 characters, in a header of another name", func(t *testing.T) {
		web := host(t, s.Addr(), idempotency.Options{}, new(counter))
		for _, key := range []string{`"short"`, `"` + strings.Repeat("x", 255) + `"`, `"a \"quoted\" \\ key"`, "8e03978e-40d5-43e8-bc93-6894a57f9324"} {
			require.Equal(t, http.StatusCreated, post(t, web, key, "").status, key)
		}
	})

	t.Run("a duplicate waits, without a limit", func(t *testing.T) {
		started, goOn := make(chan struct{}), make(chan struct{})
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(started); <-goOn })
		a, b := host(t, s.Addr(), idempotency.Options{}, slow), host(t, s.Addr(), idempotency.Options{}, slow)
		var all sync.WaitGroup
		all.Go(func() { require.Equal(t, http.StatusOK, post(t, a, "slow", "1").status) })
		<-started
		for _, web := range []string{a, b} {
			r := post(t, web, "slow", "1")
			require.Equal(t, http.StatusConflict, r.status)
			require.Equal(t, "A request is outstanding for this Idempotency-Key", r.title())
			require.Equal(t, "1", r.header.Get("Retry-After"))
			require.Equal(t, http.StatusUnprocessableEntity, post(t, web, "slow", "2").status)
		}
		close(goOn)
		all.Wait()
		require.Equal(t, http.StatusOK, post(t, b, "slow", "1").status)
	})

	t.Run("if the answer cannot be stored, the client gets an error in its place", func(t *testing.T) {
		rdb := s.Client(t)
		c := new(counter)
		deletes := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			keys := rdb.Keys(r.Context(), "idempotency:*").Val()
			require.Len(t, keys, 1)
			require.NoError(t, rdb.Del(r.Context(), keys...).Err()) // the lock of this request
			c.ServeHTTP(w, r)
		})
		redistest.Eventually(t, "no lock is held", func() bool { return len(rdb.Keys(context.Background(), "idempotency:*").Val()) == 0 })
		web := host(t, s.Addr(), idempotency.Options{}, deletes)
		require.Equal(t, http.StatusCreated, post(t, web, "lost", "").status)
		r := post(t, web, "lost", "")
		require.Equal(t, http.StatusConflict, r.status, "a handler that has lost its lock stores nothing")
		require.Equal(t, "A request with this Idempotency-Key has ended without an answer", r.title())
		require.EqualValues(t, 1, c.calls.Load())
	})

	t.Run("a request with a long answer is executed again", func(t *testing.T) {
		var calls atomic.Int64
		web := host(t, s.Addr(), idempotency.Options{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			for range 100 {
				_, _ = w.Write(bytes.Repeat([]byte("x"), 1000))
			}
		}))
		require.Len(t, post(t, web, "long", "").body, 100_000)
		r := post(t, web, "long", "")
		require.Equal(t, http.StatusConflict, r.status)
		require.Equal(t, "The answer was too long to be stored", r.title())
		require.Contains(t, r.body, "executed with status 200")
		require.EqualValues(t, 1, calls.Load())
	})
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := new(counter)
	opts := idempotency.Options{MaxBody: 1000}
	web := host(t, s.Addr(), opts, c)
	for _, key := range []string{
		`""`, `"open`, `open"`, `"a" b`, `"a"b`, `a b`, `"a", "b"`, "a,b", `"é"`, `"a";`, `"a";A=1`, `?1`, `("a")`, `:YQ==:x`, `"` + strings.Repeat("x", 256) + `"`,
	} {
		r := post(t, web, key, "")
		require.Equal(t, http.StatusBadRequest, r.status, key)
		require.Equal(t, "Idempotency-Key is malformed", r.title())
	}
	r := post(t, web, "", "")
	require.Equal(t, http.StatusBadRequest, r.status)
	require.Equal(t, "Idempotency-Key is missing", r.title())
	r = post(t, web, "a", "", func(r *http.Request) { r.Header.Add("Idempotency-Key", "b") })
	require.Equal(t, http.StatusBadRequest, r.status, "two keys")
	r = post(t, web, "k", "", as(""))
	require.Equal(t, http.StatusForbidden, r.status)
	require.NotEmpty(t, r.title())
	r = post(t, web, "k", strings.Repeat("x", 1001))
	require.Equal(t, http.StatusRequestEntityTooLarge, r.status)
	require.NotEmpty(t, r.title())
	require.Zero(t, c.calls.Load())
	require.Equal(t, http.StatusCreated, post(t, web, "k", strings.Repeat("x", 1000)).status)

	opts.Optional = true
	web = host(t, s.Addr(), opts, c)
	require.Equal(t, http.StatusCreated, post(t, web, "", "").status)
	require.Equal(t, http.StatusBadRequest, post(t, web, `"open`, "").status, "a mistake is not a missing key")
	for _, opts := range []idempotency.Options{
		{}, {Scope: user, TTL: -1}, {Scope: user, TTL: time.Microsecond}, {Scope: user, MaxBody: -1},
	} {
		require.PanicsWithValue(t, mistake(opts), func() { idempotency.New(nil, opts) })
	}
}

func mistake(opts idempotency.Options) string {
	switch {
	case opts.Scope == nil:
		return "idempotency: Options.Scope is required"
	case opts.MaxBody < 0:
		return "idempotency: Options.MaxBody must not be negative"
	}
	return "idempotency: Options.TTL must be at least 1ms"
}

// A request is compared as its client has sent it.
func TestRequestAsSent(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	mux := http.NewServeMux()
	locks, rdb, err := dial(s.Addr())
	require.NoError(t, err)
	guarded := idempotency.New(locks, idempotency.Options{Scope: user, Headers: []string{"host"}}).Wrap(new(counter))
	mux.Handle("/a/", http.StripPrefix("/a", guarded))
	mux.Handle("/b/", http.StripPrefix("/b", guarded))
	web := httptest.NewServer(mux)
	t.Cleanup(func() {
		web.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = locks.Close(ctx)
		_ = rdb.Close()
	})
	require.Equal(t, http.StatusCreated, post(t, web.URL+"/a/pay", "k", "10").status)
	require.Equal(t, http.StatusCreated, post(t, web.URL+"/a/pay", "k", "10").status)
	require.Equal(t, http.StatusUnprocessableEntity, post(t, web.URL+"/b/pay", "k", "10").status, "another path")
	require.Equal(t, http.StatusUnprocessableEntity, post(t, web.URL+"/a/pay", "k", "10", func(r *http.Request) { r.Host = "other" }).status, "another host")

	// A request that no server has received has no request line.
	direct := func(path string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil)
		r.RequestURI = ""
		r.Header.Set("User", "alice")
		r.Header.Set("Idempotency-Key", "direct")
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, http.StatusCreated, direct("/pay"))
	require.Equal(t, http.StatusUnprocessableEntity, direct("/refund"))
}

// A Forget that panics leaves the outcome unknown, as a handler does that panics.
func TestForgetPanics(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	web := host(t, s.Addr(), idempotency.Options{Forget: func(int) bool { panic("boom") }}, new(counter))
	require.Zero(t, post(t, web, "k", "").status)
	r := post(t, web, "k", "")
	require.Equal(t, http.StatusConflict, r.status)
	require.Equal(t, "A request with this Idempotency-Key has ended without an answer", r.title())
}

// What is known to have failed may be repeated. What is not known may not.
func TestEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var calls atomic.Int64
	web := host(t, s.Addr(), idempotency.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		switch r.URL.Path {
		case "/panics":
			panic(http.ErrAbortHandler)
		case "/invalid":
			w.WriteHeader(1000)
		case "/nothing":
		default:
			var status int
			_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
			w.WriteHeader(status)
		}
	}))
	for path, c := range map[string]struct{ first, again, calls int }{
		"/200": {200, 200, 1}, "/400": {400, 400, 1}, "/204": {204, 204, 1}, "/304": {304, 304, 1}, "/nothing": {200, 200, 1},
		"/500": {500, 500, 2}, "/503": {503, 503, 2}, "/429": {429, 429, 2},
		"/panics": {0, 409, 1}, "/invalid": {0, 409, 1},
	} {
		calls.Store(0)
		require.Equal(t, c.first, post(t, web+path, "key of "+path[1:], "", quoted).status, path)
		require.Equal(t, c.again, post(t, web+path, "key of "+path[1:], "", quoted).status, path)
		require.EqualValues(t, c.calls, calls.Load(), path)
	}
}

func quoted(r *http.Request) {
	r.Header.Set("Idempotency-Key", `"`+r.Header.Get("Idempotency-Key")+`"`)
}

// A client goes away. A handler that stops because of that has no answer, and net/http's 200 is none.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	started := make(chan struct{}, 1)
	ended := make(chan struct{}, 1)
	web := host(t, s.Addr(), idempotency.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		started <- struct{}{}
		if r.URL.Path == "/payment" { // goes on
			<-r.Context().Done()
			_, _ = w.Write([]byte("paid"))
			return
		}
		<-r.Context().Done()
	}))
	for path, again := range map[string]reply{"/payment": {status: 200, body: "paid"}, "/stops": {status: 409}} {
		ctx, leave := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, web+path, nil)
		require.NoError(t, err)
		r.Header.Set("User", "alice")
		r.Header.Set("Idempotency-Key", path[1:])
		go func() { <-started; leave() }()
		_, err = transport.RoundTrip(r)
		require.Error(t, err)
		<-ended
		var got reply
		redistest.Eventually(t, "the request has ended", func() bool {
			got = post(t, web+path, path[1:], "")
			return got.header.Get("Retry-After") == ""
		})
		require.Equal(t, again.status, got.status, path)
		if again.body != "" {
			require.Equal(t, again.body, got.body)
		}
	}
}

// A handler may send a part of the answer, and go on. It is stored in the end.
func TestFlush(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	goOn := make(chan struct{})
	web := host(t, s.Addr(), idempotency.Options{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("first "))
		if err := http.NewResponseController(w).Flush(); err != nil {
			panic(err)
		}
		<-goOn
		_, _ = w.Write([]byte("second"))
		w.(http.Flusher).Flush()
	}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web, nil)
	require.NoError(t, err)
	r.Header.Set("User", "alice")
	r.Header.Set("Idempotency-Key", "k")
	res, err := transport.RoundTrip(r)
	require.NoError(t, err)
	part := make([]byte, len("first "))
	_, err = io.ReadFull(res.Body, part)
	require.NoError(t, err)
	require.Equal(t, "first ", string(part))
	require.Equal(t, http.StatusConflict, post(t, web, "k", "").status)
	close(goOn)
	rest, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, "second", string(rest))
	require.Equal(t, "first second", post(t, web, "k", "").body)
}

func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := netfault.New(t, s.Addr())
	c := new(counter)
	web := host(t, proxy.Addr(), idempotency.Options{}, c)
	require.Equal(t, http.StatusCreated, post(t, web, "k", "").status)
	proxy.Refuse(true)
	proxy.CutAll()
	r := post(t, web, "k2", "")
	require.Equal(t, http.StatusServiceUnavailable, r.status)
	require.Equal(t, "The request was not executed", r.title())
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.EqualValues(t, 1, c.calls.Load())
	proxy.Heal()
	require.Equal(t, http.StatusCreated, post(t, web, "k2", "").status)
	require.EqualValues(t, 2, c.calls.Load())
}

// pays is a host whose handler never ends.
func pays(args []string) {
	locks, _, err := dial(args[0])
	if err != nil {
		panic(err)
	}
	h := idempotency.New(locks, idempotency.Options{Scope: user}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		fmt.Println("pays")
		select {}
	}))
	fmt.Println("listens", httptest.NewServer(h).URL)
	select {}
}

// A host is killed during a request. Its repetition, at another host, is in progress until the lease is
// over, and then unknown.
func TestHostIsKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	child := redistest.Spawn(t, "pays", s.Addr())
	url := strings.TrimSpace(child.Expect("listens", 20*time.Second))
	c := new(counter)
	web := host(t, s.Addr(), idempotency.Options{}, c)
	done := make(chan reply)
	go func() { done <- post(t, url+"/pay", "k", "10") }()
	child.Expect("pays", 20*time.Second)
	require.Equal(t, "1", post(t, web+"/pay", "k", "10").header.Get("Retry-After"))
	child.Kill()
	require.Zero(t, (<-done).status)
	var r reply
	redistest.Eventually(t, "its lease is over", func() bool {
		r = post(t, web+"/pay", "k", "10")
		return r.header.Get("Retry-After") == ""
	})
	require.Equal(t, http.StatusConflict, r.status)
	require.Equal(t, "A request with this Idempotency-Key has ended without an answer", r.title())
	require.Zero(t, c.calls.Load())
}

func TestManyRequests(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var calls [50]atomic.Int64
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &n)
		calls[n].Add(1)
		time.Sleep(5 * time.Millisecond)
		_, _ = fmt.Fprint(w, "answer ", n)
	})
	var hosts []string
	for range 3 {
		hosts = append(hosts, host(t, s.Addr(), idempotency.Options{}, h))
	}
	var all sync.WaitGroup
	var replayed, busy atomic.Int64
	gate := make(chan struct{}, 32)
	for i := range 1000 {
		all.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			n := i % len(calls)
			switch r := post(t, fmt.Sprintf("%s/%d", hosts[i%3], n), fmt.Sprint("k", n), ""); r.status {
			case http.StatusOK:
				replayed.Add(1)
				if r.body != fmt.Sprint("answer ", n) {
					t.Errorf("%d: %s", n, r.body)
				}
			case http.StatusConflict:
				busy.Add(1)
			default:
				t.Errorf("%d: %d %s", n, r.status, r.body)
			}
		})
	}
	all.Wait()
	for i := range calls {
		require.EqualValues(t, 1, calls[i].Load())
	}
	t.Logf("%d answered, %d told to come back", replayed.Load(), busy.Load())
}
