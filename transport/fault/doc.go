// Package fault injects faults into links, deterministically.
//
// [New] wraps a transport, and [Wrap] a link. A [Plan] lists the faults:
//
//	lossy := fault.New(inner, fault.Plan{Seed: 1, Faults: []fault.Fault{
//		{Kind: fault.Drop, Direction: fault.Inbound, Probability: 0.1},
//		{Kind: fault.Die, Direction: fault.Outbound, At: []int{3}, Link: 1},
//	}})
//
// What happens to a frame depends only on the plan, the number of the link, and
// the number of the frame in its direction: equal plans and equal frames give
// equal faults. Transport.Log lists the faults that were injected.
//
// A wrapped link keeps the contract of transport.Link, except where a fault
// breaks it on purpose: credit, bounded queues, one call to the receiver at a
// time, one Lost, a bounded Close, and no goroutine afterwards. All times come
// from package time, so they are exact in a testing/synctest bubble.
//
// A [Script] is a peer for tests: it expects and sends frames step by step.
package fault
