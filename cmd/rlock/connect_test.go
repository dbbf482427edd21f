package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	file string // its own, in PEM
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key, a.file, _ = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// issue signs a certificate, an authority its own.
func (a *authority) issue(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, string, string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	return cert, key, a.write("CERTIFICATE", der), a.write("PRIVATE KEY", secret)
}

func (a *authority) write(kind string, der []byte) string {
	a.t.Helper()
	return writeFileOf(a.t, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func writeFileOf(t *testing.T, text []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}

// startTLS runs a server that speaks TLS at the returned address, and wants
// certificates of its clients.
func startTLS(t *testing.T, a *authority, args ...string) (srv *redistest.Server, addr string) {
	t.Helper()
	redistest.TLS(t)
	_, _, cert, key := a.issue(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	require.NoError(t, l.Close())
	srv = redistest.Start(t, append([]string{
		"--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", a.file,
	}, args...)...)
	return srv, "127.0.0.1:" + port
}

func TestTLS(t *testing.T) {
	ours := newAuthority(t, "ours")
	_, _, cert, key := ours.issue(&x509.Certificate{})
	theirs := newAuthority(t, "theirs")
	_, addr := startTLS(t, ours, "--user", "app", "on", ">s3cret", "~*", "&*", "+@all", "--user", "default", "off")
	url := "rediss://app@" + addr
	password := writeFileOf(t, []byte("s3cret\n"))
	tell := []string{"--cacert", ours.file, "--cert", cert, "--key", key, "--password-file", password}
	run := func(url string, args ...string) result {
		return outcome(t, url, append(args, "inspect", "a")...)
	}
	require.Equal(t, result{stdout: "a is free\n"}, run(url, tell...))
	require.Equal(t, result{stdout: "a is free\n"}, run(url, append(tell, "--cacert", theirs.file, "--insecure")...))
	require.Equal(t, result{stdout: "ran\n"}, outcome(t, url, append(tell, "run", "a", "--", "echo", "ran")...))

	r := run(url, append(tell, "--cacert", theirs.file)...)
	require.Equal(t, exitUnavailable, r.code)
	require.Contains(t, r.stderr, "unknown authority")
	r = run(url, "--cacert", ours.file, "--password-file", password)
	require.Equal(t, exitUnavailable, r.code, "no certificate of the client")
	r = run("redis://app@"+addr, "--password-file", password)
	require.Equal(t, exitUnavailable, r.code, "no TLS")
	require.Contains(t, r.stderr, "the URL begins with rediss://)\n")
	r = run("rediss://" + redistest.Start(t).Addr())
	require.Equal(t, exitUnavailable, r.code, "TLS where there is none")
	require.Contains(t, r.stderr, "the URL begins with redis://)\n")

	wrong := writeFileOf(t, []byte("wr0ng"))
	r = run(url, append(tell, "--password-file", wrong)...)
	require.Equal(t, exitUnavailable, r.code)
	require.Contains(t, r.stderr, "WRONGPASS")
	require.NotContains(t, r.stderr, "wr0ng")
}

// TestPasswordPrecedence: the file is given for this call, the URL for this
// server, the variable for any.
func TestPasswordPrecedence(t *testing.T) {
	srv := redistest.Start(t, "--requirepass", "right")
	right, wrong := writeFileOf(t, []byte("right\r\n")), writeFileOf(t, []byte("wrong"))
	for _, tc := range []struct {
		user, variable, file string
		code                 int
	}{
		{"", "", "", exitUnavailable},
		{"", "right", "", 0},
		{":right@", "wrong", "", 0},
		{":wrong@", "wrong", right, 0},
		{":right@", "right", wrong, exitUnavailable},
	} {
		cmd := prepare(t, "redis://"+tc.user+srv.Addr(), "inspect", "a")
		cmd.Env = append(cmd.Env, "RLOCK_PASSWORD="+tc.variable, "RLOCK_PASSWORD_FILE="+tc.file)
		r := launch(t, cmd).end()
		require.Equal(t, tc.code, r.code, "%+v: %s", tc, r.stderr)
		require.NotContains(t, r.stderr, "wrong@")
	}
}

// TestPasswordsAreNotInProcessLists: neither rlock's, nor in those of what it
// starts.
func TestPasswordsAreNotInProcessLists(t *testing.T) {
	srv := redistest.Start(t, "--requirepass", "s3cret")
	p := begin(t, srv.URL(), "--password-file", writeFileOf(t, []byte("s3cret")), "run", "a", "--", "sh", "-c", "echo pid $$; read line")
	child := p.says("pid ")
	for _, pid := range []string{strconv.Itoa(p.cmd.Process.Pid), child} {
		line, err := os.ReadFile("/proc/" + pid + "/cmdline")
		require.NoError(t, err)
		require.NotContains(t, string(line), "s3cret")
	}
	environ, err := os.ReadFile("/proc/" + child + "/environ")
	require.NoError(t, err)
	require.NotContains(t, string(environ), "s3cret")
	p.tell("end")
	require.Zero(t, p.end().code)
}

func TestConnectionUsage(t *testing.T) {
	notPEM := writeFileOf(t, []byte("x"))
	twoLines := writeFileOf(t, []byte("a\nb"))
	empty := writeFileOf(t, []byte("\n"))
	for _, tc := range []struct{ args, says string }{
		{"--cacert " + notPEM + " --url rediss://h", "no certificate in"},
		{"--cacert /no/such --url rediss://h", "--cacert: open /no/such"},
		{"--cert " + notPEM + " --url rediss://h", "use --cert together with --key"},
		{"--cert " + notPEM + " --key " + notPEM + " --url rediss://h", "--cert and --key: "},
		{"--insecure --url redis://h", "are for a rediss:// URL"},
		{"--insecure", "are for a rediss:// URL"},
		{"--insecure --cluster", "are for a rediss:// URL"},
		{"--sentinel h:1", "use --sentinel together with --master"},
		{"--master m", "use --sentinel together with --master"},
		{"--sentinel h:1 --master m --cluster", "use either --sentinel or --cluster, not both"},
		{"--sentinel h:1 --master m --url redis://:s3cret@h", "leave the host out"},
		{"--sentinel h:1 --master m --url redis:///s3cret", "not a Redis URL"},
		{"--cluster --url unix:///s", "not a Redis URL"},
		{"--cluster --url redis://h/3", "no database but 0"},
		{"--cluster --url redis://h/s3cret", "no database but 0"},
		{"--url redis://h/3?addr=g:1", "no database but 0"},
		{"--cluster --url redis://h?db=3", "not a Redis URL"},
		{"--url redis://h/-1", "0 or more"},
		{"--url unix:///s?db=-1", "0 or more"},
		{"--sentinel h:1 --master m --url redis:///-1", "0 or more"},
		{"--url redis://h/99999999999999999999", "not a Redis URL"},
		{"--password-file " + twoLines, "more than one line"},
		{"--password-file " + empty, "is empty"},
		{"--sentinel-password-file /no/such", "--sentinel-password-file: open"},
	} {
		t.Setenv("RLOCK_URL", "")
		t.Setenv("REDIS_URL", "")
		r := inProcess(append(strings.Fields(tc.args), "inspect", "a")...)
		require.Equal(t, exitUsage, r.code, "%s: %s", tc.args, r.stderr)
		require.Contains(t, r.stderr, tc.says)
		require.NotContains(t, r.stderr, "s3cret")
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	}
}

func TestClusterFlag(t *testing.T) {
	t.Parallel()
	srv := startCluster(t)
	require.Equal(t, result{stdout: "ran\n"}, outcome(t, srv.URL(), "--cluster", "run", "a", "--", "echo", "ran"))
}

// startCluster runs a cluster of one node.
func startCluster(t *testing.T, args ...string) *redistest.Server {
	t.Helper()
	srv := redistest.Start(t, append([]string{"--cluster-enabled", "yes"}, args...)...)
	rdb := srv.Client(t)
	require.NoError(t, rdb.ClusterAddSlotsRange(context.Background(), 0, 16383).Err())
	redistest.Eventually(t, "the cluster is up", func() bool {
		return strings.Contains(rdb.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	return srv
}

// TestSentinel follows the master to another server.
func TestSentinel(t *testing.T) {
	redistest.Long(t, "six servers, and a failover")
	s := redistest.StartSentinels(t)
	var addrs []string
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr())
	}
	run := func(args ...string) result {
		return outcome(t, "redis://app:any@/0", append([]string{"--sentinel", strings.Join(addrs, ","), "--master", "mymaster"}, args...)...)
	}
	require.Equal(t, result{stdout: "ran\n"}, run("run", "a", "--", "echo", "ran"))

	var rep report
	require.NoError(t, json.Unmarshal([]byte(run("doctor", "--json").stdout), &rep))
	require.Equal(t, "sentinel", rep.Topology)
	require.Equal(t, fine, rep.levels()["sentinels"], "%+v", rep.Findings)
	require.Equal(t, fine, rep.levels()["lock"])
	require.Contains(t, rep.levels(), "clocks", "the replicas were asked")

	old := s.Master()
	s.Failover()
	s.AwaitSwitch(old)
	require.Equal(t, result{stdout: "ran\n"}, run("run", "a", "--", "echo", "ran"))
}

// A list of Sentinels is one with and without spaces.
func TestSentinelsInAList(t *testing.T) {
	r := outcome(t, "redis://", "--sentinel", "127.0.0.1:1, 127.0.0.1:2,", "--master", "m", "doctor", "--json")
	require.Equal(t, exitBroken, r.code)
	var rep report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &rep), r.stdout)
	var asked []string
	for _, f := range rep.Findings {
		if f.Check == "sentinels" {
			asked = append(asked, f.Nodes...)
		}
	}
	require.Equal(t, []string{"127.0.0.1:1", "127.0.0.1:2"}, asked)
}
