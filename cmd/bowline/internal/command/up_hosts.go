package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/doors"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/relay"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// insideVariable lists the gateways in which a process runs, by their sockets for hosts. Who names the file of a host as that of its gateway has a
// gateway that starts itself.
const insideVariable = "BOWLINE_INSIDE"

// markInside lets the servers of this gateway know that they are inside of it.
func (u *upping) markInside() error {
	socket, _, err := doors.HostsOf(u.path)
	if err != nil {
		return nil // then no host finds it either
	}
	return os.Setenv(insideVariable, strings.Join(append(filepath.SplitList(os.Getenv(insideVariable)), socket), string(filepath.ListSeparator)))
}

// refuseInside fails if this process is a server of the gateway that it would reach.
func (u *upping) refuseInside(socket string) error {
	if slices.Contains(filepath.SplitList(os.Getenv(insideVariable)), socket) {
		return fmt.Errorf("a server of %s is this gateway itself: remove its entry, or give the host another file", u.path)
	}
	return nil
}

// listenForHosts makes the socket for hosts, unless another gateway has it: then a gateway in the background is not needed, and another one serves
// its clients over HTTP.
func (u *upping) listenForHosts(cmd *cobra.Command) (*doors.Hosts, error) {
	hosts, err := doors.ListenForHosts(u.path, u.socket)
	taken := (*admin.SocketError)(nil)
	isTaken := errors.As(err, &taken) && taken.Running
	switch {
	case u.background && isTaken:
		return nil, u.sayReady(cmd)
	case u.background:
		return hosts, err
	case isTaken:
		hosts, err = u.takeOver(cmd)
	}
	if err != nil {
		cmd.PrintErrln(render.Message("bowline up --stdio does not find this gateway: " + err.Error()))
	}
	return hosts, nil
}

// takeOver ends the gateway of the file that hosts have started in the background, and serves them in its place: with both, each server would run
// twice. A gateway that a person has started is left alone. Hosts keep their sessions.
func (u *upping) takeOver(cmd *cobra.Command) (*doors.Hosts, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*process.FinishGrace) // it lets its calls finish
	defer cancel()
	hosts, err := doors.TakeOver(ctx, u.path, u.socket)
	if err == nil {
		cmd.PrintErrln("bowline: has taken over from the gateway in the background")
	}
	return hosts, err
}

// standInBackground makes what outlives the process that has started this one: its log has a bound, and if that process ends before this one is
// ready, the pipe to it is broken, which must not kill the gateway of others.
func standInBackground(cmd *cobra.Command) {
	cmd.SetErr(&relay.BoundedLog{File: os.Stderr})
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// sayReady tells the process that has started this one that a gateway can be reached.
func (u *upping) sayReady(cmd *cobra.Command) error {
	_, err := fmt.Fprintln(cmd.OutOrStdout(), "ready")
	return err
}

// serveHosts serves hosts until ctx ends. Their links end with the server.
func (u *upping) serveHosts(ctx context.Context, cmd *cobra.Command, g *gateway.Gateway, hosts *doors.Hosts, end func()) {
	linger := u.linger
	if !u.background {
		linger = 0 // whoever has started it ends it
	}
	running := context.WithoutCancel(ctx)
	hosts.Serve(ctx, func(link transport.Link) { _ = g.Server().ServeLink(running, link) }, linger, end) // how it ended is the host's affair
	if u.background {
		_ = u.sayReady(cmd) // who waited for it may have left
	}
}

// checkRelay refuses flags that make no sense with --stdio.
func (u *upping) checkRelay(cmd *cobra.Command) error {
	for _, flag := range []string{"http", "insecure", "auth", "tls-cert", "tls-key"} {
		if cmd.Flags().Changed(flag) { // who gives it expects others to be served, too
			return process.Usage(fmt.Errorf("--%s has no effect with --stdio: that gateway opens no port for clients", flag))
		}
	}
	if u.linger < time.Second {
		return process.Usage(fmt.Errorf("--linger %v is below 1s: the gateway would end before its first host has reached it", u.linger))
	}
	return nil
}

// relay stands between a host and the gateway of the file. The file may have mistakes now and none later, so it is read at each attempt.
func (u *upping) relay(cmd *cobra.Command) error {
	if err := u.checkRelay(cmd); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	host, err := new(stdio.Server).Open(cmd.Context())
	if err != nil {
		return err
	}
	r := &relay.Relay{
		Say: sayTo(cmd),
		Reach: func(ctx context.Context) (transport.Link, error) {
			socket, log, err := doors.HostsOf(u.path)
			if err := errors.Join(err, u.refuseInside(socket)); err != nil {
				return nil, err
			}
			s := &relay.Starter{Socket: socket, Log: log, Command: append([]string{program}, u.inBackground(cmd)...)}
			return s.Reach(ctx)
		},
	}
	if err := r.Run(cmd.Context(), host); err != nil && cmd.Context().Err() == nil {
		return err
	}
	return nil
}

// inBackground are the arguments of a gateway that serves hosts: what was given to this process, but --stdio.
func (u *upping) inBackground(cmd *cobra.Command) []string {
	args := []string{"up", "--background"}
	cmd.Flags().Visit(func(given *pflag.Flag) {
		if given.Name != "stdio" {
			args = append(args, "--"+given.Name+"="+given.Value.String())
		}
	})
	return append(args, "--", u.path)
}
