package embedded

import (
	"bufio"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"time"
)

// routeName is the name in the certificates of servers. They have no other, because a server is
// not known by its address.
const routeName = "route.bowline.invalid"

// derive returns a secret for one purpose, which only who has the key of the cluster can know.
func (o Options) derive(purpose string) ([]byte, error) {
	secret, err := hkdf.Key(sha256.New, o.Key, nil, "bowline cluster "+o.Cluster+" servers "+purpose, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("embedded: derive the %s of the servers: %w", purpose, err)
	}
	return secret, nil
}

// routeToken returns the password of the servers for each other.
func (o Options) routeToken() (string, error) {
	token, err := o.derive("token")
	return hex.EncodeToString(token), err
}

// authority returns the only authority of the servers. Its key derives from the key of the cluster. So
// each server can issue a certificate for itself, and nobody else can.
func (o Options) authority() (root *x509.Certificate, key ed25519.PrivateKey, err error) {
	seed, err := o.derive("authority")
	if err != nil {
		return nil, nil, err
	}
	key = ed25519.NewKeyFromSeed(seed)
	root = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bowline cluster " + o.Cluster},
		NotBefore: time.Unix(0, 0), NotAfter: endOfTime, KeyUsage: x509.KeyUsageCertSign,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	root, err = issue(root, root, key.Public(), key)
	return root, key, err
}

// routeTLS returns the settings for both directions of a connection between servers.
func (o Options) routeTLS() (*tls.Config, error) {
	root, authority, err := o.authority()
	if err != nil {
		return nil, err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("embedded: make the key of the server: %w", err)
	}
	own, err := issue(&x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{routeName},
		NotBefore: time.Unix(0, 0), NotAfter: endOfTime, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, root, public, authority)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: routeName, RootCAs: roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{own.Raw}, PrivateKey: private, Leaf: own}}, SessionTicketsDisabled: true,
	}, nil
}

// takenWithin is how long the server of an entry may take to say its name.
const takenWithin = 2 * time.Second

// taken reports whether a server of the cluster that runs has the entry of this one. Two with one
// name would count as one that votes twice.
func (o Options) taken() bool {
	config, err := o.routeTLS()
	if err != nil {
		return false
	}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: takenWithin}, "tcp", o.Self, config)
	if err != nil {
		return false // nobody is there, or no server of the cluster
	}
	defer c.Close()
	if c.SetDeadline(time.Now().Add(takenWithin)) != nil {
		return false
	}
	line, err := bufio.NewReader(io.LimitReader(c, maxInfo)).ReadString('\n')
	text, isInfo := strings.CutPrefix(line, "INFO ")
	var info struct {
		Name string `json:"server_name"`
	}
	return err == nil && isInfo && json.Unmarshal([]byte(text), &info) == nil && info.Name == serverName(o.Self)
}

// maxInfo bounds what a server says of itself.
const maxInfo = 32 << 10

// endOfTime is when certificates end: clocks prove nothing here.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

func issue(template, parent *x509.Certificate, public any, signer ed25519.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, fmt.Errorf("embedded: make a certificate of the servers: %w", err)
	}
	issued, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("embedded: make a certificate of the servers: %w", err)
	}
	return issued, nil
}
