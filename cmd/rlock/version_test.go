package main

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionOf(t *testing.T) {
	system := " go1.26.8 " + runtime.GOOS + "/" + runtime.GOARCH
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0"}}
	require.Equal(t, "v0.1.0"+system, versionOf(info), "installed from a module")
	info.Settings = []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"},
		{Key: "vcs.time", Value: "2026-11-22T10:00:00Z"},
		{Key: "vcs.modified", Value: "true"},
	}
	require.Equal(t, "v0.1.0 0123456789ab with changes 2026-11-22"+system, versionOf(info))
	info.Settings[2].Value = "false"
	require.Equal(t, "v0.1.0 0123456789ab 2026-11-22"+system, versionOf(info))
}
