package hop

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// newCertificate returns a new key with a self-signed certificate, and the hash of the key.
func newCertificate() (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("cluster: make the key of the node: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		// Nobody checks the time: the key is good while its hash is published.
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("cluster: make the certificate of the node: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("cluster: make the certificate of the node: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, hashOf(leaf), nil
}

// hashOf returns the SHA-256 of a certificate's public key (SPKI).
func hashOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return string(sum[:])
}

var (
	errNoKey   = errors.New("cluster: the other side has no certificate")
	errNoHTTP2 = errors.New("cluster: the other side does not speak HTTP/2")
)

// A KeyError says that the other side of a connection has a key that no living node has published,
// or not the node that was asked for.
type KeyError struct {
	SPKI string // the hash of its key, 32 bytes
	Node string // the node that was asked for; "" if it was the other side that connected
}

func (e *KeyError) Error() string {
	key := base64.RawURLEncoding.EncodeToString([]byte(e.SPKI))
	if e.Node != "" {
		return fmt.Sprintf("cluster: the key %s is not that of node %q", key, e.Node)
	}
	return fmt.Sprintf("cluster: the key %s is that of no living node", key)
}

const protocolName = "h2"

// toPeer returns the settings for connections to a node. TLS proves that the other side has the
// key of its certificate, and the hash proves that this is the key of the node. So the usual
// verification, of names and authorities, is replaced and not left out.
func toPeer(own tls.Certificate, p Peer) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, NextProtos: []string{protocolName},
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			hash, err := keyOf(state)
			switch {
			case err != nil:
				return err
			case hash != p.SPKI:
				return &KeyError{SPKI: hash, Node: p.Node}
			case state.NegotiatedProtocol != protocolName:
				return errNoHTTP2
			}
			return nil
		},
	}
}

// fromPeers returns the settings for connections that other nodes make. Admit is called with the
// hash of the key of each.
func fromPeers(own tls.Certificate, admit func(context.Context, net.Conn, string) error) *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, NextProtos: []string{protocolName},
		ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
	}
	outer := base.Clone()
	outer.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		config := base.Clone()
		config.VerifyConnection = func(state tls.ConnectionState) error {
			hash, err := keyOf(state)
			switch {
			case err != nil:
				return err
			case state.NegotiatedProtocol != protocolName:
				return errNoHTTP2
			}
			return admit(hello.Context(), hello.Conn, hash)
		}
		return config, nil
	}
	return outer
}

// keyOf returns the hash of the key of the other side.
func keyOf(state tls.ConnectionState) (string, error) {
	if len(state.PeerCertificates) == 0 {
		return "", errNoKey
	}
	return hashOf(state.PeerCertificates[0]), nil
}
