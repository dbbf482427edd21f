package lua

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed guarded.lua
var guardedSource string

// Script is a Lua script whose source another package passes to [NewScript] or [NewGuarded].
type Script struct{ script script }

// NewScript returns a script. In its source, KEYS and ARGV are the keys and the arguments that are passed to
// Run.
func NewScript(source string) *Script { return &Script{newScript("given", source, 0)} }

// NewGuarded returns a script that Redis executes only while an owner holds the lock KEYS[1]. The first of args
// in [Script.Run] is the owner, and is not contained in ARGV. If the owner does not hold the lock, the script
// is not executed and Run returns [ErrNotOwner].
func NewGuarded(source string) *Script {
	return NewScript(nothingSource + fmt.Sprintf(guardedSource, source))
}

// Run executes the script in one round trip, or two if the server does not know the script, and returns its
// reply without reading it. A nil reply is not an error. go-redis does not repeat the request.
func (s *Script) Run(ctx context.Context, r Runner, keys []string, args ...any) (any, error) {
	cmd, err := s.script.send(ctx, r, keys, args)
	switch {
	case err == redis.Nil:
		return nil, nil
	case err != nil && redis.HasErrorPrefix(err, "RLOCKNOTHELD"):
		return nil, ErrNotOwner
	case err != nil:
		return nil, err
	}
	return cmd.Val(), nil
}
