package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
)

// duration returns the value of a flag, with units or in seconds; unset if it is not given.
func duration(cmd *cli.Command, flag string, unset time.Duration) (time.Duration, error) {
	if !cmd.IsSet(flag) {
		return unset, nil
	}
	text := cmd.String(flag)
	if strings.Trim(text, "0123456789.") == "" {
		text += "s" // as flock and timeout take it
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("--%s: %q is not a duration such as 1m30s, 500ms, or 90 for seconds", flag, cmd.String(flag))
	}
	return d, nil
}
