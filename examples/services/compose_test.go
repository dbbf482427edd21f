// Package services_test looks whether the parts of compose.yaml fit together, as far as that is seen without Docker.
package services_test

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type service struct {
	Image, Command string
	Build          struct{ Context, Dockerfile string }
	Environment    map[string]string
	Volumes, Ports []string
	Deploy         struct{ Replicas int }
	Healthcheck    map[string]any
	DependsOn      yaml.Node `yaml:"depends_on"`
}

// mounts returns the files of a service by their paths in its container.
func (s service) mounts(t *testing.T) map[string]string {
	files := make(map[string]string)
	for _, volume := range s.Volumes {
		parts := strings.Split(volume, ":")
		require.Len(t, parts, 3, volume)
		require.Equal(t, "ro", parts[2], volume)
		_, err := os.Stat(parts[0])
		require.NoError(t, err, "Docker would make an empty directory of it")
		files[parts[1]] = parts[0]
	}
	return files
}

// parse reads a file of YAML, in which nothing may be that is not in the type.
func parse[T any](t *testing.T, path string) (all T) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&all), path)
	return all
}

func services(t *testing.T) map[string]service {
	return parse[struct{ Services map[string]service }](t, "compose.yaml").Services
}

func TestWorkersAreBuilt(t *testing.T) {
	all := services(t)
	worker := all["worker"]
	require.Equal(t, 3, worker.Deploy.Replicas)
	require.NotEmpty(t, all["redis"].Healthcheck, "the workers wait for it")
	redisURL, err := url.Parse(worker.Environment["RLOCK_URL"])
	require.NoError(t, err)
	require.Contains(t, all, redisURL.Hostname())
	require.Equal(t, "6379", redisURL.Port())

	dockerfile, err := os.ReadFile(filepath.Join(worker.Build.Context, worker.Build.Dockerfile))
	require.NoError(t, err)
	build := regexp.MustCompile(`go build -C (\S+) -trimpath -o (\S+) (\S+)`).FindSubmatch(dockerfile)
	require.NotNil(t, build)
	_, err = os.Stat(filepath.Join(worker.Build.Context, string(build[1]), string(build[3]), "main.go"))
	require.NoError(t, err)
	require.Contains(t, string(dockerfile), `ENTRYPOINT ["`+string(build[2])+`"]`)
	for name, s := range all {
		require.NotEqual(t, s.Image == "", s.Build.Context == "", name)
		for _, port := range s.Ports {
			require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s: everybody could look: %s", name, port)
		}
		switch s.DependsOn.Kind {
		case yaml.SequenceNode:
			for _, on := range s.DependsOn.Content {
				require.Contains(t, all, on.Value)
			}
		case yaml.MappingNode:
			require.Contains(t, all, s.DependsOn.Content[0].Value)
		}
	}
}

// Prometheus asks all workers, at the port where they listen, and knows the alerts.
func TestPrometheusFindsTheWorkers(t *testing.T) {
	all := services(t)
	files := all["prometheus"].mounts(t)
	config := parse[struct {
		Global        map[string]string
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName string `yaml:"job_name"`
			DNS     []struct {
				Names []string
				Type  string
				Port  int
				Every string `yaml:"refresh_interval"`
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}](t, files["/etc/prometheus/prometheus.yml"])
	for _, rules := range config.RuleFiles {
		require.Contains(t, files, "/etc/prometheus/"+rules)
	}
	require.Len(t, config.ScrapeConfigs, 1)
	target := config.ScrapeConfigs[0].DNS[0]
	require.Equal(t, []string{"worker"}, target.Names)
	require.Contains(t, all, target.Names[0])
	source, err := os.ReadFile("worker/main.go")
	require.NoError(t, err)
	listen := regexp.MustCompile(`"listen", "(\S+)"`).FindSubmatch(source)
	_, port, err := net.SplitHostPort(string(listen[1]))
	require.NoError(t, err)
	require.Equal(t, port, yamlString(t, target.Port))

	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool was not found: Prometheus itself has not read its configuration")
	}
	dir := t.TempDir() // as in the container
	for at, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(at)), data, 0o600))
	}
	out, err := exec.Command("promtool", "check", "config", filepath.Join(dir, "prometheus.yml")).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "SUCCESS")
}

func yamlString(t *testing.T, v any) string {
	text, err := yaml.Marshal(v)
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// Grafana finds the Prometheus, and shows the dashboard first.
func TestGrafanaHasTheDashboard(t *testing.T) {
	all := services(t)
	files := all["grafana"].mounts(t)
	sources := parse[struct {
		Version int `yaml:"apiVersion"`
		Sources []struct {
			Name, Type, UID, URL string
			IsDefault            bool `yaml:"isDefault"`
		} `yaml:"datasources"`
	}](t, filepath.Join(files["/etc/grafana/provisioning/datasources"], "prometheus.yml"))
	require.Len(t, sources.Sources, 1)
	source := sources.Sources[0]
	require.True(t, source.IsDefault && source.Type == "prometheus")
	at, err := url.Parse(source.URL)
	require.NoError(t, err)
	require.Contains(t, all, at.Hostname())
	require.True(t, slices.ContainsFunc(all[at.Hostname()].Ports, func(p string) bool { return strings.HasSuffix(p, ":"+at.Port()) }))

	providers := parse[struct {
		Version   int `yaml:"apiVersion"`
		Providers []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}](t, filepath.Join(files["/etc/grafana/provisioning/dashboards"], "rlock.yml"))
	home := all["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	require.Equal(t, providers.Providers[0].Options.Path, filepath.Dir(home))
	require.Contains(t, files, home)
	data, err := os.ReadFile(files[home])
	require.NoError(t, err)
	var dashboard struct {
		Title      string
		Templating struct {
			List []struct{ Type, Query any }
		}
	}
	require.NoError(t, json.Unmarshal(data, &dashboard))
	require.NotEmpty(t, dashboard.Title)
	require.Equal(t, source.Type, dashboard.Templating.List[0].Query, "it takes the default source of this type")
}
