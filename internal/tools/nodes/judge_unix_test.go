//go:build unix

package nodes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/internal/private"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/child"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

func ended(cause conn.Cause, delivery conn.Delivery) *loadCall {
	return &loadCall{ended: true, outcome: ledger.Outcome{Cause: cause, Delivery: delivery}}
}

// A history is what the callers, the servers and the audit trails of a run know.
type history struct {
	calls    map[string]*loadCall
	executed map[string]int
	recorded trails
}

// refused is a call that a persona forbids.
func refused() *loadCall {
	call := ended(conn.PeerError, conn.Sent)
	call.forbidden, call.code = true, jsonrpc.CodeInvalidParams
	return call
}

// honest returns a history in which nothing is wrong: a call of each class.
func honest() history {
	said := ended(conn.Answered, conn.Sent)
	said.toolSaid = "the tool has failed"
	crowded := ended(conn.Answered, conn.Sent)
	crowded.toolSaid = `the server "one" was not asked: at most 8 requests of one client may be under way, and as many are. It was not executed`
	recorded := newTrails()
	recorded.answered["1"], recorded.answered["3"], recorded.notSent["2"], recorded.denied["7"], recorded.notSent["8"] = 1, 1, true, 1, true
	return history{
		map[string]*loadCall{
			"1": ended(conn.Answered, conn.Sent), "2": ended(conn.LinkLost, conn.NotSent), "3": ended(conn.LinkLost, conn.Unknown),
			"4": ended(conn.TimedOut, conn.Unknown), "5": ended(conn.PeerError, conn.Sent), "6": said, "7": refused(), "8": crowded,
		},
		map[string]int{"1": 1, "3": 1, "6": 1}, recorded,
	}
}

// Each lie is found in a history that is else honest, by its name, and nothing is found in an honest one.
func TestBrokenBooksAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(h *history)
		want   string // "": nothing is wrong
	}{
		"honest":                              {func(*history) {}, ""},
		"a failed call was executed":          {func(h *history) { h.executed["5"] = 1 }, ""},
		"a lost answer has no record":         {func(h *history) { delete(h.recorded.answered, "3") }, ""},
		"answered, executed twice":            {func(h *history) { h.executed["1"] = 2 }, "call 1, answered (sent): it was sent 1 times, and executed 2 times"},
		"unknown, executed twice":             {func(h *history) { h.executed["3"] = 2 }, "call 3, link lost (unknown): it was sent 1 times, and executed 2 times"},
		"failed by its tool, executed twice":  {func(h *history) { h.executed["6"] = 2 }, "call 6"},
		"answered, and not executed":          {func(h *history) { delete(h.executed, "1") }, "call 1, answered (sent): it was answered, and not executed"},
		"not sent, and executed":              {func(h *history) { h.executed["2"] = 1 }, "call 2, link lost (not sent): it was not sent, and executed"},
		"nobody's call was executed":          {func(h *history) { h.executed["9"] = 1 }, "9 was executed, and is no call"},
		"a call has not ended":                {func(h *history) { h.calls["0"] = new(loadCall) }, "call 0 has not ended"},
		"a record is missing":                 {func(h *history) { delete(h.recorded.answered, "1") }, "call 1 was answered, and no audit trail says so"},
		"two gateways have answered":          {func(h *history) { h.recorded.answered["1"] = 2 }, "call 1 was answered 2 times"},
		"two gateways have answered, unheard": {func(h *history) { h.recorded.answered["3"] = 2 }, "call 3 was answered 2 times"},
		"a record of what was not sent":       {func(h *history) { h.recorded.answered["2"] = 1 }, "call 2 was not sent, and the audit trails say that it was answered"},
		"a record of nobody's call":           {func(h *history) { h.recorded.answered["9"] = 1 }, "the audit trails have 9, which is no call"},
		"a forbidden call was lost": {func(h *history) {
			h.calls["7"], h.recorded.denied = &loadCall{forbidden: true, ended: true, outcome: h.calls["3"].outcome}, nil
		}, ""},
		"a forbidden call has not ended":         {func(h *history) { h.calls["7"] = &loadCall{forbidden: true} }, "call 7 has not ended"},
		"a forbidden call was executed":          {func(h *history) { h.executed["7"] = 1 }, "call 7 was executed 1 times, and a persona forbids it"},
		"a forbidden call was answered":          {func(h *history) { h.calls["7"].outcome = ledger.Answered() }, "call 7 was answered, and a persona forbids it"},
		"an answer to a forbidden call":          {func(h *history) { h.recorded.answered["7"] = 1 }, "call 7 was answered, as the audit trails say, and a persona forbids it"},
		"a record of a refusal is missing":       {func(h *history) { delete(h.recorded.denied, "7") }, "call 7 was refused, and 0 records say that it was denied"},
		"two records of a refusal":               {func(h *history) { h.recorded.denied["7"] = 2 }, "call 7 was refused, and 2 records say that it was denied"},
		"another call was denied":                {func(h *history) { h.recorded.denied["1"] = 1 }, "the audit trails say that 1 was denied, which no persona forbids"},
		"nobody's call was denied":               {func(h *history) { h.recorded.denied["9"] = 1 }, "the audit trails say that 9 was denied, which no persona forbids"},
		"refused by a gateway, and executed":     {func(h *history) { h.recorded.notSent["6"] = true }, "call 6 was executed 1 times, and the audit trails say that no server has got it"},
		"a refusal for a limit has no record":    {func(h *history) { delete(h.recorded.notSent, "8") }, "call 8 was refused for a limit, and no audit trail says so"},
		"refused for a limit, and executed":      {func(h *history) { h.executed["8"] = 1 }, "call 8 was executed 1 times, and the audit trails say that no server has got it"},
		"a call is lost from the books of calls": {func(h *history) { delete(h.calls, "1") }, "1 was executed, and is no call"},
	} {
		t.Run(name, func(t *testing.T) {
			h := honest()
			c.breaks(&h)
			var r Row
			r.calls = h.calls
			r.Books.count(h.executed)
			r.judge(nil, 0, nil)
			wrong := strings.Join(append(r.Wrong, r.audit(h.recorded)...), "\n")
			if (wrong == "") != (c.want == "") || !strings.Contains(wrong, c.want) {
				t.Errorf("got %q, want %q", wrong, c.want)
			}
			if r.Limited != 1 || r.Denied > 1 {
				t.Errorf("%d calls were refused for a limit, and %d since a persona forbids them", r.Limited, r.Denied)
			}
			if (r.verdict() == "") != (len(r.Wrong) == 0) {
				t.Errorf("the verdict is %q", r.verdict())
			}
		})
	}
}

// A node that has not refused what it was asked to while a fault was in force is found, and one that has no limit. One that is down is not asked.
func TestWhatIsNotRefusedIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		seen watched
		want string
	}{
		"no gateways":                 {watched{}, ""},
		"honest":                      {watched{map[string]*[siteNodes]tally{"kill -9": {{1, 1}, {0, 0}, {2, 2}}}, &[siteNodes]int{8, 1, 8}}, ""},
		"a node has refused nothing":  {watched{map[string]*[siteNodes]tally{"kill -9": {{1, 1}, {1, 0}, {2, 2}}}, nil}, "kill -9: node 1 has refused 0 of 1 calls"},
		"a node has refused one less": {watched{map[string]*[siteNodes]tally{"SIGSTOP": {{1, 1}, {0, 0}, {2, 1}}}, nil}, "SIGSTOP: node 2 has refused 1 of 2 calls"},
		"a node has no limit":         {watched{nil, &[siteNodes]int{8, 8, 0}}, "node 2 has refused no call for a limit"},
	} {
		if wrong := strings.Join(c.seen.wrong(), "\n"); (wrong == "") != (c.want == "") || !strings.Contains(wrong, c.want) {
			t.Errorf("%s: got %q, want %q", name, wrong, c.want)
		}
	}
}

// A session that is lost or has no answer is found, but for one that the fault may lose.
func TestLostSessionsAreFound(t *testing.T) {
	lost := []Lost{{"n1", []string{"POST at 00:01.000"}}}
	for name, c := range map[string]struct {
		books     Books
		unsettled error
		limit     time.Duration
		mayLose   func(string) bool
		want      string
	}{
		"honest":               {Books{outages: []time.Duration{time.Second}}, nil, time.Second, nil, ""},
		"lost":                 {Books{Lost: lost}, nil, 0, nil, "a session of node n1 was lost"},
		"one of another node":  {Books{Lost: lost}, nil, 0, func(node string) bool { return node == "n0" }, "a session of node n1 was lost"},
		"lost, as it may be":   {Books{Lost: lost}, nil, 0, func(node string) bool { return node == "n1" }, ""},
		"no answer":            {Books{}, errors.New("1 of 2 sessions have no answer"), 0, nil, "1 of 2 sessions have no answer"},
		"an answer comes late": {Books{outages: []time.Duration{0, 2 * time.Second}}, nil, time.Second, nil, "a session was 2s without an answer, more than 1s"},
		"wrong before":         {Books{Wrong: []string{"a foreign answer"}}, nil, 0, nil, "a foreign answer"},
	} {
		r := Row{Books: c.books}
		r.judge(c.unsettled, c.limit, c.mayLose)
		if wrong := strings.Join(r.Wrong, "\n"); (wrong == "") != (c.want == "") || !strings.Contains(wrong, c.want) || (r.verdict() == "") != (c.want == "") {
			t.Errorf("%s: got %q, want %q", name, wrong, c.want)
		}
	}
}

// Second answers, and answers to nothing, are found; a late one to a client that had given up is none.
func TestSecondAnswersAreFound(t *testing.T) {
	answered := map[conn.Cause]map[conn.Delivery]uint64{conn.Answered: {conn.Sent: 3}}
	for name, c := range map[string]struct {
		stats conn.Stats
		epoch uint64
		want  string
	}{
		"honest":                {conn.Stats{Calls: 3, Settled: answered}, 1, ""},
		"a second answer":       {conn.Stats{Calls: 3, Settled: answered, Late: 1}, 1, "got 1 answers to calls that were answered already"},
		"after another attempt": {conn.Stats{Calls: 3, Settled: answered, Late: 1, Retries: 1}, 1, ""},
		"after a lost link":     {conn.Stats{Calls: 3, Settled: answered, Late: 1}, 2, ""},
		"after a timeout":       {conn.Stats{Calls: 3, Settled: map[conn.Cause]map[conn.Delivery]uint64{conn.Answered: {conn.Sent: 2}, conn.TimedOut: {conn.Unknown: 1}}, Late: 1}, 1, ""},
		"an answer to nothing":  {conn.Stats{Calls: 3, Settled: answered, Unknown: 1}, 2, "got 1 answers to calls that it had not made"},
		"a call without an end": {conn.Stats{Calls: 4, Settled: answered}, 1, "has made 4 calls, and 3 have ended"},
	} {
		if wrong := strings.Join(wrongIn(1, c.stats, c.epoch), "\n"); (wrong == "") != (c.want == "") || !strings.Contains(wrong, c.want) {
			t.Errorf("%s: got %q, want %q", name, wrong, c.want)
		}
	}
}

// trailsOf writes the trails of the gateways of a site: each of them has answered one call, with the id of its node.
func trailsOf(t *testing.T) (g *gateways, machine func(int) string) {
	t.Helper()
	folder := t.TempDir()
	g = &gateways{folder: folder}
	key, err := audit.ReadKey(keyIn(t, folder))
	if err != nil {
		t.Fatal(err)
	}
	for node := range siteNodes {
		trail, err := audit.Open(g.trail(node), audit.Options{Key: key, Sync: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []audit.Record{
			{Method: "tools/list", Outcome: "answered"}, {Method: "tools/call", Outcome: "not answered"},
			{Method: "tools/call", Outcome: "answered", Shown: []byte(`{"id":"` + nodeName(node) + `"}`)},
		} {
			trail.Write(t.Context(), r)
		}
		if err := trail.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return g, func(int) string { return folder }
}

func keyIn(t *testing.T, machine string) string {
	t.Helper()
	folder := filepath.Join(machine, "bowline")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, "audit.key")
}

// What a server behind the gateways has noticed makes a run wrong, and so does a trail that lacks a record, was changed or is missing.
func TestLiesOfGatewaysAreFound(t *testing.T) {
	rewrite := func(t *testing.T, path string, change func(string) string) {
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(change(string(text))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		breaks     func(t *testing.T, g *gateways)
		want, fail string
	}{
		"honest": {func(*testing.T, *gateways) {}, "", ""},
		"the server of one runs twice": {func(t *testing.T, g *gateways) {
			t.Setenv(child.Lock, filepath.Join(g.folder, "lock"))
			t.Setenv(child.Ledger, filepath.Join(g.folder, "ledger"))
			t.Setenv(child.Violation, g.violations())
			file, err := private.Lock(os.Getenv(child.Lock))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if child.Run(child.One) == nil {
				t.Error("a second one runs")
			}
		}, "another process runs", ""},
		"a record was changed": {func(t *testing.T, g *gateways) {
			rewrite(t, g.trail(1), func(text string) string { return strings.Replace(text, `"id":"n1"`, `"id":"n0"`, 1) })
		}, "it was changed", ""},
		"a record was left out": {func(t *testing.T, g *gateways) {
			rewrite(t, g.trail(1), func(text string) string {
				lines := strings.SplitAfter(text, "\n")
				return strings.Join(append(lines[:2:2], lines[3:]...), "")
			})
		}, "n1.audit.jsonl", ""},
		"a trail has other calls": {func(_ *testing.T, g *gateways) {
			g.lies.Trail = func(path string, key []byte) error { return withoutAnswers(path, key, path == g.trail(2)) }
		}, "call n2 was answered, and no audit trail says so", ""},
		"a trail is missing": {func(t *testing.T, g *gateways) {
			if err := os.Remove(g.trail(0)); err != nil {
				t.Fatal(err)
			}
		}, "n0.audit.jsonl", ""},
		"a call shows no id": {func(_ *testing.T, g *gateways) {
			g.lies.Trail = func(path string, key []byte) error {
				trail, err := audit.Open(path, audit.Options{Key: key, Sync: true})
				if err != nil {
					return err
				}
				trail.Write(context.Background(), audit.Record{Method: "tools/call", Outcome: "answered"})
				return trail.Close()
			}
		}, "", "shows no id of a call"},
	} {
		t.Run(name, func(t *testing.T) {
			g, machine := trailsOf(t)
			c.breaks(t, g)
			r := Row{Books: Books{calls: map[string]*loadCall{}}}
			for node := range siteNodes {
				r.calls[nodeName(node)] = ended(conn.Answered, conn.Sent)
			}
			err := r.judgeTrails(g, machine)
			if wrong := strings.Join(r.Wrong, "\n"); (wrong == "") != (c.want == "") || !strings.Contains(wrong, c.want) {
				t.Errorf("got %q, want %q", wrong, c.want)
			}
			if (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
				t.Errorf("it fails with %v, want %q", err, c.fail)
			}
		})
	}
}

// withoutAnswers writes a trail anew, with its key, without a call that was answered: what a gateway writes that drops a record. No line of it is broken.
func withoutAnswers(path string, key []byte, drops bool) error {
	if !drops {
		return nil
	}
	if err := errors.Join(os.Remove(path), os.Remove(path+".head")); err != nil {
		return err
	}
	trail, err := audit.Open(path, audit.Options{Key: key, Sync: true})
	if err != nil {
		return err
	}
	return trail.Close()
}
