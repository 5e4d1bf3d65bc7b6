package doors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// hostsEnd follows the path of the admin socket.
const hostsEnd = ".mcp"

// mostHosts is how many hosts are served at a time. Others are refused.
const mostHosts = 256

// Hosts are the programs on this machine that reach a gateway at a socket which only the user can open. Each connection is one of them, in the
// framing of standard input and output.
type Hosts struct {
	listener net.Listener
	places   chan struct{}
	running  sync.WaitGroup

	mu     sync.Mutex
	count  int // of those that are connected
	met    int // of all
	linger time.Duration
	idle   *time.Timer // since the last one has left; nil: the gateway does not end by that
}

// chosenSocket returns the socket of a gateway: the one that was chosen, or else the one that is named by its file.
func chosenSocket(file, socket string) (string, error) {
	if socket != "" {
		return socket, nil
	}
	return socketOf(file)
}

// ListenForHosts makes the socket for hosts of the gateway of a file. Serve serves them; until then they wait. The error is a
// *admin.SocketError if another gateway has it.
func ListenForHosts(file, socket string) (*Hosts, error) {
	path, err := chosenSocket(file, socket)
	if err != nil {
		return nil, err
	}
	listener, err := admin.Listen(path + hostsEnd)
	if err != nil {
		return nil, err
	}
	return &Hosts{listener: listener, places: make(chan struct{}, mostHosts)}, nil
}

// Serve serves hosts until ctx ends, and does not wait. The function serve gets the link of a host, and returns when that has ended. If linger is
// not 0, idle is called when no host has been connected for that long; it must not block.
func (h *Hosts) Serve(ctx context.Context, serve func(transport.Link), linger time.Duration, idle func()) {
	if h.linger = linger; linger > 0 {
		h.idle = time.AfterFunc(linger, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.count == 0 {
				idle()
			}
		})
	}
	stop := context.AfterFunc(ctx, func() { _ = h.listener.Close() }) // accept returns
	h.running.Go(func() {
		defer stop()
		h.accept(ctx, serve)
	})
}

// accept serves each host on a goroutine of its own, until the listener is closed.
func (h *Hosts) accept(ctx context.Context, serve func(transport.Link)) {
	for {
		c, err := h.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for want of descriptors, which a host that leaves gives back
			_ = wait.Sleep(ctx, lookAgain)
			continue
		}
		h.admit(ctx, c, serve)
	}
}

// admit serves a host if there is a place. One that is refused is told that the gateway has gone, and waits for none.
func (h *Hosts) admit(ctx context.Context, c net.Conn, serve func(transport.Link)) {
	select {
	case h.places <- struct{}{}:
		h.running.Go(func() {
			h.serve(ctx, c, serve)
			<-h.places
		})
	default:
		slog.Warn(fmt.Sprintf("bowline: %d hosts are served already: another one was refused", cap(h.places)))
		_ = c.Close()
	}
}

// lookAgain is the pause after a connection that could not be accepted.
const lookAgain = 100 * time.Millisecond

// hostSign begins the identity of a host, before its number.
const hostSign = "host "

// IsHost reports whether an identity is that of a host. All of them are the user of this machine, and each has a new number whenever it comes.
func IsHost(identity string) bool { return strings.HasPrefix(identity, hostSign) }

func (h *Hosts) serve(ctx context.Context, c net.Conn, serve func(transport.Link)) {
	name := fmt.Sprint(hostSign, h.enter(1))
	defer h.enter(-1)
	link, err := stdio.Pair(c, c).Open(context.WithoutCancel(ctx)) // it fails for want of nothing
	if err != nil {
		_ = c.Close()
		return
	}
	serve(&hostLink{link, &transport.Origin{Identity: name}})
}

// enter counts a host that has come, 1, or has left, -1. It returns how many have come in all.
func (h *Hosts) enter(n int) (met int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.met += max(n, 0)
	if h.count += n; h.count == 0 && h.idle != nil {
		h.idle.Reset(h.linger)
	}
	return h.met
}

// A hostLink says with each message which host has sent it. Without that a host without a session, as in 2026-07-28, would be taken for another one
// in each of its calls, and could not be asked while it has two.
type hostLink struct {
	transport.Link
	origin *transport.Origin
}

// Unwrap keeps the other interfaces of the link.
func (l *hostLink) Unwrap() transport.Link { return l.Link }

// Bind implements transport.Link.
func (l *hostLink) Bind(to transport.Receiver) { l.Link.Bind(&hostReceiver{to, l.origin}) }

type hostReceiver struct {
	transport.Receiver
	origin *transport.Origin
}

// Unwrap keeps the other interfaces of the receiver.
func (r *hostReceiver) Unwrap() transport.Receiver { return r.Receiver }

// Receive implements transport.Receiver.
func (r *hostReceiver) Receive(in transport.Inbound) {
	in.Origin = r.origin
	r.Receiver.Receive(in)
}

// Close waits until all hosts have left. They are those of a server that has been closed.
func (h *Hosts) Close() {
	_ = h.listener.Close() // once more does no harm
	if h.running.Wait(); h.idle != nil {
		h.idle.Stop()
	}
}

// lookTime is between two attempts to have a socket: a gateway that a host starts must not have it first.
const lookTime = 10 * time.Millisecond

// TakeOver ends the gateway of a file that was started for hosts, and returns the socket for hosts when it has ended. It fails if a person has
// started it.
func TakeOver(ctx context.Context, file, socket string) (*Hosts, error) {
	path, err := chosenSocket(file, socket)
	if err == nil {
		err = endInBackground(ctx, admin.Dial(path))
	}
	if err != nil {
		return nil, err
	}
	hosts, err := whenFree(ctx, func() (*Hosts, error) { return ListenForHosts(file, socket) })
	if err != nil {
		return nil, err
	}
	if err := awaitFree(ctx, path); err != nil {
		hosts.Close()
		return nil, err
	}
	return hosts, nil
}

// awaitFree waits until no gateway has a socket: one that ends has it until its calls have finished.
func awaitFree(ctx context.Context, path string) error {
	listener, err := whenFree(ctx, func() (net.Listener, error) { return admin.Listen(path) })
	if err != nil {
		return err
	}
	return listener.Close()
}

// whenFree listens until that does not fail because another gateway has the socket.
func whenFree[L any](ctx context.Context, listen func() (L, error)) (L, error) {
	for {
		l, err := listen()
		if taken := (*admin.SocketError)(nil); !errors.As(err, &taken) || !taken.Running {
			return l, err
		}
		if wait.Sleep(ctx, lookTime) != nil {
			return l, err
		}
	}
}

// errAttended means that a person has started a gateway, and ends it.
var errAttended = errors.New("another gateway serves the file: end that one, by bowline down or in its terminal")

// attendedTime is how long a gateway may take to say whether it is one: one that hangs must not keep the command that says why another one cannot start.
const attendedTime = 5 * time.Second

// Attended fails if a person has started a gateway of a file.
func Attended(ctx context.Context, file, socket string) error {
	path, err := chosenSocket(file, socket)
	if err != nil {
		return nil // then there is none
	}
	ctx, cancel := context.WithTimeout(ctx, attendedTime)
	defer cancel()
	if report, err := admin.Dial(path).Report(ctx); err != nil || report.Endpoint == "" {
		return nil
	}
	return errAttended
}

// endInBackground tells a gateway to end, unless clients reach it over HTTP: then a person has started it, and other programs may use it.
func endInBackground(ctx context.Context, client *admin.Client) error {
	report, err := client.Report(ctx)
	switch {
	case err != nil:
		return err
	case report.Endpoint != "":
		return errAttended
	}
	return client.End(ctx)
}

// HostsOf returns the socket for hosts of the gateway of a file, and the file for the log of one that is started in the background.
func HostsOf(file string) (socket, log string, err error) {
	path, err := socketIn(file)
	if err != nil {
		return "", "", err
	}
	dir, err := stateOf("log")
	if err != nil {
		return "", "", err
	}
	name, err := nameOf(file)
	return path + hostsEnd, filepath.Join(dir, name+".log"), err
}
