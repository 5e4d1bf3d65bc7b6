package restore

import (
	"errors"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

// If a request for reports of changes has failed for good, the watchers of its resources
// have to ask again, unless an earlier request continues. That one is the newest again.
//
// Guarantees: G-0030.4
func TestWatchersAskAgainUnlessAnEarlierRequestReports(t *testing.T) {
	for name, test := range map[string]struct {
		earlier *listening
		over    bool
		again   bool
	}{
		"no earlier one":                    {nil, true, true},
		"no earlier one, and it is retried": {nil, false, false},
		"an earlier one":                    {&listening{granted: &protocol.SubscriptionFilter{}}, true, false},
		"an earlier one that is retried":    {&listening{}, true, false},
	} {
		watcher := make(chan struct{}, 1)
		sub := &subscription{accepted: true, watchers: map[chan struct{}]bool{watcher: true}}
		l := &listening{wanted: []string{"file:///a"}}
		r := &reports{resources: map[string]*subscription{"file:///a": sub}, listening: l, replaced: test.earlier}
		r.listenFailed(l, errors.New("invalid params"), test.over)
		if woken := len(watcher) == 1; woken != test.again || sub.accepted == test.again {
			t.Errorf("%s: the watcher was woken: %t, and the subscription is accepted: %t, want %t and %t", name, woken, sub.accepted, test.again, !test.again)
		}
		if want := test.over && test.earlier != nil; want != (r.listening == test.earlier && r.listening != nil) {
			t.Errorf("%s: the earlier one is the newest: %t, want %t", name, !want, want)
		}
	}
}
