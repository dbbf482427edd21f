// Command sbom prints what a Go binary contains, as a software bill of
// materials in CycloneDX. The go command has written all of it into the binary;
// nothing is looked up elsewhere, and the same binary gives the same list.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY")
		os.Exit(2)
	}
	if err := list(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func list(w io.Writer, file string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	bom := bill(info)
	bom.Metadata.Component.Name = filepath.Base(file)
	bom.Metadata.Component.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
	encoder := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true)
	return encoder.EncodeVersion(bom, cdx.SpecVersion1_6)
}

// bill has no serial number and no time: they would differ with each call.
func bill(info *debug.BuildInfo) *cdx.BOM {
	self := module(&info.Main)
	self.Type = cdx.ComponentTypeApplication
	std := cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: "std",
		Version: strings.TrimPrefix(info.GoVersion, "go"),
	}
	std.PackageURL = packageURL(std.Name, std.Version)
	std.BOMRef = std.PackageURL
	components := []cdx.Component{std}
	for _, dep := range info.Deps {
		components = append(components, module(dep))
	}
	contained := make([]string, len(components))
	for i, c := range components {
		contained[i] = c.BOMRef
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &self}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: self.BOMRef, Dependencies: &contained}}
	return bom
}

// module has the hash of go.sum, in the form of CycloneDX.
func module(m *debug.Module) cdx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
		PackageURL: packageURL(m.Path, m.Version),
	}
	c.BOMRef = c.PackageURL
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) == sha256.Size {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c
}

// packageURL is https://github.com/package-url/purl-spec of a Go module.
func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + url.QueryEscape(version)
}
