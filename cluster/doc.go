// Package cluster lets several nodes serve one MCP endpoint: each request may arrive at any
// node, and a session goes on at another node when its own has ended.
//
//	n, err := cluster.Join(ctx, engine, cluster.Options{Cluster: "prod", Node: "a", Key: key})
//	...
//	defer n.Close(ctx)
//
// The nodes share an [Engine]: package cluster/nats has one on NATS, and cluster/clustertest
// one in memory for tests. A [Node] seals what the Engine keeps or carries with the key of
// the cluster. Only names of nodes and keys, sizes and times can be read without it.
//
// # Leases
//
// A node holds a lease of its name. It writes the lease every 5 s, and believes in it for 17 s
// after the sending of the last write that was accepted, by its own clock. The Engine keeps
// it for 20 s. What belongs to one node at a time, such as a server that runs once in the
// cluster, is a claim with the same rules. So nobody else can have it while its holder
// believes in it: as long as a clock loses less than 3 s in 20, and the Engine keeps its values.
//
// Ownership is decided by writes that replace exactly one value. What reads and watches show
// may be old, and only leads to a write, or to the end of a claim.
//
// Without the Engine, a node goes on. It is [Degraded], and after 17 s [Isolated]: it then holds
// nothing. It serves its sessions, but another node may take them.
//
// No call waits for the Engine, and none sends it anything.
//
// # Servers
//
// [Node.Upstream] is the transport to a server that runs on one node, and that the clients of all
// nodes use. If it is a process, call [guardian.Start] first in main, and set [Options].Guardian: then
// it ends in time, whatever becomes of its node.
//
// # Goroutines
//
// A Node has one that renews its lease, one that follows the leases of others, and one for each
// bucket that it watches. While something is under way it has more: a session that is written, a
// claim that is lost, a server that runs here. [Node.Close] waits for all of them. Functions of
// Options are called on these goroutines.
//
// See ADR-0076 and ADR-0079.
package cluster
