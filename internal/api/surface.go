package api

import (
	"fmt"
	"go/types"
	"slices"
	"strings"
)

// surface lists what a package exports, a line for each thing that a program can
// name, in order.
func surface(pkg *types.Package) []string {
	var lines []string
	for _, name := range pkg.Scope().Names() {
		if obj := pkg.Scope().Lookup(name); obj.Exported() {
			lines = append(lines, object(obj)...)
		}
	}
	slices.Sort(lines)
	return lines
}

func object(obj types.Object) []string {
	qualify := types.RelativeTo(obj.Pkg())
	switch obj := obj.(type) {
	case *types.Const:
		return []string{fmt.Sprintf("const %s %s = %s", obj.Name(), types.TypeString(obj.Type(), qualify), obj.Val())}
	case *types.TypeName:
		return named(obj, qualify)
	}
	return []string{types.ObjectString(obj, qualify)}
}

// named lists a type: what it is, its exported fields and methods, those of
// embedded types as well.
func named(obj *types.TypeName, qualify types.Qualifier) []string {
	if obj.IsAlias() {
		return []string{types.ObjectString(obj, qualify)}
	}
	head := "type " + obj.Name()
	if params := obj.Type().(*types.Named).TypeParams(); params.Len() > 0 {
		head = strings.Replace("type "+types.TypeString(obj.Type(), qualify), "type "+obj.Pkg().Name()+".", "type ", 1)
	}
	var lines []string
	switch under := obj.Type().Underlying().(type) {
	case *types.Struct:
		lines = append(lines, head+" struct")
		hidden := false
		for field := range under.Fields() {
			if field.Exported() {
				lines = append(lines, fmt.Sprintf("%s, field %s %s", head, field.Name(), types.TypeString(field.Type(), qualify)))
			}
			hidden = hidden || !field.Exported()
		}
		if hidden { // so no composite literal without keys, and no conversion
			lines = append(lines, head+", with hidden fields")
		}
	default:
		lines = append(lines, head+" "+types.TypeString(under, qualify))
	}
	if types.IsInterface(obj.Type()) {
		return lines // its methods are its type
	}
	for method := range types.NewMethodSet(types.NewPointer(obj.Type())).Methods() {
		if fn := method.Obj(); fn.Exported() {
			lines = append(lines, types.ObjectString(fn, qualify))
		}
	}
	return lines
}
