package otel_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/telemetry/otel"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Arguments that do not fit the schema of a tool are told by nothing, though the answer
// says what is wrong with them.
//
// Guarantees: G-0047.6
func TestBadArgumentsAreNotTold(t *testing.T) {
	for _, over := range []string{"memory", "stdio", "http"} {
		for _, bad := range []string{`{"secret":["s3cr3t-list"]}`, `{"s3cr3t-name":1}`, `"s3cr3t-text"`, `{"secret":"s3cr3t`} {
			t.Run(over+"/"+bad, func(t *testing.T) {
				s := newSite(t, over, protocol.Latest, otel.Options{})
				result, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "add", Arguments: []byte(bad)})
				if err == nil && !result.IsError {
					t.Errorf("%s is taken", bad)
				}
				for _, told := range s.secrets(t) {
					t.Errorf("a secret is told: ...%s...", told)
				}
			})
		}
	}
}

// What the tests of secrets look for is seen if it is there: the program may ask for
// arguments.
//
// Guarantees: G-0047.6
func TestArgumentsAreToldIfTheProgramSaysSo(t *testing.T) {
	for _, over := range []string{"memory", "http"} {
		s := newSite(t, over, protocol.Latest, otel.Options{
			Arguments: func(_ string, raw json.RawMessage) []byte { return raw },
		})
		if _, err := s.CallTool(t.Context(), &protocol.CallToolParams{Name: "add", Arguments: []byte(`{"secret":"s3cr3t-argument"}`)}); err != nil {
			t.Fatal(err)
		}
		if len(s.secrets(t)) == 0 {
			t.Errorf("over %s the arguments are not told", over)
		}
	}
}

// A server that cannot be reached, or that refuses the token, is told without the
// token, the headers and the query of its address.
//
// Guarantees: G-0047.6
func TestFailedConnectionsTellNoSecret(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(refusing.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, url := range []string{refusing.URL, gone.URL} {
		s := newSite(t, "memory", protocol.Latest, otel.Options{})
		told, err := otel.New(otel.Options{MeterProvider: s.meters, TracerProvider: s.traces})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		failed := telemetry.Hooks{Transition: func(e telemetry.Transition) {
			if e.To != "starting" && e.To != "initializing" { // the first attempt is over
				cancel()
			}
		}}
		failing := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
			Middleware: []client.Middleware{told.Client()}, Conn: conn.Tuning{Name: "failing", Hooks: telemetry.Tee(s.hooks(told), failed)},
		})
		t.Cleanup(func() { failing.Close(t.Context()) })
		_, err = failing.Connect(ctx, &streamable.Client{
			URL: url + "/?key=" + secret + "-query", Header: http.Header{"Authorization": {"Bearer " + secret + "-token"}},
		})
		if err == nil {
			t.Fatal("it has connected")
		}
		failing.Close(t.Context())
		for _, told := range s.secrets(t) {
			t.Errorf("a secret is told: ...%s...", told)
		}
		if !strings.Contains(s.logs.String(), `"conn":"failing"`) {
			t.Error("no line is about the connection")
		}
	}
}
