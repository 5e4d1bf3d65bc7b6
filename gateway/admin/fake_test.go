package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/gateway/audit"
)

const hostile = `<img src=x onerror="alert(1)">`

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// A fake is a gateway that does what a test says.
type fake struct {
	mu      sync.Mutex
	report  Report
	changed chan struct{}
	done    []string
	broken  error // of Do and Reload
	tail    Tail
	result  json.RawMessage
	detail  Detail         // of files
	reports int            // how often a Report was made
	records []audit.Record // nil: there is no trail
	writes  func()         // what happens once, just after somebody has got the records; nil: nothing
	changes func()         // the same for a report
}

func newFake(servers ...ServerReport) *fake {
	return &fake{changed: make(chan struct{}), report: Report{At: noon, Version: "1", File: "mcp.json", Applied: noon, Ready: true, Servers: servers}}
}

func (f *fake) Report() Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports++
	if f.changes != nil {
		defer f.changes()
		f.changes = nil
	}
	return f.report
}

func (f *fake) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

func (f *fake) set(servers ...ServerReport) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Servers = servers
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) Do(_ context.Context, server string, action Action) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.report.Servers, func(s ServerReport) bool { return s.Name == server }) {
		return fmt.Errorf("%w: %s", ErrNoServer, server)
	}
	f.done = append(f.done, string(action)+" "+server)
	return f.broken
}

func (f *fake) Reload(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, "reload")
	return f.broken
}

func (f *fake) Pins() []Pin { return f.detail.Pins }

func (f *fake) Approve(_ context.Context, server string, tools ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, strings.Join(append([]string{"approve", server}, tools...), " "))
	return f.broken
}

func (f *fake) Logout(_ context.Context, server, user string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, fmt.Sprintf("logout %s %q", server, user))
	return f.broken
}

func (f *fake) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, "end")
}

func (f *fake) Records() ([]audit.Record, <-chan struct{}, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.writes != nil {
		defer f.writes()
		f.writes = nil
	}
	return f.records, f.changed, f.records != nil
}

func (f *fake) Stderr(server string) (Log, bool) { return &f.tail, server == "files" }

func (f *fake) Call(_ context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, "call "+tool+" "+string(arguments))
	return f.result, f.broken
}

func (f *fake) Detail(server string) (Detail, bool) { return f.detail, server == "files" }

func (f *fake) did() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

// ask sends a request, as a program on this machine does unless it is changed.
func ask(h http.Handler, method, target string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, "http://localhost:8081"+target, nil)
	for _, f := range change {
		f(request)
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, request)
	return answer
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

func form(values string) func(*http.Request) {
	return func(r *http.Request) {
		with("Content-Type", "application/x-www-form-urlencoded")(r)
		r.Body = http.NoBody
		if values != "" {
			*r = *httptest.NewRequest(r.Method, r.URL.String(), strings.NewReader(values)).WithContext(r.Context())
			with("Content-Type", "application/x-www-form-urlencoded")(r)
		}
	}
}

var (
	errBroken = errors.New("the file has mistakes")
	token     = with("Authorization", "Bearer t0ken")
)

func files() ServerReport {
	return ServerReport{Name: "files", State: Ready, Reason: "handshaken", Since: noon, PID: 4711, Tools: 12, Stderr: "secret argument"}
}

// serveWeb returns the handler of a loopback address with a token.
func serveWeb(t *testing.T, f Gateway, open bool) http.Handler {
	d := New(f)
	t.Cleanup(d.Close)
	return d.Web(Web{Token: "t0ken", Open: open, Hosts: []string{"tools.example.com"}})
}
