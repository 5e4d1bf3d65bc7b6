package clustertest

import (
	"context"
	"errors"
	"iter"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
)

// brokenVariable makes the test binary run the suite on an Engine that is broken on purpose, and
// so fail.
const brokenVariable = "BOWLINE_CLUSTERTEST_BROKEN"

// A broken Engine replaces methods of the one in memory. Nil: not this one.
type broken struct {
	*Engine
	open      func(e *Engine, o cluster.BucketOptions) (cluster.BucketOptions, error)
	bucket    func(*brokenBucket)
	publish   func(e *Engine, subject string, body []byte) error
	subscribe func(e *Engine, subject string, f func(cluster.Message)) func()
	request   func(ctx context.Context, e *Engine, subject string, body []byte) ([]byte, error)
	collect   func(ctx context.Context, e *Engine, subject string, body []byte) iter.Seq2[[]byte, error]
	answer    func(f func(context.Context, []byte) []byte) func(context.Context, []byte) []byte
	connected func() (bool, <-chan struct{})
	messages  func() (sent, received uint64)
	close     func(e *Engine) error
}

type brokenBucket struct {
	cluster.Bucket
	engine  *Engine
	options cluster.BucketOptions
	create  func(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error)
	update  func(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	remove  func(ctx context.Context, key string, revision uint64) error
	get     func(ctx context.Context, key string) (cluster.Entry, error)
	keys    func(ctx context.Context, prefix string) iter.Seq2[string, error]
	watch   func(entry cluster.Entry) bool // reports whether the entry is yielded
}

func (b *broken) Bucket(ctx context.Context, o cluster.BucketOptions) (cluster.Bucket, error) {
	if b.open != nil {
		var err error
		if o, err = b.open(b.Engine, o); err != nil {
			return nil, err
		}
	}
	inner, err := b.Engine.Bucket(ctx, o)
	if b.bucket == nil || err != nil {
		return inner, err
	}
	outer := &brokenBucket{Bucket: inner, engine: b.Engine, options: o}
	b.bucket(outer)
	return outer, nil
}

func (b *broken) Publish(subject string, body []byte) error {
	if b.publish != nil {
		return b.publish(b.Engine, subject, body)
	}
	return b.Engine.Publish(subject, body)
}

func (b *broken) Subscribe(ctx context.Context, subject string, f func(cluster.Message)) (func(), error) {
	if b.subscribe != nil {
		return b.subscribe(b.Engine, subject, f), nil
	}
	return b.Engine.Subscribe(ctx, subject, f)
}

func (b *broken) Request(ctx context.Context, subject string, body []byte) ([]byte, error) {
	if b.request != nil {
		return b.request(ctx, b.Engine, subject, body)
	}
	return b.Engine.Request(ctx, subject, body)
}

func (b *broken) Collect(ctx context.Context, subject string, body []byte) iter.Seq2[[]byte, error] {
	if b.collect != nil {
		return b.collect(ctx, b.Engine, subject, body)
	}
	return b.Engine.Collect(ctx, subject, body)
}

func (b *broken) Answer(ctx context.Context, subject string, f func(context.Context, []byte) []byte) (func(), error) {
	if b.answer != nil {
		f = b.answer(f)
	}
	return b.Engine.Answer(ctx, subject, f)
}

func (b *broken) Connected() (bool, <-chan struct{}) {
	if b.connected != nil {
		return b.connected()
	}
	return b.Engine.Connected()
}

func (b *broken) Messages() (sent, received uint64) {
	if b.messages != nil {
		return b.messages()
	}
	return b.Engine.Messages()
}

func (b *broken) Close() error {
	if b.close != nil {
		return b.close(b.Engine)
	}
	return b.Engine.Close()
}

func (b *brokenBucket) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	if b.create != nil {
		return b.create(ctx, key, value, ttl)
	}
	return b.Bucket.Create(ctx, key, value, ttl)
}

func (b *brokenBucket) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if b.update != nil {
		return b.update(ctx, key, value, revision)
	}
	return b.Bucket.Update(ctx, key, value, revision)
}

func (b *brokenBucket) Delete(ctx context.Context, key string, revision uint64) error {
	if b.remove != nil {
		return b.remove(ctx, key, revision)
	}
	return b.Bucket.Delete(ctx, key, revision)
}

func (b *brokenBucket) Get(ctx context.Context, key string) (cluster.Entry, error) {
	if b.get != nil {
		return b.get(ctx, key)
	}
	return b.Bucket.Get(ctx, key)
}

func (b *brokenBucket) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	if b.keys != nil {
		return b.keys(ctx, prefix)
	}
	return b.Bucket.Keys(ctx, prefix)
}

func (b *brokenBucket) Watch(ctx context.Context, prefix string) iter.Seq[cluster.Entry] {
	if b.watch == nil {
		return b.Bucket.Watch(ctx, prefix)
	}
	return func(yield func(cluster.Entry) bool) {
		for entry := range b.Bucket.Watch(ctx, prefix) {
			if b.watch(entry) && !yield(entry) {
				return
			}
		}
	}
}

// expires changes when a value expires.
func (b *brokenBucket) expires(key string, change func(time.Time) time.Time) {
	b.engine.service.mu.Lock()
	defer b.engine.service.mu.Unlock()
	values := b.engine.service.buckets[b.options.Name].values
	v := values[key]
	v.expires = change(v.expires)
	values[key] = v
	b.engine.service.schedule()
}

// A breach is one way to break an Engine, and the clause that notices it.
type breach struct {
	name, clause string
	engine       func(b *broken)
	output       string // part of the failure's message
}

// Every clause of the contract fails on an Engine that breaks it. Most of the time the children
// wait, so that some run at once.
func TestContractSeesBreaches(t *testing.T) {
	atOnce := make(chan struct{}, 10)
	for _, b := range breaches() {
		if os.Getenv(brokenVariable) != "" {
			t.Run(b.name, func(t *testing.T) { runBroken(t, b) })
			continue
		}
		ended := make(chan func(*testing.T), 1)
		go func() {
			atOnce <- struct{}{}
			ended <- b.run()
			<-atOnce
		}()
		defer func() { t.Run(b.name, <-ended) }()
	}
}

// run runs the clause on the Engine that is broken, and returns what is wrong with its failure. On a busy machine the
// time of the clause may pass before it meets the break; then it gets more.
func (b breach) run() func(*testing.T) {
	var output []byte
	var err error
	for guard := time.Second; guard < 2*time.Minute; guard *= 10 {
		if output, err = b.runWithin(guard); b.isSeen(output, err) {
			break
		}
	}
	return func(t *testing.T) {
		if !b.isSeen(output, err) {
			t.Errorf("want a failure with %q, got %v:\n%s", b.output, err, output)
		}
	}
}

func (b breach) isSeen(output []byte, err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && strings.Contains(string(output), b.output)
}

// runWithin runs the clause, which waits for so long before it fails.
func (b breach) runWithin(guard time.Duration) (output []byte, err error) {
	pattern := "^TestContractSeesBreaches$/^" + escape(b.name) + "$/^" + strings.ReplaceAll(escape(b.clause), "/", "$/^") + "$"
	command := exec.Command(os.Args[0], "-test.run="+pattern, "-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s", "-test.timeout="+(time.Minute+10*guard).String())
	command.Env = append(os.Environ(), brokenVariable+"="+guard.String())
	return command.CombinedOutput()
}

func escape(name string) string { return strings.ReplaceAll(name, " ", "_") }

func runBroken(t *testing.T, b breach) {
	guard, err := time.ParseDuration(os.Getenv(brokenVariable))
	if err != nil {
		t.Fatal(err)
	}
	EngineContract(t, func(*testing.T) Harness {
		s := New(Options{})
		h := contractHarness(s)
		h.Engine = func(*testing.T) cluster.Engine {
			e := &broken{Engine: s.Engine()}
			b.engine(e)
			return e
		}
		cut := h.Cut
		h.Cut = func(e cluster.Engine) func() { return cut(e.(*broken).Engine) }
		h.Guard = guard
		if strings.HasPrefix(b.clause, "with time") {
			h.Guard *= 4
		}
		return h
	})
}

// inBucket breaks a bucket.
func inBucket(apply func(b *brokenBucket)) func(*broken) {
	return func(e *broken) { e.bucket = apply }
}

func breaches() []breach {
	return append(brokenBuckets(), brokenMessages()...)
}

func brokenBuckets() []breach {
	const model = "buckets agree with a map"
	var mu sync.Mutex
	kept := map[string][]byte{}
	return []breach{
		{"settings are ignored", "a bucket keeps its settings", func(e *broken) {
			e.open = func(e *Engine, o cluster.BucketOptions) (cluster.BucketOptions, error) {
				e.service.mu.Lock()
				defer e.service.mu.Unlock()
				if b := e.service.buckets[o.Name]; b != nil {
					return b.options, nil
				}
				return o, nil
			}
		}, "want a SettingsError"},
		{"create overwrites", "of many creates one wins", inBucket(func(b *brokenBucket) {
			b.create = func(ctx context.Context, key string, value []byte, _ time.Duration) (uint64, error) {
				return b.Put(ctx, key, value)
			}
		}), "16 of 16 creates have the key"},
		{"update overwrites", "of many updates one wins", inBucket(func(b *brokenBucket) {
			b.update = func(ctx context.Context, key string, value []byte, _ uint64) (uint64, error) {
				return b.Put(ctx, key, value)
			}
		}), "16 of 16 updates of revision 1 have won"},
		{"update creates", "other revisions conflict", inBucket(func(b *brokenBucket) {
			b.update = func(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
				if revision == 0 {
					return b.Bucket.Create(ctx, key, value, 0)
				}
				return b.Bucket.Update(ctx, key, value, revision)
			}
		}), "with revision 0 got <nil>"},
		{"delete ignores the revision", "other revisions conflict", inBucket(func(b *brokenBucket) {
			b.remove = func(ctx context.Context, key string, _ uint64) error {
				entry, err := b.Get(ctx, key)
				if err != nil {
					return cluster.ErrConflict
				}
				return b.Bucket.Delete(ctx, key, entry.Revision)
			}
		}), "delete of a value with revision 0 got <nil>"},
		{"a key is taken for ever", "a deleted key is free", inBucket(func(b *brokenBucket) {
			b.remove = func(ctx context.Context, key string, revision uint64) error {
				_, err := b.Update(ctx, key, nil, revision)
				return err
			}
		}), "the key has a value"},
		{"revisions begin anew", model, inBucket(func(b *brokenBucket) {
			b.create = func(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
				revision, err := b.Bucket.Create(ctx, key, value, ttl)
				return min(revision, 1), err
			}
		}), " came 1"},
		{"update accepts a former revision", model, inBucket(func(b *brokenBucket) {
			b.update = func(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
				entry, err := b.Get(ctx, key)
				if err != nil || revision == 0 {
					return 0, cluster.ErrConflict
				}
				return b.Bucket.Update(ctx, key, value, entry.Revision)
			}
		}), "got <nil>, want cluster: the key has another value"},
		{"reads show what never was", model, inBucket(func(b *brokenBucket) {
			b.get = func(ctx context.Context, key string) (cluster.Entry, error) {
				entry, err := b.Bucket.Get(ctx, key)
				entry.Value = append(entry.Value, '!')
				return entry, err
			}
		}), "want one of"},
		{"the caller's slice is kept", "values are copied", inBucket(func(b *brokenBucket) {
			b.create = func(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
				mu.Lock()
				defer mu.Unlock()
				kept[key] = value
				return b.Bucket.Create(ctx, key, value, ttl)
			}
			b.get = func(ctx context.Context, key string) (cluster.Entry, error) {
				mu.Lock()
				defer mu.Unlock()
				entry, err := b.Bucket.Get(ctx, key)
				entry.Value = kept[key]
				return entry, err
			}
		}), "still not: long has the value"},
		{"a bucket is never full", "a full bucket refuses values and accepts deletions", func(e *broken) {
			e.open = func(_ *Engine, o cluster.BucketOptions) (cluster.BucketOptions, error) { o.MaxBytes = 0; return o, nil }
		}, "values of 1000 bytes"},
		{"nothing is deleted while a bucket is full", "a full bucket refuses values and accepts deletions", inBucket(func(b *brokenBucket) {
			b.remove = func(context.Context, string, uint64) error { return cluster.ErrFull }
		}), "no room for the value"},
		{"a prefix matches half a part", "keys are listed by their prefix", inBucket(func(b *brokenBucket) {
			b.keys = func(ctx context.Context, prefix string) iter.Seq2[string, error] {
				return func(yield func(string, error) bool) {
					for key, err := range b.Bucket.Keys(ctx, "") {
						if strings.HasPrefix(key, strings.TrimSuffix(prefix, ".")) && !yield(key, err) {
							return
						}
					}
				}
			}
		}), `still not: the keys with prefix`},
		{"a watch is never current", "a watch yields what there is, and then changes", inBucket(func(b *brokenBucket) {
			b.watch = func(entry cluster.Entry) bool { return !entry.Current }
		}), "a watch of an empty bucket is current"},
		{"a watch does not yield deletions", "a watch yields what there is, and then changes", inBucket(func(b *brokenBucket) {
			b.watch = func(entry cluster.Entry) bool { return !entry.Deleted }
		}), "a watch has yielded map[k.2:own]"},
		{"a watch does not yield what has gone meanwhile", "a watch survives an interruption", inBucket(func(b *brokenBucket) {
			b.watch = func(entry cluster.Entry) bool { return !entry.Deleted || entry.Revision > 0 }
		}), "a watch has yielded map["},
		{"a watch is current once", "a watch survives an interruption", inBucket(func(b *brokenBucket) {
			var once sync.Map
			b.watch = func(entry cluster.Entry) bool {
				_, was := once.LoadOrStore(entry.Current, true)
				return !entry.Current || !was
			}
		}), "a watch is current again"},
		{"a value does not expire", "with time/a value expires, and an update renews it", func(e *broken) {
			e.open = func(_ *Engine, o cluster.BucketOptions) (cluster.BucketOptions, error) { o.TTL = 0; return o, nil }
		}, "has expired"},
		{"an update does not renew a value", "with time/a value expires, and an update renews it", inBucket(func(b *brokenBucket) {
			b.update = func(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
				revision, err := b.Bucket.Update(ctx, key, value, revision)
				if err == nil {
					b.expires(key, func(at time.Time) time.Time { return at.Add(-500 * time.Millisecond) })
				}
				return revision, err
			}
		}), "renewed expired after"},
		{"an update keeps the TTL of a key", "with time/a key has a TTL of its own until it is updated", inBucket(func(b *brokenBucket) {
			b.update = func(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
				revision, err := b.Bucket.Update(ctx, key, value, revision)
				b.expires(key, func(time.Time) time.Time { return time.Now().Add(time.Second) })
				return revision, err
			}
		}), "a watch has yielded map[for.ever:for.ever updated:updated]"},
		{"a TTL is not rounded up", "with time/a key has a TTL of its own until it is updated", inBucket(func(b *brokenBucket) {
			b.create = func(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
				revision, err := b.Bucket.Create(ctx, key, value, ttl)
				if ttl == 1 {
					b.expires(key, func(time.Time) time.Time { return time.Now().Add(100 * time.Millisecond) })
				}
				return revision, err
			}
		}), "a TTL of a second took"},
		{"the TTL of a key is stronger", "with time/the TTL of the bucket limits that of a key", inBucket(func(b *brokenBucket) {
			b.create = func(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
				revision, err := b.Bucket.Create(ctx, key, value, ttl)
				b.expires(key, func(time.Time) time.Time { return time.Now().Add(ttl) })
				return revision, err
			}
		}), " has expired"},
		{"a lost bucket stays lost", "an engine that has lost everything begins anew", inBucket(func(b *brokenBucket) {
			b.update = func(context.Context, string, []byte, uint64) (uint64, error) { return 0, cluster.ErrUnavailable }
		}), "a bucket that was lost is there again"},
	}
}

func brokenMessages() []breach {
	subscribe := func(change func(f func(cluster.Message)) func(cluster.Message)) func(*broken) {
		return func(e *broken) {
			e.subscribe = func(e *Engine, subject string, f func(cluster.Message)) func() {
				stop, err := e.Subscribe(context.Background(), subject, change(f))
				if err != nil {
					panic(err)
				}
				return stop
			}
		}
	}
	withoutMissed := subscribe(func(f func(cluster.Message)) func(cluster.Message) {
		return func(m cluster.Message) {
			if !m.Missed {
				f(m)
			}
		}
	})
	return []breach{
		{"invalid subjects are accepted", "what is not allowed is refused before it is sent", func(e *broken) {
			e.publish = func(*Engine, string, []byte) error { return nil }
		}, "publish to a wildcard got <nil>"},
		{"messages are swapped", "messages come in the order of each publisher", subscribe(func(f func(cluster.Message)) func(cluster.Message) {
			var held *cluster.Message
			return func(m cluster.Message) {
				switch {
				case strings.HasSuffix(string(m.Body), ":7"):
					held = &m
				case held != nil:
					f(m)
					f(*held)
					held = nil
				default:
					f(m)
				}
			}
		}), "came in place of 7"},
		{"messages are delivered at once", "messages are delivered one at a time, and a slow subscriber learns that it missed some", subscribe(func(f func(cluster.Message)) func(cluster.Message) {
			return func(m cluster.Message) {
				var group sync.WaitGroup
				defer group.Wait()
				group.Go(func() { f(m) })
				group.Go(func() { f(m) })
			}
		}), "two messages were delivered at once"},
		{"an engine gets its own messages", "an engine does not get its own messages", func(e *broken) {
			e.publish = func(e *Engine, subject string, body []byte) error {
				e.service.mu.Lock()
				defer e.service.mu.Unlock()
				for _, sub := range e.subscriptions {
					sub.push(body)
				}
				for _, other := range e.service.engines {
					if other != e {
						for _, sub := range other.subscriptions {
							sub.push(body)
						}
					}
				}
				return nil
			}
		}, "got the message that it has published"},
		{"a slow subscriber does not learn it", "messages are delivered one at a time, and a slow subscriber learns that it missed some", withoutMissed, "a slow subscriber has missed something"},
		{"an interruption is not reported", "a subscription survives an interruption, and reports it", withoutMissed, "an interruption was reported"},
		{"stop does not wait", "nothing is delivered after stop", func(e *broken) {
			e.subscribe = func(e *Engine, subject string, f func(cluster.Message)) func() {
				stop, err := e.Subscribe(context.Background(), subject, f)
				if err != nil {
					panic(err)
				}
				return func() { go stop() }
			}
		}, "stop returned while a message was being delivered"},
		{"the last response counts", "a request gets the first response", func(e *broken) {
			e.request = func(ctx context.Context, e *Engine, subject string, body []byte) ([]byte, error) {
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				err := cluster.ErrNoResponder
				var last []byte
				for last, err = range e.Collect(ctx, subject, body) {
					continue
				}
				return last[:len(last)/2], err
			}
		}, "a request was answered with"},
		{"an engine asks itself", "a request without a responder fails at once", func(e *broken) {
			e.request = func(ctx context.Context, e *Engine, subject string, body []byte) ([]byte, error) {
				if len(e.answers) > 0 {
					return body, nil
				}
				return e.Request(ctx, subject, body)
			}
		}, "a request to its own answers got <nil>"},
		{"nobody answers, and it takes all the time", "a request without a responder fails at once", func(e *broken) {
			e.request = func(ctx context.Context, e *Engine, subject string, body []byte) ([]byte, error) {
				response, err := e.Request(ctx, subject, body)
				if errors.Is(err, cluster.ErrNoResponder) {
					<-ctx.Done()
				}
				return response, err
			}
		}, "the engine does not answer, want cluster: nobody answers"},
		{"a silent responder counts as one", "a silent responder costs the time of the context", func(e *broken) {
			e.request = func(ctx context.Context, e *Engine, subject string, body []byte) ([]byte, error) {
				response, err := e.Request(ctx, subject, body)
				if errors.Is(err, context.DeadlineExceeded) {
					err = nil
				}
				return response, err
			}
		}, "a request without a response got <nil>"},
		{"one response is collected", "collect yields every response", func(e *broken) {
			e.collect = func(ctx context.Context, e *Engine, subject string, body []byte) iter.Seq2[[]byte, error] {
				return func(yield func([]byte, error) bool) {
					for response, err := range e.Collect(ctx, subject, body) {
						yield(response, err)
						return
					}
				}
			}
		}, "the engine does not answer"},
		{"one request is answered at a time", "requests are answered 64 at a time, and 1,024 wait", func(e *broken) {
			var mu sync.Mutex
			e.answer = func(f func(context.Context, []byte) []byte) func(context.Context, []byte) []byte {
				return func(ctx context.Context, body []byte) []byte {
					mu.Lock()
					defer mu.Unlock()
					return f(ctx, body)
				}
			}
		}, "the engine does not answer"},
		{"answers are not told to stop", "stop ends answers", func(e *broken) {
			e.answer = func(f func(context.Context, []byte) []byte) func(context.Context, []byte) []byte {
				return func(ctx context.Context, body []byte) []byte {
					ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
					defer cancel()
					return f(ctx, body)
				}
			}
		}, "the engine does not answer"},
		{"a request is a message, too", "messages and requests are apart", func(e *broken) {
			e.request = func(ctx context.Context, e *Engine, subject string, body []byte) ([]byte, error) {
				if err := e.Publish(subject, body); err != nil {
					return nil, err
				}
				response, err := e.Request(ctx, subject, body)
				if errors.Is(err, cluster.ErrNoResponder) {
					err = cluster.ErrUnavailable
				}
				return response, err
			}
		}, "a request to who only subscribed got"},
		{"nothing is counted", "messages are counted", func(e *broken) {
			e.messages = func() (uint64, uint64) { return 0, 0 }
		}, "create: the messages rose from"},
		{"an engine always says that it is connected", "an engine that is cut off is unavailable, and comes back", func(e *broken) {
			e.connected = func() (bool, <-chan struct{}) { return true, nil }
		}, "does not notice that it is cut off"},
		{"a context that has ended sends something", "a context that has ended sends nothing", inBucket(func(b *brokenBucket) {
			b.create = func(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
				return b.Bucket.Create(context.WithoutCancel(ctx), key, value, ttl)
			}
		}), "Create got"},
		{"close does nothing", "a closed engine is unavailable", func(e *broken) {
			e.close = func(*Engine) error { return nil }
		}, "a closed engine says that it is connected"},
	}
}
