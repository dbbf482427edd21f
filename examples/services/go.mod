// Examples that need more than Redis: modules that the library does not, and other servers.
module github.com/go-rlock/rlock/examples/services

go 1.26.0

replace (
	github.com/go-rlock/rlock => ../..
	github.com/go-rlock/rlock/integrations/prometheus => ../../integrations/prometheus
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/go-rlock/rlock v0.1.0
	github.com/go-rlock/rlock/integrations/prometheus v0.1.0
	github.com/lib/pq v1.12.3
	github.com/prometheus/client_golang v1.25.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.6
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/rs/xid v1.6.0 // indirect
	github.com/yuin/gopher-lua v1.1.2 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
