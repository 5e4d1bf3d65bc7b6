package conn_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
)

// Values that a program logs or shows marshal to JSON with names and texts instead of numbers.
func TestValuesMarshalToReadableJSON(t *testing.T) {
	failed := conn.Reason{Kind: conn.Exited, Err: errors.New("status 3")}
	at := time.Date(2026, 11, 22, 19, 0, 0, 0, time.UTC)
	lost := conn.Attempt{ID: 6, Epoch: 1, Cause: conn.LinkLost, Delivery: conn.Unknown, Err: failed}
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"a reason":       {failed, `{"kind":"exited","error":"status 3"}`},
		"a reason alone": {conn.Reason{Kind: conn.Stopped}, `{"kind":"stopped"}`},
		"a status": {
			conn.Status{State: conn.Backoff, Reason: failed, Since: at, Epoch: 2, NextAttempt: at, LastFailure: failed},
			`{"state":"backoff","reason":{"kind":"exited","error":"status 3"},"since":"2026-11-22T19:00:00Z","epoch":2,` +
				`"nextAttempt":"2026-11-22T19:00:00Z","lastFailure":{"kind":"exited","error":"status 3"}}`,
		},
		"a status without a failure": {conn.Status{State: conn.Ready, Since: at}, `{"state":"ready","reason":{"kind":""},"since":"2026-11-22T19:00:00Z","epoch":0}`},
		"stats": {
			conn.Stats{Calls: 3, Settled: map[conn.Cause]map[conn.Delivery]uint64{conn.PeerError: {conn.Sent: 2}, conn.TimedOut: {conn.NotSent: 1}}},
			`{"calls":3,"retries":0,"settled":{"peer error":{"sent":2},"timed out":{"not sent":1}},"late":0,"unknown":0,"malformed":0,"shed":0,"stalls":0,"bytesIn":0,"bytesOut":0,` +
				`"depths":{"pending":0,"tombstones":0,"queued":0,"serving":0,"waiting":0,"streams":0,"notifications":0,"mailbox":0}}`,
		},
		"a call": {
			&conn.CallError{Method: "tools/call", ID: 7, Cause: conn.LinkLost, Delivery: conn.Unknown, Err: failed, Attempts: []conn.Attempt{lost}},
			`{"error":"tools/call: connection lost: exited: status 3; it may have been executed (2 attempts)","method":"tools/call","id":7,"cause":"link lost","delivery":"unknown",` +
				`"attempts":[{"id":6,"epoch":1,"cause":"link lost","delivery":"unknown","error":"exited: status 3"}]}`,
		},
		"a call that was answering a question": {
			&conn.CallError{Method: "tools/call", ID: 7, Cause: conn.LinkLost, Delivery: conn.Sent, Err: fmt.Errorf("%w: no answer to the question", failed)},
			`{"error":"tools/call: connection lost: exited: status 3: no answer to the question","method":"tools/call","id":7,"cause":"link lost","delivery":"sent"}`,
		},
		"a state error": {&conn.StateError{State: conn.Backoff, Reason: failed}, `"not connected: exited: status 3"`},
		"a panic":       {&conn.PanicError{Value: func() {}}, ``},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(c.value)
			if err != nil || c.want != "" && string(got) != c.want {
				t.Errorf("%v\ngot  %s\nwant %s", err, got, c.want)
			}
		})
	}
}

// A program that gets a Delivery as JSON, such as in what a gateway says of a call, reads the value that was written.
func TestADeliveryIsReadAsItWasWritten(t *testing.T) {
	for _, want := range append(conn.Deliveries(), 0) {
		text, err := json.Marshal(want)
		got := conn.Delivery(99)
		if err := errors.Join(err, json.Unmarshal(text, &got)); err != nil || got != want {
			t.Errorf("%s is read as %q: %v", text, got, err)
		}
	}
	for text, named := range map[string]string{`"lost"`: `"lost"`, `"Sent"`: `"Sent"`, `"` + strings.Repeat("x", 1<<20) + `"`: "xxx"} {
		got := conn.Sent
		if err := json.Unmarshal([]byte(text), &got); err == nil || !strings.Contains(err.Error(), named) || len(err.Error()) > 2000 || got != conn.Sent {
			t.Errorf("%.20s is read as %q: %.100v", text, got, err)
		}
	}
}
