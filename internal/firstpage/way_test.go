package firstpage

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWay(t *testing.T) {
	named := func(pkg, name string, uses ...reference) Function {
		return Function{Name: name, Line: 7, pkg: module + "/" + pkg, file: module + "/" + pkg + "/a.go", uses: uses}
	}
	use := func(pkg, name string) reference { return reference{pkg: module + "/" + pkg, name: name} }
	met := []Function{
		named("rlock", "stored", use("rlock", "below")),
		named("rlock", "below"),
		named("rlock", "(*Lock).Lock", use("pubsub", "send"), reference{name: "Add"}, use("rlock", "(*Lock).Lock")),
		named("pubsub", "send", use("lua", "Acquire")),
		named("watchdog", "(*Scheduler).Add"),
		named("lua", "Acquire"),
	}
	met[5].Doc = "Acquire takes."

	var out strings.Builder
	require.NoError(t, Way(&out, met, "(*Lock).Lock", false))
	require.Equal(t, `rlock.(*Lock).Lock  rlock/a.go:7
  lua.Acquire  lua/a.go:7
      Acquire takes.
  watchdog.(*Scheduler).Add  watchdog/a.go:7

Beside it, by goroutines and stored functions:
rlock.stored  rlock/a.go:7
  rlock.below  rlock/a.go:7
`, out.String())

	out.Reset()
	require.NoError(t, Way(&out, met, "(*Lock).Lock", true))
	require.Contains(t, out.String(), "\n  pubsub.send  pubsub/a.go:7\n    lua.Acquire")
	require.Error(t, Way(&out, met, "(*Lock).Gone", true))
}
