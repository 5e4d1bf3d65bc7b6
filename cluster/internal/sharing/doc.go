// Package sharing lets several MCP clients use one link to a server that speaks to one client, such
// as a process on its standard streams.
//
// A Server has one connection to the server and one to each client. The connections map ids,
// progress tokens and cancellations, in both directions. Everything else passes unchanged, but for
// this:
//
//   - The first client opens the session. Those that come later get the same answer to initialize,
//     or are refused if their capabilities are others than the server was told. Their
//     server/discover is passed on to a server of a modern revision.
//   - A notification of the server goes to all clients, and one of a subscription
//     (subscriptions/listen) to the client that made it.
//   - A resource stays subscribed until all clients that subscribed to it have unsubscribed. The
//     log level is the most verbose that a client has asked for.
//   - A request of the server goes to the client that has calls in flight, or to the only client.
//     If several have, it is refused, because nobody knows whose user it is for.
//
// A client whose connection takes no more notifications is cut off, so that it does not slow the
// others.
package sharing
