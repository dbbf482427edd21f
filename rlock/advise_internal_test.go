package rlock

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// serverError is an error that a server has answered.
type serverError string

func (r serverError) Error() string { return string(r) }
func (serverError) RedisError()     {}

// Servers of all versions tell of a missing right in a script, each in its own words.
func TestAdviceForMissingRights(t *testing.T) {
	for _, text := range []string{
		"NOPERM this user has no permissions to run the 'evalsha' command",
		"ERR The user executing the script can't run this command or subcommand script: 1f, on @user_script:53.",
		"ERR Error running script (call to f_1f): @user_script:108: @user_script: 108: The user executing the script can't run this command or subcommand",
		"@user_script: 108: The user executing the script can't access at least one of the keys mentioned in the command arguments",
	} {
		require.ErrorContains(t, advise(serverError(text)), "that of its queue among them", text)
	}
	require.ErrorContains(t, advise(serverError("MOVED 15495 127.0.0.1:7804")), "rlock with --cluster")
	require.NotContains(t, advise(serverError("ERR something else")).Error(), "ACL")
}
