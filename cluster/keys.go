package cluster

// Keys returns a function that returns a secret for one purpose of the program, the same on all
// nodes: 32 bytes, derived from the key of the cluster. Use it for the Secrets of
// server.AskingOptions and the DPoPSecrets of resource.Options. Another name gives another
// secret.
func (n *Node) Keys(name string) func() [][]byte {
	key := deriveKey(n.options, "keys "+name)
	return func() [][]byte { return [][]byte{key} }
}
