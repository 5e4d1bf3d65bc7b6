// Package relay stands between a host, which talks to it over standard input and output, and the gateway of a file, which it reaches at a
// socket of this user. Messages pass as they are. When the gateway is gone, a relay reaches it again, starts one if none runs, and goes on with
// the session of its host, which sees no more of it than calls that have failed.
//
//	session.go   what the host has agreed on and has under way; pure
//	messages.go  what messages say, and the frames of those that are made here; pure
//	failure.go   how a request fails that no gateway has answered; pure
//	relay.go     the loop: which message is passed on when
//	end.go       one of the two links, with what has come from it and what it has no room for
//	start.go     how a gateway is reached, and started
//	log.go       the log of a gateway that was started
//
// Relay.Run is a loop on the goroutine of its caller, which alone touches the session. Each attempt to reach a gateway runs on a goroutine of its
// own, for which Run waits. The goroutine that waits for the end of a gateway that was started here ends with the process.
package relay
