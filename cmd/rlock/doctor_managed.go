package main

import (
	"context"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// service is a managed service, recognised by a host name.
type service struct {
	within  string // a part of the host name, beside its end; may be empty
	suffix  string // the end of the host name
	name    string
	section string // of docs/compatibility.md
	matters string // what to know before anything else
}

// services are tried from the top: the first match counts. The page has the sources.
var services = []service{
	{".serverless.", ".cache.amazonaws.com", "Amazon ElastiCache Serverless", "amazon", "only a client of a cluster reaches it, and only with TLS"},
	{"", ".cache.amazonaws.com", "Amazon ElastiCache", "amazon", "its default policy is volatile-lru; a parameter group of your own sets noeviction"},
	{".memorydb.", ".amazonaws.com", "Amazon MemoryDB", "amazon", "a multi-Region cluster merges writes, so two Regions grant the same lock; within one Region there is no such risk"},
	{"", ".redis.cache.windows.net", "Azure Cache for Redis", "azure", "it closes connections after 10 idle minutes: ConnMaxIdleTime below that"},
	{"", ".redis.azure.net", "Azure Managed Redis", "azure", "a group with active geo-replication merges writes, so two regions grant the same lock; without it there is no such risk"},
	{"", ".redislabs.com", "Redis Cloud", "redis-cloud", "an Active-Active database merges writes, so two regions grant the same lock; other databases do not"},
	{"", ".redis-cloud.com", "Redis Cloud", "redis-cloud", "an Active-Active database merges writes, so two regions grant the same lock; other databases do not"},
	{"", ".upstash.io", "Upstash", "upstash", "after a split brain of its replicas the last writer wins, so a lock may have had two owners"},
	{"", ".aivencloud.com", "Aiven for Valkey", "aiven", "CONFIG and ACL are disabled there; the console has settings and users"},
	{"", ".db.ondigitalocean.com", "DigitalOcean Managed Valkey", "digitalocean", "its default policy is noeviction; the control panel changes it"},
	{"", ".dragonflydb.cloud", "Dragonfly Cloud", "dragonfly-cloud", "the eviction policy of the data store has to be No Eviction"},
	{"", ".redis.rds.aliyuncs.com", "Alibaba Tair", "alibaba-tair", "its default policy is volatile-lru; the console sets noeviction"},
	{".redis.", ".oci.oraclecloud.com", "OCI Cache", "oci-cache", "a sharded cluster may have no Lua scripts, and no locks without them"},
}

// serviceOf finds the service of a host name.
func serviceOf(host string) (service, bool) {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	for _, s := range services {
		if name, ok := strings.CutSuffix(host, s.suffix); ok && strings.Contains(name+".", s.within) {
			return s, true
		}
	}
	return service{}, false
}

// hosts are the names by which the server is to be reached.
func (s *server) hosts() (hosts []string) {
	addrs := []string{s.options.Addr}
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		addrs = cluster.Options().Addrs
	}
	for _, addr := range addrs {
		if host, _, err := net.SplitHostPort(addr); err == nil {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// checkService says what matters at a managed service. Another server has no such finding.
func (d *doctor) checkService() {
	for _, host := range d.hosts() {
		if s, ok := serviceOf(host); ok {
			d.report.add(finding{Check: "service", Level: fine, Text: s.name + ", by the name of the host: " + s.matters}.
				advise("docs/compatibility.md#%s", s.section))
			return
		}
	}
}

// merges reports whether the server is part of an Active-Active database of Redis Enterprise.
// INFO crdt is answered by other servers too, but without these fields.
func merges(ctx context.Context, rdb *redis.Client) bool {
	text, err := rdb.Info(ctx, "crdt").Result()
	fields := parseInfo(text)
	_, version := fields["crdt_config_version"]
	_, id := fields["crdt_replid"]
	return err == nil && version && id
}
