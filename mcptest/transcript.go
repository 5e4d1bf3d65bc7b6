package mcptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

// updateVariable makes Record write its file.
const updateVariable = "MCPTEST_UPDATE"

// Record returns a transport that wraps inner and records all messages. At the end of the
// test it compares the transcript with the file golden; a difference fails the test. To
// write the file, run the test with MCPTEST_UPDATE=1 in the environment.
//
// Record sorts the members of objects by name, and replaces values that differ from run
// to run: the states of calls that ask become state-1, state-2 and so on, the ids of
// tasks become task-1 and so on, and their times become 2000-01-01T00:00:00Z. The order
// of calls that run at the same time may differ from run to run.
func Record(t testing.TB, inner transport.Transport, golden string) transport.Transport {
	t.Helper()
	var text bytes.Buffer
	w := transcript.NewWriter(&text, transcript.Options{Rewrite: new(masks).rewrite})
	t.Cleanup(func() {
		if os.Getenv(updateVariable) != "" {
			if err := os.WriteFile(golden, text.Bytes(), 0o644); err != nil {
				t.Error(err)
			}
			return
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Errorf("mcptest: %v; run the test with %s=1 to write it", err, updateVariable)
			return
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text.String(), "\n")); diff != "" {
			t.Errorf("mcptest: the conversation is not that of %s; if it should be, run the test with %s=1:\n%s", golden, updateVariable, diff)
		}
	})
	return transcript.Tap(inner, w.Observe)
}

// masks replaces values that differ from run to run.
type masks struct{ names map[string]string }

var masked = regexp.MustCompile(`"(requestState|taskId|createdAt|lastUpdatedAt)"\s*:\s*"((?:[^"\\]|\\.)*)"`)

// rewrite is called for one frame at a time.
func (m *masks) rewrite(frame []byte) []byte {
	ordered := jsontext.Value(slices.Clone(frame))
	if ordered.Format(jsontext.ReorderRawObjects(true)) == nil {
		frame = ordered
	}
	return masked.ReplaceAllFunc(frame, func(member []byte) []byte {
		parts := masked.FindSubmatch(member)
		key, value := string(parts[1]), string(parts[2])
		switch key {
		case "createdAt", "lastUpdatedAt":
			value = "2000-01-01T00:00:00Z"
		case "taskId":
			value = m.name("task", value)
		default:
			value = m.name("state", value)
		}
		return fmt.Appendf(nil, `"%s":"%s"`, key, value)
	})
}

// name returns the same name for the same value.
func (m *masks) name(kind, value string) string {
	if m.names == nil {
		m.names = make(map[string]string)
	}
	id := kind + " " + value
	if m.names[id] == "" {
		count := 1
		for other := range m.names {
			if strings.HasPrefix(other, kind+" ") {
				count++
			}
		}
		m.names[id] = fmt.Sprintf("%s-%d", kind, count)
	}
	return m.names[id]
}

// Script returns a transport to a peer that replays a transcript. The peer waits for each
// frame that was sent in the transcript, sends each frame that was received, and ends a
// link where its end was recorded. The client must send equal JSON values in the same
// order. The test fails if it sends something else, or if the transcript has not been
// replayed to its end when the test is over.
func Script(t testing.TB, file string) transport.Transport {
	t.Helper()
	text, err := os.Open(file)
	if err != nil {
		t.Fatalf("mcptest: %v", err)
	}
	defer text.Close()
	entries, err := transcript.Read(text)
	if err != nil {
		t.Fatalf("mcptest: %s: %v", file, err)
	}
	scripts := stepsOf(entries)
	ctx, cancel := context.WithCancelCause(context.Background())
	var playing sync.WaitGroup
	played := 0
	t.Cleanup(func() {
		// The peer may not have learned yet that its link has ended.
		over := time.AfterFunc(time.Second, func() { cancel(errors.New("the test is over")) })
		playing.Wait()
		over.Stop()
		cancel(nil)
		if played < len(scripts) {
			t.Errorf("mcptest: %s has %d connections, and %d came", file, len(scripts), played)
		}
	})
	return inmem.New(func(link transport.Link) {
		played++ // a client opens one link at a time
		number, script := played, fault.Script(nil)
		if number <= len(scripts) {
			script = scripts[number-1]
		}
		playing.Go(func() {
			if err := script.Serve(ctx, link); err != nil {
				t.Errorf("mcptest: %s, connection %d: %v", file, number, err)
			}
		})
	}, inmem.Options{})
}

// stepsOf returns the script of each link.
func stepsOf(entries []transcript.Entry) []fault.Script {
	var all []fault.Script
	for _, e := range entries {
		for len(all) < e.Link {
			all = append(all, nil)
		}
		script := &all[e.Link-1]
		switch e.Kind {
		case transcript.Sent:
			*script = append(*script, fault.ExpectMessage(string(e.Frame)))
		case transcript.Received:
			*script = append(*script, fault.Say(string(e.Frame)))
		case transcript.Lost, transcript.Ended:
			end := fault.Lose()
			if e.Err != nil && e.Err.Error() == transport.ErrClosed.Error() { // the client has closed the link
				end = fault.ExpectLoss()
			}
			*script = append(*script, end)
		}
	}
	return all
}
