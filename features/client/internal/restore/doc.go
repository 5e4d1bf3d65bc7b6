// Package restore repeats on each new server what a session had asked the previous one
// for: the log level, the subscriptions, and the reports of changes (ADR-0030). It also
// makes sessions that could not reach their server try again when another session finds it
// (ADR-0001).
//
// A Restorer owns the newest log level, the subscriptions of resources and their watchers,
// and the subscriptions/listen. It does not own the queue of the program's events, the cache, or
// how a request is made: a Session and a Caller do that for it. Outages owns the list of the
// sessions that wait for an endpoint.
//
// A Restorer that has something to restore runs one goroutine of the Conn, "restore", until the
// session ends. It reports each loss, asks each new server, one step after the other, and then
// reports that it is restored. Each subscriptions/listen has another one. All other functions run on the
// goroutine of their caller: the requests of Subscribe, Unsubscribe and SetLogLevel on that of the program, and
// Acknowledged, Updated and SawEpoch on the one that handles notifications. No lock is held while a
// request or an event of the program is under way. Of the two locks of a Restorer, that of its
// reports comes first.
package restore
