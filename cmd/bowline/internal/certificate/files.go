// Package certificate serves TLS with a certificate that is replaced while the server runs, as programs do that renew them.
//
// It starts no goroutine: the files are looked at during handshakes, by one of them at a time.
package certificate

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/private"
)

// Files are the certificate of a server and its key, which may change while it runs. They need no Close.
type Files struct {
	cert, key string
	say       func(string) // is told what is wrong with the files, once for each version of them

	mu     sync.Mutex
	loaded *tls.Certificate
	of     [2]fs.FileInfo // when they were read last
	said   string         // why they could not be looked at, as it was said
	looked time.Time
}

// Load reads a certificate and its key, both in PEM.
func Load(cert, key string, say func(string)) (*Files, error) {
	c := &Files{cert: cert, key: key, say: say}
	of, err := c.files()
	if err == nil {
		err = c.load(of)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Config returns what a server needs. Its handshakes use the files as they were a second ago at the latest. A pair that does not fit, as while only one of
// them was replaced, changes nothing.
func (c *Files) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return c.now(), nil
	}}
}

func (c *Files) now() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < time.Second {
		return c.loaded
	}
	of, err := c.files()
	if err == nil && private.IsUnchanged(of[0], c.of[0]) && private.IsUnchanged(of[1], c.of[1]) {
		return c.loaded
	}
	if err == nil {
		err = c.load(of)
	}
	c.tell(err)
	return c.loaded
}

// tell says why the certificate stays as it was, once for each reason in a row.
func (c *Files) tell(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != "" && said != c.said {
		c.say("the certificate stays as it was: " + said)
	}
	c.said = said
}

// load reads both files. They were read, whatever comes of it: what is wrong with them is said once.
func (c *Files) load(of [2]fs.FileInfo) error {
	c.of = of
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.loaded = &pair
	return nil
}

func (c *Files) files() (of [2]fs.FileInfo, err error) {
	c.looked = time.Now()
	var wrong [2]error
	of[0], wrong[0] = os.Stat(c.cert)
	of[1], wrong[1] = os.Stat(c.key)
	return of, errors.Join(wrong[0], wrong[1])
}
