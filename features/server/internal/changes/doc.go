// Package changes tells clients what has changed on a server: lists of features, resources and tasks.
//
// A Hub knows every Listener, which is one client that wants to be told: a legacy session, or a listening
// request of 2026-07-28. Whoever changes something tells the Hub. It passes that on to the
// listeners, and through a Network to the hubs of other nodes.
//
// The package owns what each client wants and what is pending for it, who is subscribed to which
// resource, and how much room that takes. It knows no sessions, requests or wires: a Listener is given
// a function that sends, and a Hub functions that publish.
//
// # Goroutines
//
// Telling never blocks and runs nothing of the program, so any goroutine may do it. A Listener sends on the
// goroutine of a timer, one at a time, and End waits for it. A Hub publishes on another one, and passes missed
// changes on from a third; Leave returns what waits for both. Requests that change one
// subscription wait for each other in Claim, on their own goroutines.
//
// No lock is held while something is sent or published, because the program runs then (middleware,
// stores, a carrier between nodes), and it may come back to this package. A Hub may take the lock of a Listener
// while it holds its own; never the other way round.
package changes
