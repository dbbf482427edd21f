// Package golangci makes the analyzer a linter of golangci-lint, named rlock: "golangci-lint
// custom" builds a golangci-lint with it. docs/testing.md shows both files that are needed.
package golangci

import (
	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	"github.com/go-rlock/rlock/cmd/rlockvet/analyzer"
)

func init() {
	register.Plugin("rlock", func(any) (register.LinterPlugin, error) { return plugin{}, nil })
}

// plugin has no settings.
type plugin struct{}

func (plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) {
	return []*analysis.Analyzer{analyzer.Analyzer}, nil
}

// GetLoadMode asks for types: the analyzer looks for methods of package rlock.
func (plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
