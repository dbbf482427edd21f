package lua

import (
	"context"
	_ "embed"
	"time"
)

//go:embed record.lua
var recordSource string

//go:embed enlist.lua
var enlistSource string

var (
	recordScript = newScript("record", recordSource, 0)
	enlistScript = newScript("enlist", enlistSource, 0)
)

// WriteRecord writes fields and their values to a hash, in place of whatever it has, for
// so long. Without fields it removes the hash. It has nothing to do with locks: it is for
// what their clients tell about themselves.
func WriteRecord(ctx context.Context, r Runner, key string, lasts time.Duration, fields []any) error {
	args := append(make([]any, 0, 1+len(fields)), lasts.Milliseconds())
	return recordScript.runAnew(ctx, r, key, append(args, fields...)...)
}

// Enlist keeps a client for so long in the list of those that have a record, which ends
// with its newest entry, and takes out whose time is over. 0 takes the client out.
func Enlist(ctx context.Context, r Runner, key, client string, lasts time.Duration) error {
	return enlistScript.runAnew(ctx, r, key, client, lasts.Milliseconds())
}

// runAnew runs the script once more if it has removed its key and found that the slot of that
// moves: the second time the key is made on the other node, as all new ones are.
func (s *script) runAnew(ctx context.Context, r Runner, key string, args ...any) error {
	_, err := s.run(ctx, r, []string{key}, args...)
	if err != nil && elsewhere(err) {
		_, err = s.run(ctx, r, []string{key}, args...)
	}
	return err
}
