package rlockprom_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	rlockprom "github.com/go-rlock/rlock/integrations/prometheus"
	"github.com/go-rlock/rlock/rlock"
)

// needs skips the test where a program is not installed: make test-all installs it.
func needs(t *testing.T, program string) {
	t.Helper()
	if testing.Short() {
		t.Skip("short")
	}
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed", program)
	}
}

// The alerts come when they should, and only then, as promtool sees it.
func TestAlerts(t *testing.T) {
	needs(t, "promtool")
	out, err := exec.Command("promtool", "test", "rules", "alerts_test.yml").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A real Prometheus scrapes a program with locks. It takes the alert rules, and each query
// of the dashboard finds something, as does each selector of the alerts.
func TestPrometheus(t *testing.T) {
	needs(t, "prometheus")
	for format, opts := range map[string]promhttp.HandlerOpts{
		"text":        {},
		"OpenMetrics": {EnableOpenMetrics: true}, // has le="10.0", as Prometheus 3 has of either
	} {
		t.Run(format, func(t *testing.T) { t.Parallel(); testPrometheus(t, opts) })
	}
}

func testPrometheus(t *testing.T, opts promhttp.HandlerOpts) {
	client := newClient(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(rlockprom.NewCollector(client))
	program := httptest.NewServer(promhttp.HandlerFor(registry, opts))
	defer program.Close()
	use(t, client)
	p := startPrometheus(t, strings.TrimPrefix(program.URL, "http://"))

	for _, query := range slices.Concat(queries(t), selectors(t), []string{"rlock_held", `rlock_calls_total{outcome="acquired"} > 0`}) {
		p.await(t, "/api/v1/query?query="+url.QueryEscape(query), func(answer map[string]any) bool {
			return len(answer["result"].([]any)) > 0
		})
	}
	p.await(t, "/api/v1/rules", func(answer map[string]any) bool {
		group := answer["groups"].([]any)[0].(map[string]any)
		rules := group["rules"].([]any)
		for _, r := range rules {
			if r.(map[string]any)["health"] != "ok" { // not evaluated yet, or an error
				return false
			}
		}
		return len(rules) == 7
	})
}

// use locks, and is refused.
func use(t *testing.T, client *rlock.Client) {
	mu := client.NewLock("a")
	require.NoError(t, mu.Do(t.Context(), func(context.Context) error {
		require.ErrorIs(t, mu.TryDo(t.Context(), nothing), rlock.ErrNotAcquired)
		return nil
	}))
}

// queries returns those of the dashboard, with its variables filled in.
func queries(t *testing.T) (all []string) {
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, strings.NewReplacer("$job", ".*", "$__rate_interval", "1m").Replace(target.Expr))
		}
	}
	require.Len(t, dashboard.Panels, 10)
	return all
}

// selectors returns those of the alerts.
func selectors(t *testing.T) []string {
	text, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	all := regexp.MustCompile(`rlock_\w+(\{[^{}]*\})?`).FindAllString(string(text), -1)
	require.Contains(t, all, `rlock_losses_total{cause!~"closed|fixed"}`)
	return all
}

// server is a Prometheus.
type server struct{ url string }

// startPrometheus starts one that scrapes target.
func startPrometheus(t *testing.T, target string) server {
	dir := t.TempDir()
	alerts, err := filepath.Abs("alerts.yml")
	require.NoError(t, err)
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 500ms, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: program
    static_configs: [{targets: [%q]}]
`, alerts, target), 0o600))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	var log strings.Builder
	cmd := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return server{"http://" + address}
}

// await asks until the answer is as wanted.
func (p server) await(t *testing.T, path string, wanted func(answer map[string]any) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		r, err := http.Get(p.url + path)
		if err != nil {
			return false
		}
		defer func() { _ = r.Body.Close() }()
		var answer struct{ Data map[string]any }
		return r.StatusCode == http.StatusOK && json.NewDecoder(r.Body).Decode(&answer) == nil && wanted(answer.Data)
	}, 2*time.Minute, 100*time.Millisecond, path)
}
