// Apart from the library, which needs no analysis. It imports nothing of it, and has no
// replace directive, so that "go run …/cmd/rlockvet@version" works.
module github.com/go-rlock/rlock/cmd/rlockvet

go 1.26.0

require (
	github.com/golangci/plugin-module-register v0.1.2
	golang.org/x/tools v0.52.0
)

require (
	golang.org/x/mod v0.43.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
)
