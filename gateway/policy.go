package gateway

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/limits"
	"github.com/bowline-mcp/bowline/gateway/internal/policy"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
)

// maxViews is how many classes of users are remembered with what they see. With more, what they see is worked out again.
const maxViews = 256

// A sight is what clients see of what is known. Its methods may be called from every goroutine.
type sight struct {
	known  *catalogue.Catalogue
	policy atomic.Pointer[policy.Policy] // nil: everybody sees everything

	mu     sync.Mutex
	of     *catalogue.Snapshot // what the views are of
	by     *policy.Policy      // and by what
	viewed map[policy.Class]*catalogue.Snapshot
	told   map[catalogue.Kind]shown // when clients were told of a list last
}

// A shown list is what clients knew of: their part of a snapshot, by a policy.
type shown struct {
	of *catalogue.Snapshot
	by *policy.Policy
}

// follow makes a policy that of all later requests, and returns of which lists clients may see something else.
func (s *sight) follow(p *policy.Policy) []catalogue.Kind {
	if before := s.policy.Swap(p); before == nil && p == nil {
		return nil
	}
	return catalogue.Kinds()
}

// isPrivate reports whether what one client sees may differ from what another one sees.
func (s *sight) isPrivate() bool {
	by := s.policy.Load()
	return by != nil && by.IsPrivate()
}

// now returns what the client of a request may see and use of what is known.
func (s *sight) now(ctx context.Context) *catalogue.Snapshot {
	known, by := s.known.Snapshot(), s.policy.Load()
	if by == nil || !by.IsPrivate() && groupIn(ctx) == "" {
		return known
	}
	class := by.ClassOf(whoIn(ctx))
	if of, _ := ctx.Value(memberKey{}).(*member); of != nil {
		if last := of.decided.Load(); last == nil || *last != (decided{by, class}) {
			of.decided.Store(&decided{by, class})
		}
	}
	return s.view(known, by, class)
}

// news returns what reports whether a client sees another list of a kind than when this was called last for it. The client is known by the context of its session
// or of its listening request. Nil: everybody may.
func (s *sight) news(kind catalogue.Kind) func(context.Context) bool {
	now := shown{s.known.Snapshot(), s.policy.Load()}
	s.mu.Lock()
	before := s.told[kind]
	if s.told == nil {
		s.told = make(map[catalogue.Kind]shown)
	}
	s.told[kind] = now
	s.mu.Unlock()
	if now.by == nil || now.by != before.by {
		return nil
	}
	differs := make(map[policy.Class]bool)
	return func(ctx context.Context) bool {
		class, known := classOf(ctx, now.by)
		is, asked := differs[class]
		if known && !asked {
			is = now.by.View(before.of, class).Digest(kind) != s.view(now.of, now.by, class).Digest(kind)
			differs[class] = is
		}
		return is || !known
	}
}

// classOf returns the class of a session, as its last request was decided about, or that of a listening request. A session that has made no request yet has none.
func classOf(ctx context.Context, by *policy.Policy) (class policy.Class, known bool) {
	if of, _ := ctx.Value(memberKey{}).(*member); of != nil {
		if last := of.decided.Load(); last != nil && last.by == by {
			return last.class, true
		}
		return class, false
	}
	if server.RequestFrom(ctx) == nil {
		return class, false
	}
	return by.ClassOf(whoIn(ctx)), true
}

// hears reports whether a client that has subscribed to a resource may see it now. The client is known by the context of its session or of its listening request.
func (s *sight) hears(ctx context.Context, uri string) bool {
	by := s.policy.Load()
	if by == nil {
		return true
	}
	var who policy.Who
	if of, _ := ctx.Value(memberKey{}).(*member); of == nil {
		who = whoIn(ctx)
	} else if subscriber := of.subscriber.Load(); subscriber != nil {
		who = *subscriber
	}
	_, seen := s.view(s.known.Snapshot(), by, by.ClassOf(who)).Resource(uri)
	return seen
}

// shows reports whether somebody may see anything of a server.
func (s *sight) shows(who policy.Who, server string) bool {
	by := s.policy.Load()
	return by == nil || !by.IsPrivate() && who.At == "" || s.view(s.known.Snapshot(), by, by.ClassOf(who)).Shows(server)
}

// view returns what a class sees. It is worked out once for all of the class.
func (s *sight) view(of *catalogue.Snapshot, by *policy.Policy, class policy.Class) *catalogue.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != of || s.by != by || len(s.viewed) == maxViews {
		s.of, s.by, s.viewed = of, by, make(map[policy.Class]*catalogue.Snapshot)
	}
	seen := s.viewed[class]
	if seen == nil {
		seen = by.View(of, class)
		s.viewed[class] = seen
	}
	return seen
}

// whoIn returns who makes a request, as the login says. Whatever a client says of itself counts for nothing, nor does where it comes from.
func whoIn(ctx context.Context) policy.Who {
	origin := server.RequestFrom(ctx).Origin
	_, isPerson := origin.Principal.(atPage)
	claims, _ := origin.Principal.(policy.Claims)
	return policy.Who{Identity: origin.Identity, Claims: claims, Person: isPerson, At: groupIn(ctx)}
}

// rule returns the place in the file of what allows a request of a client about something; "": there is no policy.
func (s *sight) rule(ctx context.Context, about catalogue.Item, method string) string {
	by := s.policy.Load()
	if by == nil || about.Own == "" { // what is about a task was decided when that began
		return ""
	}
	kind := catalogue.Resources // only of tools it matters that they are tools
	if method == protocol.MethodCallTool {
		kind = catalogue.Tools
	}
	return by.Decide(by.ClassOf(whoIn(ctx)), kind, about).By
}

// limit returns the limits for a request of a client to a server: those of its personas stand in place of those for everybody.
func (s *sight) limit(ctx context.Context, of limits.Rule) limits.Rule {
	if by := s.policy.Load(); by != nil {
		rate := by.RateOf(whoIn(ctx), mcpjson.Rate{PerMinute: of.PerMinute, InFlight: of.InFlight})
		of.PerMinute, of.InFlight = rate.PerMinute, rate.InFlight
	}
	return of
}

// holds reports whether the client of a request would see a tool of this name, were that as it was approved.
func (s *sight) holds(ctx context.Context, name string) bool {
	item, held := s.now(ctx).Held(name)
	if held {
		server.Note(ctx, passage{denied: true, own: item.Own, rule: "bowline.pins"})
	}
	return held
}

// noteDenied notes, for the record of a request about something that its client does not see, what hides that, and reports whether the policy does.
func (s *sight) noteDenied(ctx context.Context, in func(*catalogue.Snapshot) (catalogue.Item, bool), kind catalogue.Kind) bool {
	by := s.policy.Load()
	if by == nil {
		return false
	}
	item, exists := in(s.known.Snapshot())
	if exists {
		server.Note(ctx, passage{denied: true, own: item.Own, rule: by.Decide(by.ClassOf(whoIn(ctx)), kind, item).By})
	}
	return exists
}
