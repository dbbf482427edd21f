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

// WriteRecord writes fields and values to a hash, in place of the former fields, for the time
// lasts. Without fields WriteRecord removes the hash. Records are not part of locks: a client
// tells about itself.
func WriteRecord(ctx context.Context, r Runner, key string, lasts time.Duration, fields []any) error {
	args := append(make([]any, 0, 1+len(fields)), lasts.Milliseconds())
	_, err := recordScript.runAnew(ctx, r, key, append(args, fields...)...)
	return err
}

// Enlist keeps a client in the list of clients with a record for the time lasts, and takes out
// expired clients. The list lasts as long as the last entry. 0 takes the client out. listed is how many
// clients the list has then.
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
