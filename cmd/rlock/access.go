package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/urfave/cli/v3"
)

// access is what leads to the server beside the URL.
type access struct {
	cluster   bool
	sentinels []string // empty: none
	master    string   // the name that the Sentinels know

	password         string // comes before that of the URL; "": not given
	usualPassword    string // comes after it
	sentinelPassword string

	certificates        bool // one of the following is given
	authorities         *x509.CertPool
	own                 []tls.Certificate
	certificateOfAnyone bool
}

// serverFlags lead to the server. Those with an environment variable reach
// nested runs as well.
func serverFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "url", Usage: "Redis server: redis://, rediss:// or unix:// `URL`", DefaultText: "$RLOCK_URL, $REDIS_URL, " + defaultURL},
		&cli.StringFlag{Name: "prefix", Sources: cli.EnvVars("RLOCK_PREFIX"), Usage: "put `P` before every name; the result is the key in Redis"},
		&cli.BoolFlag{Name: "cluster", HideDefault: true, Usage: "the server is a node of a cluster (not needed if the URL contains ?addr=HOST:PORT)"},
		&cli.StringFlag{Name: "sentinel", Sources: cli.EnvVars("RLOCK_SENTINEL"), Usage: "find the master through these Sentinels, `HOST:PORT,...`, with a URL that has no host"},
		&cli.StringFlag{Name: "master", Sources: cli.EnvVars("RLOCK_MASTER"), Usage: "`NAME` by which the Sentinels know the master"},
		&cli.StringFlag{Name: "password-file", Sources: cli.EnvVars("RLOCK_PASSWORD_FILE"), Usage: "read the password from `FILE`"},
		&cli.StringFlag{Name: "sentinel-password-file", Sources: cli.EnvVars("RLOCK_SENTINEL_PASSWORD_FILE"), Usage: "read the password of the Sentinels from `FILE`"},
		&cli.StringFlag{Name: "cacert", Sources: cli.EnvVars("RLOCK_CACERT"), Usage: "with rediss://, trust the authorities in `FILE` (PEM) instead of those of the system"},
		&cli.StringFlag{Name: "cert", Sources: cli.EnvVars("RLOCK_CERT"), Usage: "present the client certificate in `FILE` (PEM) to the server"},
		&cli.StringFlag{Name: "key", Sources: cli.EnvVars("RLOCK_KEY"), Usage: "read the private key of the client certificate from `FILE` (PEM)"},
		&cli.BoolFlag{Name: "insecure", HideDefault: true, Usage: "do not check the certificate of the server; anyone between you and the server can read everything"},
	}
}

// newAccess reads the flags, and the files that they name.
func newAccess(cmd *cli.Command) (a *access, err error) {
	a = &access{cluster: cmd.Bool("cluster"), master: cmd.String("master"), certificateOfAnyone: cmd.Bool("insecure")}
	a.sentinels = strings.FieldsFunc(cmd.String("sentinel"), func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	switch {
	case len(a.sentinels) > 0 && a.cluster:
		return nil, errors.New("use either --sentinel or --cluster, not both: a cluster does without Sentinels")
	case len(a.sentinels) > 0 != (a.master != ""):
		return nil, errors.New("use --sentinel together with --master (or RLOCK_SENTINEL with RLOCK_MASTER)")
	}
	if a.password, err = secret(cmd.String("password-file")); err != nil {
		return nil, fmt.Errorf("--password-file: %w", err)
	}
	if a.sentinelPassword, err = secret(cmd.String("sentinel-password-file")); err != nil {
		return nil, fmt.Errorf("--sentinel-password-file: %w", err)
	}
	a.sentinelPassword = cmp.Or(a.sentinelPassword, os.Getenv("RLOCK_SENTINEL_PASSWORD"))
	a.usualPassword = os.Getenv("RLOCK_PASSWORD")
	return a, a.readCertificates(cmd.String("cacert"), cmd.String("cert"), cmd.String("key"))
}

// secret reads a password; without a file there is none. The end of the line is
// the editor's.
func secret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case password == "":
		return "", fmt.Errorf("%s is empty", file)
	case strings.ContainsAny(password, "\r\n"):
		return "", fmt.Errorf("%s has more than one line", file)
	}
	return password, nil
}

func (a *access) readCertificates(cacert, cert, key string) error {
	a.certificates = cacert+cert+key != "" || a.certificateOfAnyone
	if cacert != "" {
		text, err := os.ReadFile(cacert)
		if err != nil {
			return fmt.Errorf("--cacert: %w", err)
		}
		a.authorities = x509.NewCertPool()
		if !a.authorities.AppendCertsFromPEM(text) {
			return fmt.Errorf("--cacert: no certificate in %s", cacert)
		}
	}
	if (cert == "") != (key == "") {
		return errors.New("use --cert together with --key")
	}
	if cert == "" {
		return nil
	}
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("--cert and --key: %w", err)
	}
	a.own = []tls.Certificate{own}
	return nil
}

// secure puts what the flags say into the TLS configuration of a rediss:// URL,
// nil for any other.
func (a *access) secure(c *tls.Config) error {
	switch {
	case !a.certificates:
		return nil
	case c == nil:
		return errors.New("--cacert, --cert, --key and --insecure are for a rediss:// URL")
	}
	c.RootCAs, c.Certificates = a.authorities, a.own
	c.InsecureSkipVerify = c.InsecureSkipVerify || a.certificateOfAnyone
	return nil
}
