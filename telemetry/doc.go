// Package telemetry says what happened on a connection, as typed values.
//
// A connection takes Hooks as conn.Options.Hooks, a client as
// client.Options.Conn.Hooks; Tee joins several.
//
// It depends on nothing. Sinks that turn events into logs, metrics or traces
// live in packages beside it, so that only their users compile them.
package telemetry
