// Package protocol holds the messages of the Model Context Protocol as Go
// values: the params and the result of every method and notification, in every
// revision. It has no goroutine, no I/O and no clock.
//
// One Go type serves all revisions. Leave a member at its zero value when the
// peer's revision does not have it: it is then not sent. A peer ignores members
// that it does not know. [MethodInfo] says which revisions have a method.
//
// Encode values with [Marshal] and decode them with [Unmarshal]. Programs that log
// or store messages may use encoding/json instead: it keeps unknown members too. But
// it takes names in any case, takes repeated names, writes a nil slice as null, and
// is slower. In a struct of your own, give the value a field with a name. Do not embed
// it: encoding/json would write the embedded value alone, and drop your other fields.
//
// Schemas, arguments and structured content stay raw JSON. Their owner decodes
// them, so that no digit and no unknown keyword is lost.
//
// Source: https://modelcontextprotocol.io/specification
package protocol
