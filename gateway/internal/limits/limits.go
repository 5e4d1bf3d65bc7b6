// Package limits says whether a client of a gateway may make a request now, when it asks for more than the file allows: so many a minute, so
// many at once, and so many at once at a server, at which clients take turns. ADR-0100 gives the reasons.
//
// A client is named by a text. The limits are those of one process.
//
// It starts no goroutine. Who waits for a place at a server does so on its own.
package limits

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// A Rule is what a file allows. 0: there is no limit.
type Rule struct {
	PerMinute, InFlight int // requests of one client to all servers together

	Concurrency int            // requests of all clients at the server
	ToolRates   map[string]int // calls of a tool by one client in a minute
}

// everyTool is the name in ToolRates that stands for all tools without a rate of their own.
const everyTool = "*"

// IsNone reports whether nothing is limited.
func (r *Rule) IsNone() bool {
	return r.PerMinute == 0 && r.InFlight == 0 && r.Concurrency == 0 && len(r.ToolRates) == 0
}

func (r *Rule) ofTool(name string) int {
	if most := r.ToolRates[name]; most > 0 {
		return most
	}
	return r.ToolRates[everyTool]
}

// Clients count what each client has asked within the last minute, and asks now. They outlive files. The zero value is ready, and
// safe for concurrent use.
type Clients struct {
	requests Rates[string]
	calls    Rates[Request]
	underWay Places
}

// A Request is one of a client to a server.
type Request struct {
	Client, Server string
	Tool           string // that it calls; "": it calls none
}

// A Server counts the requests to one server. The zero value is ready, and safe for concurrent use.
type Server struct {
	Turns
	Refused atomic.Int64 // requests beyond a limit
}

// A Refusal says which limit a request is beyond.
type Refusal struct {
	Why   string
	After time.Duration // when the next one may be made; 0: that does not depend on time
}

// Enter lets a request pass to a server, after it has waited for a place there, or refuses it. Who may pass calls leave in the end.
func (c *Clients) Enter(ctx context.Context, at *Server, rule *Rule, r Request) (leave func(), refused *Refusal) {
	leave, refused = c.enter(ctx, at, rule, r)
	if refused != nil {
		at.Refused.Add(1)
	}
	return leave, refused
}

func (c *Clients) enter(ctx context.Context, at *Server, rule *Rule, r Request) (func(), *Refusal) {
	if refused := c.spend(time.Now(), rule, r); refused != nil {
		return nil, refused
	}
	leave, refused := c.begin(rule, r.Client)
	places := rule.Concurrency
	if refused != nil || places == 0 {
		return leave, refused
	}
	if err := at.Turns.Enter(ctx, r.Client, places); err != nil {
		leave()
		return nil, &Refusal{Why: fmt.Sprintf("at most %d requests may be under way at it: %v", places, err)}
	}
	return func() {
		at.Turns.Leave()
		leave()
	}, nil
}

// begin counts a request among those of its client that are under way, until it leaves: by then the rule of the next file may be another one.
func (c *Clients) begin(rule *Rule, client string) (leave func(), refused *Refusal) {
	if rule.InFlight <= 0 {
		return func() {}, nil
	}
	if !c.underWay.Enter(client, rule.InFlight) {
		return nil, &Refusal{Why: fmt.Sprintf("at most %d requests of one client may be under way, and as many are", rule.InFlight)}
	}
	return func() { c.underWay.Leave(client) }, nil
}

// spend takes a request from what its client may ask in a minute. A call that is refused because of its tool is none that the client has made.
func (c *Clients) spend(now time.Time, rule *Rule, r Request) *Refusal {
	if most := rule.PerMinute; most > 0 {
		if wait := c.requests.Spend(now, r.Client, most); wait > 0 {
			return &Refusal{fmt.Sprintf("a client may make %d requests in a minute", most), wait}
		}
	}
	if most := rule.ofTool(r.Tool); r.Tool != "" && most > 0 {
		if wait := c.calls.Spend(now, r, most); wait > 0 {
			if rule.PerMinute > 0 {
				c.requests.giveBack(r.Client, rule.PerMinute)
			}
			return &Refusal{fmt.Sprintf("a client may call this tool %d times in a minute", most), wait}
		}
	}
	return nil
}
