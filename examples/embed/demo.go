package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A demo calls the service, and kills its MCP server.
type demo struct {
	*service
	out     io.Writer
	http    http.Client
	callers sync.WaitGroup
	outage  outage
	began   lines        // gets one line for each call that the server has begun
	pid     atomic.Int64 // the process id of the latest server
	count   atomic.Int64 // how many servers were started so far
}

// play runs the demo and closes the service at the end, even if ctx ends first.
func play(ctx context.Context, out io.Writer) (err error) {
	d := &demo{out: out, began: make(lines, 16), http: http.Client{Transport: new(http.Transport)}}
	defer d.http.CloseIdleConnections()
	command, err := toolsCommand()
	if err != nil {
		return err
	}
	command.Stderr = d.began
	command.Started = func(pid int) { d.pid.Store(int64(pid)); d.count.Add(1) }
	d.outage.Transport = command
	if d.service, err = start(ctx, &d.outage, "127.0.0.1:0", slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	defer d.callers.Wait()
	if err := d.kill(ctx); err != nil {
		return errors.Join(err, d.close(ctx))
	}
	return d.leave(ctx)
}

// kill shows the answers of the service when its MCP server dies during calls, while the
// server is away, and when it is back.
func (d *demo) kill(ctx context.Context) error {
	fmt.Fprintln(d.out, "a caller is answered:")
	d.tell(d.get(ctx, "text=bowline"))
	if err := d.began.await(ctx, 1); err != nil {
		return err
	}

	fmt.Fprintln(d.out, "the server is killed while three callers wait:")
	three := d.begin(ctx, 3, "text=knot&seconds=60")
	if err := d.began.await(ctx, 3); err != nil {
		return err
	}
	d.outage.lasts.Store(true)
	if err := kill(int(d.pid.Load())); err != nil {
		return err
	}
	for range 3 {
		d.tell(<-three)
	}

	fmt.Fprintln(d.out, "a caller comes while it is away:")
	d.tell(d.get(ctx, "text=hitch"))

	d.outage.lasts.Store(false)
	if err := d.session.Conn().AwaitReady(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "the session is ready again by itself, with process %d:\n", d.count.Load())
	d.tell(d.get(ctx, "text=bend"))
	return d.began.await(ctx, 1)
}

// leave closes the service during a call, which is answered first.
func (d *demo) leave(ctx context.Context) error {
	one := d.begin(ctx, 1, "text=sheet&seconds=1")
	err := d.began.await(ctx, 1)
	err = errors.Join(err, d.close(ctx))
	fmt.Fprintln(d.out, "the service is closed while a caller waits:")
	d.tell(<-one)
	fmt.Fprintln(d.out, "closed:", d.tree.Report().State)
	return err
}

func (d *demo) close(ctx context.Context) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return d.tree.Close(closing)
}

// begin makes several requests at the same time, and returns a channel for their answers.
func (d *demo) begin(ctx context.Context, callers int, query string) <-chan string {
	answers := make(chan string, callers)
	for range callers {
		d.callers.Go(func() { answers <- d.get(ctx, query) })
	}
	return answers
}

// get makes a request and returns its answer in one line.
func (d *demo) get(ctx context.Context, query string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.web.url()+"/reverse?"+query, nil)
	if err != nil {
		return err.Error()
	}
	response, err := d.http.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	told := response.Status
	if response.Header.Get("Retry-After") != "" {
		told += ", with Retry-After"
	}
	return told + ": " + strings.TrimSpace(string(body))
}

func (d *demo) tell(answer string) { fmt.Fprintln(d.out, "  "+answer) }

// kill kills a process.
func kill(pid int) error {
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return process.Kill()
}

// An outage is a transport that opens no links while lasts is set.
type outage struct {
	transport.Transport
	lasts atomic.Bool
}

func (o *outage) Open(ctx context.Context) (transport.Link, error) {
	if o.lasts.Load() {
		return nil, errors.New("the machine is down")
	}
	return o.Transport.Open(ctx)
}

// lines is a writer that sends a value for each line written to it.
type lines chan struct{}

func (l lines) Write(p []byte) (int, error) {
	for range bytes.Count(p, []byte("\n")) {
		l <- struct{}{}
	}
	return len(p), nil
}

func (l lines) await(ctx context.Context, count int) error {
	for range count {
		select {
		case <-l:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
