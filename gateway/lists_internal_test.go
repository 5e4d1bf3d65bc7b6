package gateway

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/protocol"
)

// A list has the entries of all its pages, is for one client only if a page is, and lives for as long as the last page says.
func TestAListOfSeveralPages(t *testing.T) {
	list := catalogue.List{TTL: unannounced}
	size := 0
	for i, p := range []struct {
		ttl   int64
		scope string
	}{{60_000, protocol.CachePublic}, {2_000, protocol.CachePrivate}, {3_000, protocol.CachePublic}} {
		one := page{Tools: []json.RawMessage{fmt.Appendf(nil, `{"name":"t%d"}`, i)}, TTLMs: &p.ttl, CacheScope: p.scope}
		size += one.addTo(&list, catalogue.Tools)
	}
	if len(list.Entries) != 3 || size != 3*len(`{"name":"t0"}`) || !list.Private || list.TTL != 3*time.Second {
		t.Errorf("%d bytes: %+v", size, list)
	}
}

// A page that nobody has finished is remembered, however many others have been finished since.
//
// Guarantees: G-0088.18
func TestPagesThatAreOverTakeNoPlace(t *testing.T) {
	var o opened
	asked := new(server.Session)
	waits := openedPage{"s", "waits"}
	o.add(waits, asked)
	for i := range 2 * mostOpened {
		one := openedPage{"s", fmt.Sprint(i)}
		o.add(one, asked)
		if o.take(one) != asked {
			t.Fatalf("page %d is forgotten", i)
		}
	}
	if o.take(waits) != asked {
		t.Error("the page that waits is forgotten")
	}
	for i := range mostOpened + 1 {
		o.add(openedPage{"s", fmt.Sprint(i)}, asked)
	}
	if o.take(openedPage{"s", "0"}) != nil || o.take(openedPage{"s", "1"}) != asked {
		t.Error("the oldest is not the one that is forgotten")
	}
}
