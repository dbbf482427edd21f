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

// WriteRecord writes fields and values to a hash, which expires after the time lasts. The new fields replace
// all fields that the hash had before. If there are no fields, WriteRecord removes the hash. Records are not
// part of locks: in a record, a client describes itself.
func WriteRecord(ctx context.Context, r Runner, key string, lasts time.Duration, fields []any) error {
	args := append(make([]any, 0, 1+len(fields)), lasts.Milliseconds())
	_, err := recordScript.runAnew(ctx, r, key, append(args, fields...)...)
	return err
}

// Enlist adds a client to the list of clients that have a record (see [WriteRecord]), and removes expired
// clients from the list. The entry expires after the time lasts, and the list expires with its last entry. If
// lasts is 0, Enlist removes the client. listed is the number of clients in the list afterwards.
func Enlist(ctx context.Context, r Runner, key, client string, lasts time.Duration) (listed int64, err error) {
	answer, err := enlistScript.runAnew(ctx, r, key, client, lasts.Milliseconds())
	return answer.int(1), err
}

// runAnew runs the script once more if the script has removed the key while the slot moves: the
// second run makes the key on the other node, like all new keys.
func (s *script) runAnew(ctx context.Context, r Runner, key string, args ...any) (reply, error) {
	answer, err := s.run(ctx, r, []string{key}, args...)
	if err != nil && elsewhere(err) {
		answer, err = s.run(ctx, r, []string{key}, args...)
	}
	return answer, err
}
