// Package asking is what a call knows of its questions, whatever carries them to the client.
//
// A handler asks in four ways: by requests of the legacy revisions, by running again in each round, by waiting for
// the next round, and in the status of a task (ADR-0031). These are couriers, in package server: they wait, hold
// places and timers, and talk to clients. What is asked, what is answered, what is still open and whether a
// state is the one that was given out does not depend on the courier, and is decided here.
//
// An Exchange is one call, from its first question to its end. Questions are what is at the client now; they do
// not change, so a courier may hand them between goroutines. A Sealer turns the State of a call between two
// rounds into a text that only a server with the same secrets can read or make.
//
// There are no goroutines and no locks. An Exchange belongs to the goroutine that asks. A Sealer and a Keyring
// may be used by any.
package asking
