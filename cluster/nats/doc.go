// Package nats has an Engine for package cluster on a NATS server, or on several, with JetStream.
//
//	engine, err := nats.Connect(ctx, nats.Options{
//		URLs: []string{"tls://a:4222", "tls://b:4222"}, Cluster: "prod", Credentials: "node.creds",
//	})
//
// Messages of the cluster C have subjects below bl.C.pub, requests below bl.C.req, and responses
// come to _INBOX_bl_C. A bucket is a key-value bucket of NATS, named bl_C_ and its name; `nats kv` shows
// it. In a cluster of servers each bucket has three replicas. Reads are served by any of them and
// may be stale; writes are decided by the leader, and so is that a key has no value.
//
// A connection that is lost is made again, for ever: after 100 ms at first, and after 5 s in the
// end. A server that does not answer is noticed after 6 s. Nothing is kept for a connection that
// is lost: what is sent then gets an error at once. If the machine cannot send, because a
// connection is stuck and its buffers are full, a method may take 2 s longer than its context.
//
// # Goroutines
//
// Besides those of nats.go, an Engine has one for each subscription, which reports lost messages. It
// ends with the subscription.
//
// The servers must have version 2.11 or newer.
package nats
