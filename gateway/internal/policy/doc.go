// Package policy decides who may see and use what of the servers of a gateway.
//
//	p := policy.New(top.Policy, top.Login.Groups) // nil: everybody may do everything
//	class := p.ClassOf(policy.Who{Identity: "token ada"})
//	seen := p.View(known.Snapshot(), class)
//
// Lists, calls, reads and everything else look into what is seen, so that what is hidden cannot be called. All of this package is pure.
//
// See docs/adr/0098-policy.md.
package policy
