package golangci_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis/analysistest"

	_ "github.com/go-rlock/rlock/cmd/rlockvet/golangci"
)

// TestPlugin: what golangci-lint gets by the name in its settings finds the mistakes.
func TestPlugin(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/testing.md")
	name := "rlock"
	if err == nil { // else the repository is not here
		name = regexp.MustCompile(`(?s)custom:\s+(\w+):\s+type: module`).FindStringSubmatch(string(docs))[1]
	}
	newPlugin, err := register.GetPlugin(name)
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := newPlugin(nil)
	if err != nil {
		t.Fatal(err)
	}
	if mode := plugin.GetLoadMode(); mode != register.LoadModeTypesInfo {
		t.Error("mode:", mode)
	}
	analyzers, err := plugin.BuildAnalyzers()
	if err != nil || len(analyzers) != 1 {
		t.Fatal(analyzers, err)
	}
	testdata, err := filepath.Abs("../analyzer/testdata")
	if err != nil {
		t.Fatal(err)
	}
	analysistest.Run(t, testdata, analyzers[0], "trial")
}
