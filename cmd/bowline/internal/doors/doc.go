// Package doors is how a running "bowline up" is looked at and acted on: Open serves the doors of gateway/admin, a socket and the page;
// Find returns a client for the commands that use the socket.
//
// The socket of a gateway is named by the path of its file, in bowline below XDG_RUNTIME_DIR or /run/user/UID, else in the folder of this
// user's configuration. The token for the page is kept there, too, with mode 0600.
//
// Hosts are served at another socket, beside that one.
//
// Each door is served on a goroutine of its own, for which Close waits, and so is each host.
package doors
