package cluster

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/internal/seal"
)

// Purposes of sealed values. Each has a key of its own.
const (
	sealLease    = "lease"
	sealRequest  = "control request"
	sealResponse = "control response"
)

// sealVersion is the first byte of a sealed value: how the rest is sealed.
const sealVersion = 1

// errSealVersion says that a value was sealed in another way.
var errSealVersion = errors.New("it is sealed in another version")

// A sealer seals everything that the Engine keeps or carries. A sealed value is sealVersion
// and what package internal/seal makes of the value. It opens only for the same cluster,
// purpose and name.
type sealer struct {
	cluster string
	secrets [][]byte
	refused atomic.Uint64 // values that did not open

	mu        sync.Mutex
	byPurpose map[string]*seal.Sealer
}

func newSealer(cluster string, key []byte) *sealer {
	return &sealer{cluster: cluster, secrets: [][]byte{key}, byPurpose: map[string]*seal.Sealer{}}
}

func (s *sealer) of(purpose string) *seal.Sealer {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.byPurpose[purpose]
	if found == nil {
		found = seal.New("cluster "+purpose, func() [][]byte { return s.secrets })
		s.byPurpose[purpose] = found
	}
	return found
}

func (s *sealer) about(name string) []byte { return []byte(s.cluster + " " + name) }

// seal encrypts a value. The purpose is a constant. The name is where the value is stored,
// "lease/node.a", or the subject that it is sent to.
func (s *sealer) seal(purpose, name string, plain []byte) []byte {
	sealed, err := s.of(purpose).Seal(plain, s.about(name))
	if err != nil { // the length of the key was checked
		panic("cluster: a value cannot be sealed: " + err.Error())
	}
	return append([]byte{sealVersion}, sealed...)
}

// open returns the value that was sealed for the same purpose and name. A caller treats a
// value that does not open as none; it is counted here.
func (s *sealer) open(purpose, name string, sealed []byte) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != sealVersion {
		s.refused.Add(1)
		return nil, errSealVersion
	}
	plain, err := s.of(purpose).Open(sealed[1:], s.about(name))
	if err != nil {
		s.refused.Add(1)
	}
	return plain, err
}

// seal seals a value for the purpose and the place that a name describes; see sealer.
func (n *Node) seal(purpose, name string, plain []byte) []byte {
	return n.sealer.seal(purpose, name, plain)
}

// open opens what seal has sealed for the same purpose and name. If it does not open, the
// value counts as none; Report counts it.
func (n *Node) open(purpose, name string, sealed []byte) ([]byte, error) {
	return n.sealer.open(purpose, name, sealed)
}

// deriveKey returns a secret of the cluster for one purpose.
func deriveKey(o Options, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, o.Key, nil, "bowline cluster "+o.Cluster+" "+purpose, KeySize)
	if err != nil { // the length is below the limit of HKDF
		panic("cluster: a key cannot be derived: " + err.Error())
	}
	return key
}
