package lua

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed guarded.lua
var guardedSource string

// Script is a script of another package.
type Script struct{ script script }

// NewScript returns a script. KEYS and ARGV are the keys and arguments of Run.
func NewScript(source string) *Script { return &Script{newScript("given", source, 0)} }

// NewGuarded returns a script that acts only while an owner holds the lock KEYS[1]. The owner is the
// first argument of Run, and is no element of the script's ARGV. If the owner does not hold the lock,
// the script is not begun, and the error of Run is [ErrNotOwner].
func NewGuarded(source string) *Script {
	return NewScript(nothingSource + fmt.Sprintf(guardedSource, source))
}

// Run sends the script in one round trip, in two if the server does not know the script, and returns the
// reply unread. A nil reply is no error. go-redis does not repeat the request.
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
