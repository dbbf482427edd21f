package bench

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReportKeys: the keys of the JSON look as everywhere in the command, and those of
// durations end in their unit.
func TestReportKeys(t *testing.T) {
	seen := make(map[reflect.Type]bool)
	var look func(reflect.Type)
	look = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			look(typ.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[typ] || typ.PkgPath() != reflect.TypeFor[Report]().PkgPath() {
			return
		}
		seen[typ] = true
		for field := range typ.Fields() {
			if !field.IsExported() {
				continue
			}
			key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			require.Regexp(t, `^[a-z0-9]+(_[a-z0-9]+)*$`, key, "%v.%s", typ, field.Name)
			require.Equal(t, field.Type == reflect.TypeFor[time.Duration](), strings.HasSuffix(key, "_ns"), "%v.%s", typ, field.Name)
			look(field.Type)
		}
	}
	look(reflect.TypeFor[Report]())
	require.Contains(t, seen, reflect.TypeFor[Percentiles]())
}
