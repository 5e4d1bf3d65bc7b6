// Package hop carries HTTP requests between the nodes of a cluster, directly: HTTP/2 over TLS 1.3.
//
// Each node makes a key and a self-signed certificate when it starts, and publishes the address of
// its listener and the hash of its key (Peers). Both sides of a connection require that the hash of
// the other side's key is published by a node that lives. There is no authority that signs
// certificates: whoever can publish is trusted. A connection with another key ends before any
// request.
//
// Requests and responses are streamed both ways, with at most 40 KiB of a body and 256 KiB of a
// response underway, so a slow side slows only its own stream.
//
// # Goroutines
//
// A Hop has one that accepts connections while it listens; the others are those of net/http. Close waits.
package hop
