package restore

import (
	"errors"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

// A Subscribe that has its answer fails if the newest request to the same server asks for its resource in vain since then. What an earlier server has
// refused says nothing.
//
// Guarantees: G-0030.11
func TestWhoIsRefusedBeforeItIsKept(t *testing.T) {
	grants := func(uris ...string) *protocol.SubscriptionFilter {
		return &protocol.SubscriptionFilter{ResourceSubscriptions: uris}
	}
	wanted := []string{"file:///a", "file:///b"}
	for name, test := range map[string]struct {
		newest  *listening
		refuses bool
	}{
		"none":                {nil, false},
		"granted":             {&listening{epoch: 2, wanted: wanted, granted: grants("file:///a")}, false},
		"refused":             {&listening{epoch: 2, wanted: wanted, granted: grants("file:///b")}, true},
		"failed for good":     {&listening{epoch: 2, wanted: wanted, over: true}, true},
		"not answered":        {&listening{epoch: 2, wanted: wanted}, false},
		"not asked for":       {&listening{epoch: 2, wanted: wanted[1:], granted: grants("file:///b")}, false},
		"by an earlier one":   {&listening{epoch: 1, wanted: wanted, granted: grants("file:///b")}, false},
		"failed earlier, too": {&listening{epoch: 1, wanted: wanted, over: true}, false},
	} {
		r := &reports{listening: test.newest}
		if got := r.refuses(numbered(2), "file:///a"); got != test.refuses {
			t.Errorf("%s: refused: %t, want %t", name, got, test.refuses)
		}
	}
}

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

// Who waits for reports gets what the newest request was told, by the server that it asks. What an earlier server has granted or refused
// says nothing, unless no further attempt follows: then nobody would ever answer.
//
// Guarantees: G-0030.4
func TestWhatAServerHasSaidToTheNewestRequest(t *testing.T) {
	granted, failed := &protocol.SubscriptionFilter{}, errors.New("invalid params")
	for name, test := range map[string]struct {
		newest  listening
		granted bool
		failed  error
	}{
		"nothing yet":                       {listening{epoch: 2}, false, nil},
		"granted":                           {listening{epoch: 2, granted: granted}, true, nil},
		"failed, and is tried again":        {listening{epoch: 2, failed: failed}, false, failed},
		"failed for good":                   {listening{epoch: 2, failed: failed, over: true}, false, failed},
		"granted by an earlier server":      {listening{epoch: 1, granted: granted}, false, nil},
		"failed at an earlier server":       {listening{epoch: 1, failed: failed}, false, nil},
		"failed for good at an earlier one": {listening{epoch: 1, failed: failed, over: true}, false, failed},
	} {
		r := &reports{listening: &test.newest}
		changed, got, err := r.outcome(numbered(2))
		if (got != nil) != test.granted || !errors.Is(err, test.failed) {
			t.Errorf("%s: granted %t, error %v; want %t and %v", name, got != nil, err, test.granted, test.failed)
		}
		r.listenFailed(r.listening, failed, false)
		select {
		case <-changed:
		default:
			t.Errorf("%s: who waits is not told that the request has failed since", name)
		}
	}
}
