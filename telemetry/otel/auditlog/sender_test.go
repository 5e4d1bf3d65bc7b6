package auditlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/telemetry/otel/auditlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An exporter keeps what it gets.
type exporter struct {
	mu      sync.Mutex
	batches []int
	records []sdklog.Record
	fails   error
	stuck   bool // until its context ends
	closed  int
}

func (e *exporter) Export(ctx context.Context, all []sdklog.Record) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	if e.fails != nil {
		return e.fails
	}
	e.batches, e.records = append(e.batches, len(all)), append(e.records, all...)
	return nil
}

// does makes the next exports fail, or hang.
func (e *exporter) does(fails error, stuck bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fails, e.stuck = fails, stuck
}

// got returns the sizes of the batches, and the numbers of the records in them.
func (e *exporter) got() (batches, numbers string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.records {
		numbers += attributesOf(r)["bowline.audit.n"] + " "
	}
	return fmt.Sprint(e.batches), numbers
}

func (e *exporter) Shutdown(context.Context) error   { e.closed++; return nil }
func (e *exporter) ForceFlush(context.Context) error { return nil }

// attributesOf returns the attributes of a record as texts.
func attributesOf(r sdklog.Record) map[string]string {
	all := map[string]string{}
	r.WalkAttributes(func(a attribute.KeyValue) bool {
		all[string(a.Key)] = a.Value.String()
		return true
	})
	return all
}

func send(s *auditlog.Sender, from, n int) {
	for i := range n {
		s.Send(audit.Record{Number: uint64(from + i), Method: "tools/call", Name: "a", Outcome: "answered"})
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.NewTimer(d).C }

// Everything that a record says is sent, and under names of the conventions where there are some.
//
// Guarantees: G-0099.15
func TestAllOfARecordIsSent(t *testing.T) {
	r := audit.Record{Time: time.Unix(1, 0).UTC(), Shown: json.RawMessage(`{"path":"x"}`)}
	fields, n := reflect.ValueOf(&r).Elem(), int64(100)
	for i := range fields.NumField() {
		n++
		switch f := fields.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(fmt.Sprint("text", n))
		case reflect.Int, reflect.Int64:
			f.SetInt(n)
		case reflect.Uint64:
			f.SetUint(uint64(n))
		case reflect.Float64:
			f.SetFloat(float64(n))
		}
	}
	r.Event, r.Method, r.Trace, r.Span = "", "tools/call", "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	out := new(exporter)
	s := auditlog.New(out, auditlog.Options{Resource: resource.NewSchemaless(attribute.String("service.name", "x"))})
	s.Send(r)
	for method, key := range map[string]string{"prompts/get": "gen_ai.prompt.name", "resources/read": "mcp.resource.uri", "tools/list": "bowline.audit.name"} {
		s.Send(audit.Record{Method: method, Name: key})
	}
	s.Send(audit.Record{Event: audit.EventLost, Count: 3})
	s.Send(audit.Record{Event: "restart", Server: "files"})
	s.Send(audit.Record{Method: "tools/call", Outcome: "answered"})
	if err := s.Close(t.Context()); err != nil || len(out.records) != 7 || out.closed != 1 {
		t.Fatalf("%d records, closed %d times: %v", len(out.records), out.closed, err)
	}
	first := attributesOf(out.records[0])
	first["trace"], first["span"] = out.records[0].TraceID().String(), out.records[0].SpanID().String() // which are no attributes
	for i := range fields.NumField() {
		value := fmt.Sprint(fields.Field(i).Interface())
		if raw, is := fields.Field(i).Interface().(json.RawMessage); is {
			value = string(raw)
		}
		sent := out.records[0].Timestamp().Equal(r.Time) && value == fmt.Sprint(r.Time) || fields.Type().Field(i).Name == "Version" || value == ""
		for _, has := range first {
			sent = sent || has == value
		}
		if !sent {
			t.Errorf("%s is not sent", fields.Type().Field(i).Name)
		}
	}
	for key, want := range map[string]string{"mcp.method.name": "tools/call", "gen_ai.tool.name": r.Name, "user.id": r.Principal, "client.address": r.Address, "jsonrpc.request.id": r.ID} {
		if first[key] != want {
			t.Errorf("%s is %q, want %q", key, first[key], want)
		}
	}
	for _, other := range out.records[1:4] {
		if all := attributesOf(other); all[all["mcp.method.name"]] != "" || len(all) != 2 {
			t.Errorf("%v", all)
		}
		for key, value := range attributesOf(other) {
			if key != "mcp.method.name" && key != value {
				t.Errorf("%s is %s", key, value)
			}
		}
	}
	for i, want := range map[int]string{0: "WARN bowline.audit.request tools/call", 4: "WARN bowline.audit.event lost", 5: "INFO bowline.audit.event restart files", 6: "INFO bowline.audit.request tools/call answered"} {
		got := out.records[i]
		if said := got.Severity().String() + " " + got.EventName() + " " + got.Body().String(); !strings.HasPrefix(said, want) {
			t.Errorf("it says %q, want %q", said, want)
		}
	}
	if got := out.records[0].Resource(); got == nil || !strings.Contains(got.String(), "service.name=x") || out.records[0].Severity() != log.SeverityWarn {
		t.Errorf("it is of %v", got)
	}
}

// A record of a request that was traced has the ids of its trace and span as log records have them, and only such a record.
//
// Guarantees: G-0099.17
func TestTheSpanOfARecordIsSent(t *testing.T) {
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	out := new(exporter)
	s := auditlog.New(out, auditlog.Options{})
	all := []audit.Record{{}, {Trace: trace, Span: span}, {}, {Trace: trace}, {Span: span}, {Trace: "x" + trace[1:], Span: span}, {Trace: trace, Span: strings.Repeat("0", 16)}}
	for _, r := range all {
		s.Send(r)
	}
	if err := s.Close(t.Context()); err != nil || len(out.records) != len(all) {
		t.Fatalf("%d records: %v", len(out.records), err)
	}
	for i, r := range out.records {
		if is := r.TraceID().String() == trace && r.SpanID().String() == span; is != (i == 1) || r.TraceID().IsValid() != is || r.SpanID().IsValid() != is {
			t.Errorf("record %d has %s and %s", i, r.TraceID(), r.SpanID())
		}
		if all := attributesOf(r); len(all) != 0 {
			t.Errorf("record %d has %v", i, all)
		}
	}
}

// Records are sent in their order: a second after the first of a batch, or as soon as that is full, and those that are left at the end.
//
// Guarantees: G-0099.15
func TestRecordsAreSentInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := new(exporter)
		s := auditlog.New(out, auditlog.Options{})
		want, sent := "", 0
		for i := range 1400 {
			want += fmt.Sprint(i+1, " ")
		}
		for _, step := range []struct {
			n    int
			wait time.Duration
			want string
		}{
			{3, 999 * time.Millisecond, "[]"}, {1, time.Millisecond, "[4]"}, {600, 0, "[4 512]"}, {0, time.Second, "[4 512 88]"}, {796, 0, "[4 512 88 512]"},
		} {
			send(s, sent+1, step.n)
			sent += step.n
			if step.wait > 0 {
				pass(step.wait)
			}
			synctest.Wait()
			if batches, _ := out.got(); batches != step.want {
				t.Errorf("after %d: %v, want %s", step.n, batches, step.want)
			}
		}
		err := s.Close(t.Context())
		if batches, numbers := out.got(); err != nil || batches != "[4 512 88 512 284]" || numbers != want || s.Lost() != 0 {
			t.Errorf("in the end: %v, %s, %d lost, %v", batches, numbers, s.Lost(), err)
		}
		s.Send(audit.Record{})
		if s.Lost() != 1 {
			t.Error("a record after the end is not counted")
		}
	})
}

// An exporter that hangs or fails keeps nobody waiting: what cannot be sent is counted, the log says so once, and what follows is sent.
//
// Guarantees: G-0099.16
func TestWhatCannotBeSentIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := new(bytes.Buffer)
		out := &exporter{fails: errors.New("nobody listens")}
		s := auditlog.New(out, auditlog.Options{Log: slog.New(slog.NewTextHandler(said, nil))})
		for range 2 {
			send(s, 1, 2)
			pass(time.Second)
			synctest.Wait()
		}
		if text := said.String(); s.Lost() != 4 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "nobody listens") {
			t.Errorf("%d are lost, and the log says %q", s.Lost(), text)
		}
		out.does(nil, false)
		send(s, 5, 2)
		pass(time.Second)
		synctest.Wait()
		if _, numbers := out.got(); s.Lost() != 4 || numbers != "5 6 " {
			t.Errorf("%d are lost, and %s sent", s.Lost(), numbers)
		}
		out.does(errors.New("gone again"), false)
		send(s, 7, 1)
		pass(time.Second)
		synctest.Wait()
		if s.Lost() != 5 || strings.Count(said.String(), "\n") != 2 {
			t.Errorf("%d are lost, and the log says %q", s.Lost(), said)
		}

		out.does(nil, true)
		send(s, 8, 512)
		synctest.Wait()
		began := time.Now()
		send(s, 520, 2048+100)
		if synctest.Wait(); s.Lost() != 5+100 || time.Since(began) > 0 {
			t.Errorf("%d are lost, after %v", s.Lost(), time.Since(began))
		}
		pass(30 * time.Second) // the first batch is given up
		synctest.Wait()
		if s.Lost() != 105+512 {
			t.Errorf("%d are lost", s.Lost())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Close(ctx)
		if err == nil || !strings.Contains(err.Error(), "2048 records") || s.Lost() != 617+2048 || time.Since(began) != 31*time.Second || out.closed != 1 {
			t.Errorf("at the end %d are lost, after %v: %v", s.Lost(), time.Since(began), err)
		}
	})
}
