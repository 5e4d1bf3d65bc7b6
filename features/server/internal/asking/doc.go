// Package asking is what a call knows of its questions, whatever carries them to the client.
//
// Questions reach the client in four ways: by requests of the legacy revisions, by running again in each round, by waiting
// for the next round, and in the status of a task (ADR-0031). Each is a Courier. Rerun and Waiting are here, the legacy
// requests in package server (direct, converse.go), and tasks beside this room. What is asked, what is answered, what is
// still open and whether a state is the one that was given out does not depend on the courier, and is decided by the core:
// an Exchange, Questions, and a Sealer. Parking questions, and waiting until they are answered, refused or too late, is
// there once, too: Parked.
//
// An Exchange is one call, from its first question to its end. Questions are what is at the client now; they do
// not change, so a courier may hand them between goroutines. A Sealer turns the State of a call between two
// rounds into a text that only a server with the same secrets can read or make.
//
// Goroutines: an Exchange belongs to the goroutine that asks. A Conversation, a Sealer, a Keyring and Rounds may be used by
// any. The handler of a Waiting runs on a goroutine of its own, which Calls.Wait waits for; its rounds are served on the goroutines of
// their requests.
package asking
