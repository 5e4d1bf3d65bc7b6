package auditlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/bowline-mcp/bowline/gateway/audit"
)

const (
	queueSize  = 2048
	batchSize  = 512
	batchTime  = time.Second      // after the first record of a batch, until it is sent
	exportTime = 30 * time.Second // for one batch, with all that the exporter tries
)

// Options configure a Sender. The zero value of each field means its default.
type Options struct {
	// Resource says who sends. Default: what the SDK knows of the process.
	Resource *resource.Resource

	// Log hears once that records cannot be sent, and again after some were. Nil: slog.Default().
	Log *slog.Logger
}

// A Sender sends records of an audit trail, in their order. It is safe for concurrent use. End it with Close.
type Sender struct {
	exporter sdklog.Exporter
	log      *slog.Logger
	queue    chan audit.Record
	closing  chan struct{}
	ended    chan struct{} // closed when nothing is sent any more
	once     sync.Once
	lost     atomic.Uint64
	ctx      context.Context // of all that is sent
	cancel   context.CancelFunc

	// Of the goroutine that sends:
	logger  log.Logger
	batch   batch
	failing bool // the last batch was not sent
}

// New begins to send to an exporter, which is the sender's from then on.
func New(exporter sdklog.Exporter, o Options) *Sender {
	s := &Sender{
		exporter: exporter, log: o.Log, queue: make(chan audit.Record, queueSize), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	made := []sdklog.LoggerProviderOption{sdklog.WithProcessor(&s.batch)}
	if o.Resource != nil {
		made = append(made, sdklog.WithResource(o.Resource))
	}
	s.logger = sdklog.NewLoggerProvider(made...).Logger("github.com/bowline-mcp/bowline/gateway/audit")
	go s.run() // Close waits for it
	return s
}

// Send sends a record soon. It never waits: if 2,048 are waiting, or after Close, the record is lost, and counted.
func (s *Sender) Send(r audit.Record) {
	select {
	case <-s.closing:
		s.lost.Add(1)
		return
	default:
	}
	select {
	case s.queue <- r:
	default:
		s.lost.Add(1)
	}
}

// Lost returns how many records were not sent, because the queue was full or the exporter has failed.
func (s *Sender) Lost() uint64 { return s.lost.Load() }

// Close sends what is left, ends the exporter, and returns an error if records were lost at the end. It may be called once all calls of Send have returned.
func (s *Sender) Close(ctx context.Context) error {
	before := s.Lost()
	stop := context.AfterFunc(ctx, s.cancel)
	defer stop()
	s.once.Do(func() { close(s.closing) })
	<-s.ended
	s.cancel()
	err := s.exporter.Shutdown(ctx)
	if lost := s.Lost() - before; lost > 0 {
		err = errors.Join(err, fmt.Errorf("auditlog: the last %d records were not sent", lost))
	}
	return err
}

func (s *Sender) run() {
	defer close(s.ended)
	due := time.NewTimer(batchTime)
	defer due.Stop()
	for {
		select {
		case r := <-s.queue:
			s.add(r)
			switch len(s.batch.records) {
			case 1:
				due.Reset(batchTime)
			case batchSize:
				s.send()
			}
		case <-due.C:
			s.send()
		case <-s.closing:
			s.finish()
			return
		}
	}
}

// finish sends what is in the queue.
func (s *Sender) finish() {
	for len(s.queue) > 0 {
		if s.add(<-s.queue); len(s.batch.records) == batchSize {
			s.send()
		}
	}
	s.send()
}

func (s *Sender) add(r audit.Record) { s.logger.Emit(withSpan(s.ctx, &r), recordOf(&r)) }

// send sends a batch, or counts it. A record that may or may not have arrived is not sent again: the exporter tries again what is safe to repeat.
func (s *Sender) send() {
	all := s.batch.records
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, exportTime)
	defer cancel()
	err := s.exporter.Export(ctx, all)
	if err != nil {
		s.lost.Add(uint64(len(all)))
		if !s.failing {
			s.log.Warn("bowline: records of the audit trail cannot be sent", "error", err)
		}
	}
	s.failing = err != nil
	s.batch.records = nil // an exporter may keep what it got
}

// A batch is the processor of a logger that one goroutine uses.
type batch struct{ records []sdklog.Record }

// OnEmit implements sdklog.Processor.
func (b *batch) OnEmit(_ context.Context, r *sdklog.Record) error {
	b.records = append(b.records, r.Clone())
	return nil
}

// Enabled implements sdklog.Processor.
func (b *batch) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

// ForceFlush implements sdklog.Processor.
func (b *batch) ForceFlush(context.Context) error { return nil }

// Shutdown implements sdklog.Processor.
func (b *batch) Shutdown(context.Context) error { return nil }
