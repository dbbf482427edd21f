package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"slices"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// The list has what the go command wrote into a binary: this one.
func TestList(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	var out, again bytes.Buffer
	for _, w := range []*bytes.Buffer{&out, &again} {
		if err := list(w, self); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("two lists of one binary differ")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&out, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	var versions []string
	for _, c := range *bom.Components {
		versions = append(versions, c.Name+"@"+c.Version)
		if c.Name != "std" && (c.Hashes == nil || c.PackageURL != "pkg:golang/"+c.Name+"@"+c.Version) {
			t.Errorf("%+v", c)
		}
	}
	want := []string{"std@" + info.GoVersion[len("go"):]}
	for _, dep := range info.Deps {
		want = append(want, dep.Path+"@"+dep.Version)
	}
	if len(info.Deps) == 0 || !slices.Equal(versions, want) {
		t.Errorf("got %v, want %v", versions, want)
	}
	contained := *(*bom.Dependencies)[0].Dependencies
	if (*bom.Dependencies)[0].Ref != bom.Metadata.Component.BOMRef || len(contained) != len(want) {
		t.Errorf("the binary contains %v", contained)
	}
}
