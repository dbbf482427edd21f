package analyzer_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/go-rlock/rlock/cmd/rlockvet/analyzer"
)

func TestAnalyzer(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), analyzer.Analyzer, "three", "outer", "dropped", "unlock", "fine", "several", "trial", "careful", "without")
}

// TestStandIn: what the analyzer is tried on has the names and types of the library.
func TestStandIn(t *testing.T) {
	api, err := os.ReadFile("../../../api/rlock.txt")
	if os.IsNotExist(err) {
		t.Skip("the repository is not here")
	}
	standIn, err := os.ReadFile("testdata/src/github.com/go-rlock/rlock/rlock/rlock.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(api), "\n")
	declared := regexp.MustCompile(`(?m)^(func .*?) +\{.*$`).FindAllStringSubmatch(string(standIn), -1)
	if len(declared) < 20 {
		t.Fatalf("%d functions only", len(declared))
	}
	method := regexp.MustCompile(`^func (\(\*\w+\)) `)
	for _, match := range declared {
		if line := method.ReplaceAllString(match[1], "func $1."); !slices.Contains(lines, line) {
			t.Errorf("the library has no %s", line)
		}
	}
}
