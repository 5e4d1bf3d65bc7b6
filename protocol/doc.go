// Package protocol is what the Model Context Protocol says: its methods,
// revisions and messages as values. It has no goroutine, no I/O and no clock.
//
// Types carry the members of every revision; members that a revision does not
// know are left out by their zero value or ignored by its peers. Member names
// are case-sensitive. Schemas, arguments and structured content stay raw bytes
// for their owner to decode, so that nothing is lost on the way.
//
// Values are for Marshal and Unmarshal only. encoding/json knows neither the
// members unknown to a type, which it writes as "Others", nor the strictness
// that Unmarshal states.
//
// Source: https://modelcontextprotocol.io/specification
package protocol
