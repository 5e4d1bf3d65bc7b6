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
	key, err := hkdf.Key(sha256.New, n.options.Key, nil, "bowline cluster "+n.options.Cluster+" keys "+name, KeySize)
	if err != nil { // the length is below the limit of HKDF
		panic("cluster: a key cannot be derived: " + err.Error())
	}
	return func() [][]byte { return [][]byte{key} }
}
