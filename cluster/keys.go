package cluster

import (
	"crypto/hkdf"
	"crypto/sha256"
)

// Keys returns a function that returns a secret for one purpose of the program, the same on all
// nodes: 32 bytes, derived from the key of the cluster. Use it for the Secrets of
// server.AskingOptions and the DPoPSecrets of resource.Options. Another name gives another
// secret.
func (n *Node) Keys(name string) func() [][]byte {
	key := deriveKey(n.options, "keys "+name)
	return func() [][]byte { return [][]byte{key} }
}

// deriveKey returns a secret of the cluster for one purpose.
func deriveKey(o Options, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, o.Key, nil, "bowline cluster "+o.Cluster+" "+purpose, KeySize)
	if err != nil { // the length is below the limit of HKDF
		panic("cluster: a key cannot be derived: " + err.Error())
	}
	return key
}
