// Package fault makes links go wrong on purpose, the same way each time.
//
// [New] wraps a transport, and [Wrap] a link, in the faults of a [Plan]:
//
//	lossy := fault.New(inner, fault.Plan{Seed: 1, Faults: []fault.Fault{
//		{Kind: fault.Drop, Direction: fault.Inbound, Probability: 0.1},
//		{Kind: fault.Die, Direction: fault.Outbound, At: []int{3}, Link: 1},
//	}})
//
// What happens to a frame depends on the plan, the number of its link and its
// own number in its direction, and on nothing else: equal plans and equal
// frames give equal faults. Transport.Log says what was done.
//
// A wrapped link keeps the contract of transport.Link except where a fault is
// a breach of it: credit, bounded queues, calls to its receiver one at a time,
// one Lost, a bounded Close and no goroutine after it. Faults in time are read
// from package time, so that they are exact in a testing/synctest bubble.
//
// A [Script] is the other half: a peer that expects and says what a test tells
// it to, step by step.
package fault
