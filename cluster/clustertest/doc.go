// Package clustertest has an Engine in memory for tests of what is built on package cluster, and
// a suite that checks an Engine.
//
//	shared := clustertest.New(clustertest.Options{})
//	a, b := shared.Engine(), shared.Engine() // of two nodes
//	a.Cut()
//	…
//	a.Heal()
//
// A Service is what NATS would be, and an Engine the connection of one node to it. Tests switch
// faults on: [Engine.Cut], [Engine.Freeze] for stale reads, [Engine.Deny], [Service.Full],
// [Service.Restart] and [Service.Wipe]. With [Engine.Faults] they decide on each operation and
// each message: whether it is delayed, lost or doubled, and whether the connection is cut with it.
//
// What one Engine sends arrives in the order in which it was sent, however long each part is
// delayed; so does what it receives. Nothing takes time by itself. All times come from package
// time, so that they are exact in a testing/synctest bubble.
//
// Each subscription has a goroutine that calls its function, until it is closed.
//
// [EngineContract] checks an implementation of cluster.Engine.
package clustertest
