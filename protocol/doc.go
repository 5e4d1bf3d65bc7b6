// Package protocol holds the messages of the Model Context Protocol as Go
// values: the params and the result of every method and notification, in every
// revision. It has no goroutine, no I/O and no clock.
//
// One Go type serves all revisions. If the peer's revision does not have a member,
// leave it at its zero value: it is then not sent. A peer ignores members that it
// does not know. [MethodInfo] says which revisions have a method.
//
// Encode values with [Marshal] and decode them with [Unmarshal]. Programs that log
// or store messages may use encoding/json instead, which keeps unknown members, too.
// But it accepts names in any case and repeated names, and is slower. In a struct of your
// own, put the value into a named field. Do not embed it: encoding/json would encode only
// the embedded value and drop your other fields.
//
// Schemas, arguments and structured content are raw JSON, so no digit and no unknown
// keyword is lost. Decode them yourself.
//
// A list that a peer sends is bounded. Its field has the limit as a tag, for instance
// most:"MaxParts icons": Unmarshal and encoding/json then refuse a message with more than
// MaxParts of them, with a [LimitError]. The limit does not hold for what a program encodes.
// A nil list is sent as an empty array, or not at all where the list may be absent.
//
// Source: https://modelcontextprotocol.io/specification
package protocol
