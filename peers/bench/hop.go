package bench

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
)

// hopCalls measures calls through something that stands between client and server, and with nothing between.
func hopCalls(ctx context.Context, m *measurement) error {
	open := (*measurement).overHTTP
	if m.http == nil && m.program == nil {
		open = (*measurement).overStdio
	}
	if err := echoCalls(open, 1, 64)(ctx, m); err != nil {
		return err
	}
	s, err := open(m, ctx)
	if err != nil {
		return err
	}
	return m.calls(ctx, payload(largeText), 1, s.echo(strings.Repeat("0123456789abcdef", largeText/16)))
}

const (
	tenServers  = "ten servers"
	wholeList   = "list"
	inThis      = "in this process"
	undisturbed = "undisturbed"
	flooded     = "beside a client that floods"
	halfFlooded = "beside a client with half as many callers"
)

// gatewayWork measures what a gateway does beyond one call of one client of one server. What has one client has only the rate of many servers.
func gatewayWork(ctx context.Context, m *measurement) error {
	if m.handler == nil {
		return m.manyServers(ctx)
	}
	for _, measure := range []func(*measurement, context.Context) error{
		(*measurement).manyServers, (*measurement).longList, (*measurement).besideFlood, (*measurement).besideServer, (*measurement).idleClients,
	} {
		if err := measure(m, ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *measurement) manyServers(ctx context.Context) error {
	_, s, err := m.childOverHTTP(ctx, hosting{servers: 10})
	if err != nil {
		return err
	}
	return m.calls(ctx, tenServers, 64, s.echo(echoText))
}

func (m *measurement) longList(ctx context.Context) error {
	_, s, err := m.childOverHTTP(ctx, hosting{servers: pick(m, 20, 5), tools: listedTools})
	if err != nil {
		return err
	}
	return m.calls(ctx, wholeList, 1, whole(listedTools, s.list))
}

// besideFlood has one client call alone, and then while another has 64 callers, and 32. If it waits for the calls before its own, and nothing
// else, half as many make it wait half as long.
func (m *measurement) besideFlood(ctx context.Context) error {
	url, s, err := m.childOverHTTP(ctx, hosting{servers: 1})
	if err != nil {
		return err
	}
	echo := s.echo(echoText)
	if err := m.calls(ctx, undisturbed, 1, echo); err != nil {
		return err
	}
	other, err := m.kept(m.http(ctx, m.revision, url))
	if err != nil {
		return err
	}
	for _, of := range []struct {
		point   string
		callers int
	}{{flooded, 64}, {halfFlooded, 32}} {
		stop := flood(ctx, of.callers, other.echo(echoText))
		err = errors.Join(err, m.calls(ctx, of.point, 1, echo))
		stop()
	}
	return err
}

// flood has callers call until it is stopped.
func flood(ctx context.Context, callers int, echo call) (stop func()) {
	flooding, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for echo(flooding) == nil {
			}
		})
	}
	return func() { cancel(); running.Wait() }
}

// besideServer has client and server in this process, so that their allocations are counted together.
func (m *measurement) besideServer(ctx context.Context) error {
	site, err := newSite(m.handler(m.revision))
	if err != nil {
		return err
	}
	defer site.close()
	s, err := m.http(ctx, m.revision, "http://"+site.address+"/mcp")
	if err != nil {
		return err
	}
	defer s.close()
	return m.calls(ctx, inThis, 1, s.echo(echoText))
}

// idleClients weighs sessions of clients that say nothing.
func (m *measurement) idleClients(context.Context) error {
	handler := m.handler(m.revision)
	site, err := newSite(handler)
	if err != nil {
		return err
	}
	defer site.close()
	if _, err := site.openSession(); err != nil {
		return err
	}
	many, empty := pick(m, 1000, 200), m.weigh()
	for range many {
		if _, err := site.openSession(); err != nil {
			return err
		}
	}
	m.addHeld(withoutStream, empty, many)
	runtime.KeepAlive(handler)
	return nil
}
