package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// natsCount is how many processes of nats-server form a cluster.
const natsCount = 3

// natsServers are processes of nats-server that form one cluster.
type natsServers struct {
	program   string
	folder    string
	addresses []string // for clients; then between servers, and of their reports
	running   [natsCount]*exec.Cmd
}

// startServers starts the servers, and waits until they work.
func startServers(ctx context.Context, program, folder string) (*natsServers, error) {
	addresses, err := freeAddresses(3 * natsCount)
	if err != nil {
		return nil, err
	}
	s := &natsServers{program: program, folder: folder, addresses: addresses}
	if err := s.startAll(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *natsServers) startAll(ctx context.Context) error {
	for n := range natsCount {
		if err := s.start(n); err != nil {
			return err
		}
	}
	return s.work(ctx)
}

// freeAddresses returns addresses of this machine that nobody uses. Their ports are below those
// that the system gives to connections, so that they stay free while their server is away.
func freeAddresses(n int) (all []string, err error) {
	for range 100 * n {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lowestPort+rand.IntN(ports)))
		if err != nil {
			continue // somebody uses it
		}
		defer l.Close()
		if all = append(all, l.Addr().String()); len(all) == n {
			return all, nil
		}
	}
	return nil, errors.New("no port of this machine is free")
}

const lowestPort, ports = 10_000, 22_000

func (s *natsServers) of(kind, n int) string { return s.addresses[kind*natsCount+n] }

func serverName(n int) string { return fmt.Sprintf("s%d", n) }

func (s *natsServers) store(n int) string { return filepath.Join(s.folder, serverName(n)) }

func (s *natsServers) start(n int) error {
	name := serverName(n)
	conf := filepath.Join(s.folder, name+".conf")
	routes := make([]string, natsCount)
	for other := range natsCount {
		routes[other] = fmt.Sprintf("%q", "nats://"+s.of(1, other))
	}
	text := fmt.Sprintf("server_name: %s\nlisten: %q\nhttp: %q\njetstream { store_dir: %q }\ncluster { name: c, listen: %q, no_advertise: true, routes: [%s] }\n",
		name, s.of(0, n), s.of(2, n), s.store(n), s.of(1, n), strings.Join(routes, ", "))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return err
	}
	s.running[n] = exec.Command(s.program, "-c", conf, "-l", filepath.Join(s.folder, name+".log"))
	return s.running[n].Start()
}

// kill kills a server, as kill -9 does.
func (s *natsServers) kill(n int) error {
	command := s.running[n]
	if command == nil {
		return nil
	}
	s.running[n] = nil
	err := command.Process.Kill()
	_ = command.Wait() // it says that the process was killed
	return err
}

func (s *natsServers) close() error {
	var errs []error
	for n := range natsCount {
		errs = append(errs, s.kill(n))
	}
	return errors.Join(errs...)
}

// work waits until each server has a leader and all that it should have.
func (s *natsServers) work(ctx context.Context) error {
	for n := range natsCount {
		for s.ask(ctx, n, "healthz", nil) != nil {
			if err := wait.Sleep(ctx, askEvery); err != nil {
				return fmt.Errorf("nats-server %d does not work: %w", n, err)
			}
		}
	}
	return nil
}

const (
	askEvery   = 50 * time.Millisecond
	askTimeout = 2 * time.Second
)

// leader returns which server leads a stream.
func (s *natsServers) leader(ctx context.Context, stream string) (int, error) {
	for {
		for n := range natsCount {
			var said struct {
				Accounts []struct {
					Streams []struct {
						Name    string `json:"name"`
						Cluster struct {
							Leader string `json:"leader"`
						} `json:"cluster"`
					} `json:"stream_detail"`
				} `json:"account_details"`
			}
			if s.ask(ctx, n, "jsz?accounts=true&streams=true", &said) != nil {
				continue
			}
			for _, account := range said.Accounts {
				for _, found := range account.Streams {
					if found.Name == stream && found.Cluster.Leader == serverName(n) {
						return n, nil
					}
				}
			}
		}
		if err := wait.Sleep(ctx, askEvery); err != nil {
			return 0, fmt.Errorf("stream %s has no leader: %w", stream, err)
		}
	}
}

// ask asks a server for a report.
func (s *natsServers) ask(ctx context.Context, n int, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.of(2, n)+"/"+path, nil)
	if err != nil {
		return err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", response.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}
