package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hung is a gateway that ends nothing by itself.
type hung struct{ *fake }

func (hung) Do(ctx context.Context, _ string, _ Action) error { <-ctx.Done(); return ctx.Err() }
func (hung) Reload(ctx context.Context) error                 { <-ctx.Done(); return ctx.Err() }
func (hung) Call(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hung) Logout(ctx context.Context, _, _ string) error { <-ctx.Done(); return ctx.Err() }

// hungNode is one of a cluster that ends nothing by itself.
type hungNode struct{ hung }

func (hungNode) Nodes(context.Context) (string, []NodeReport) { return "a", nil }
func (hungNode) Move(ctx context.Context, _, _ string) error  { <-ctx.Done(); return ctx.Err() }

// A person who acts has an answer after 30 s, one who moves a server after a minute, and one who tries a tool after two minutes, whatever hangs.
//
// Guarantees: G-0091.3, G-0091.17
func TestWhoActsIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(files())
		f.detail.Tools = []Tool{{Name: "t", Schema: json.RawMessage(`{}`)}}
		d := New(hungNode{hung{f}})
		defer d.Close()
		h := d.Local()
		for _, c := range []struct {
			target string
			after  time.Duration
			status int
		}{
			{"/v1/servers/files/restart", 30 * time.Second, http.StatusConflict},
			{"/v1/reload", 30 * time.Second, http.StatusConflict},
			{"/v1/logout/files", 30 * time.Second, http.StatusConflict},
			{"/v1/servers/files/move", time.Minute, http.StatusConflict},
			{"/servers/files/tools/t", 2 * time.Minute, http.StatusOK},
		} {
			began := time.Now()
			got := ask(h, "POST", c.target, form("user=ann&node=b"))
			if took := time.Since(began); took != c.after || got.Code != c.status || !strings.Contains(got.Body.String(), "deadline exceeded") {
				t.Errorf("%s: %d after %v: %s", c.target, got.Code, took, got.Body)
			}
		}
	})
}

// patient takes ten seconds for an action, unless who has asked for it leaves.
type patient struct{ *fake }

func (patient) Reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if <-ctx.Done(); ctx.Err() == context.Canceled {
		return errBroken
	}
	return nil
}

// The time in which a form has to come is not the time of what it asks for.
//
// Guarantees: G-0091.2, G-0091.3
func TestAnActionMayTakeLongerThanItsForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(patient{newFake(files())})
		defer d.Close()
		client, end := serveOne(d.Local())
		defer end()
		began := time.Now()
		io.WriteString(client, "POST /v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
		if got, err := http.ReadResponse(bufio.NewReader(client), nil); err != nil || got.StatusCode != 204 || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), got, err)
		}
	})
}

// slow answers after a second and a half.
type slow struct{ *fake }

func (slow) Call(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	pass(1500 * time.Millisecond)
	return json.RawMessage(`{"content":[]}`), nil
}

// The page says how long a tool has taken.
//
// Guarantees: G-0091.17
func TestHowLongAToolTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(files())
		f.detail.Tools = []Tool{{Name: "t", Schema: json.RawMessage(`{}`)}}
		d := New(slow{f})
		defer d.Close()
		if got := ask(d.Local(), "POST", "/servers/files/tools/t", form("")); !strings.Contains(got.Body.String(), "</strong> after 1500 ms<") {
			t.Errorf("the page: %s", got.Body)
		}
	})
}

// The last line of a tail is that which was ended last.
//
// Guarantees: G-0091.6
func TestTheLastLine(t *testing.T) {
	var tail Tail
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i, step := range []struct{ written, last string }{{"", ""}, {"one", ""}, {"\r\ntwo\nthr", "two"}, {"ee\n", "three"}} {
			tail.Write([]byte(step.written))
			if got := tail.Last(); got != step.last {
				t.Errorf("after %q the last line is %q, want %q", step.written, got, step.last)
			}
			if lines, last, _ := tail.Read(0); int(last) != len(lines) || len(lines) != []int{0, 0, 2, 3}[i] {
				t.Errorf("after %q it has the lines %q, the last of them is %d", step.written, lines, last)
			}
		}
	}()
	select {
	case <-ended:
	case <-time.NewTimer(3 * time.Second).C:
		t.Fatal("a call of the tail did not return: one before it has kept the lock")
	}
}

// A viewer hears at least each 15 s that the gateway is there, and is given five seconds to read what is sent.
//
// Guarantees: G-0091.5
func TestAViewerHearsThatNothingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(newFake(files()))
		defer d.Close()
		v := look(t, d.Local(), "/v1/events")
		for pings := range 3 {
			pass(15*time.Second - time.Millisecond)
			synctest.Wait()
			if n := strings.Count(v.text(), ": still here\n\n"); n != pings {
				t.Errorf("%d pings before the time of the next, want %d", n, pings)
			}
			pass(time.Millisecond)
			v.sees(t, 1, strings.Repeat(": still here\n\n", pings+1))
		}
		w := &stuck{ResponseRecorder: httptest.NewRecorder()}
		d.Local().ServeHTTP(w, httptest.NewRequest("GET", "/v1/events", nil))
		if until := time.Until(w.deadline); until != 5*time.Second {
			t.Errorf("it may read for %v", until)
		}
	})
}
