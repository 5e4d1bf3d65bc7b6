package gosdk_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// build builds an example of the SDK after one line of it was changed, with what the new line imports.
func build(t *testing.T, example, before, after, imported string) (program string) {
	t.Helper()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/modelcontextprotocol/go-sdk").Output()
	if err != nil {
		t.Fatal(err)
	}
	original, folder := filepath.Join(strings.TrimSpace(string(module)), "examples", filepath.FromSlash(example)), filepath.Join(t.TempDir(), "example")
	if err := os.CopyFS(folder, os.DirFS(original)); err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(original, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	for old, new := range map[string]string{
		before: after,
		`"github.com/modelcontextprotocol/go-sdk/mcp"`: `"github.com/bowline-mcp/bowline/gateway/gosdk"; "github.com/bowline-mcp/bowline/transport/` + imported + `"; "github.com/modelcontextprotocol/go-sdk/mcp"`,
	} {
		if strings.Count(text, old) != 1 {
			t.Fatalf("%s has no line with %s, or several", example, old)
		}
		text = strings.Replace(text, old, new, 1)
	}
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(t.TempDir(), "example.exe")
	if out, err := exec.CommandContext(t.Context(), "go", append([]string{"build", "-ldflags=-s -w", "-o", program}, files...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", example, err, out)
	}
	return program
}

// A mortal is the server of the SDK's example http. Its process is killed when it gets the second call of a tool, and started again.
type mortal struct {
	t       *testing.T
	program string
	enough  chan struct{} // closed when the second process has got ten calls

	mu      sync.Mutex
	calls   int
	process *exec.Cmd
	proxy   *httputil.ReverseProxy // to the process
}

// serve starts one, and returns its address, which stays.
func serve(t *testing.T, program string) (*mortal, *url.URL) {
	t.Helper()
	m := &mortal{t: t, program: program, enough: make(chan struct{})}
	m.start()
	front := httptest.NewServer(m)
	t.Cleanup(func() {
		front.Close()
		m.kill()
	})
	address, err := url.Parse(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	return m, address
}

// start starts a process at a port that was free, and waits until it listens.
func (m *mortal) start() {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Error(err)
		return
	}
	address := free.Addr().(*net.TCPAddr)
	free.Close()
	m.process = exec.Command(m.program, "-host", address.IP.String(), "-port", strconv.Itoa(address.Port), "server")
	m.process.Stderr = m.t.Output()
	if err := m.process.Start(); err != nil {
		m.t.Error(err)
		return
	}
	m.proxy = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address.String()})
	m.proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // the client says what it misses
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for began := time.Now(); time.Since(began) < time.Minute; <-again.C {
		conn, err := net.DialTimeout("tcp", address.String(), time.Second)
		if err == nil {
			conn.Close()
			return
		}
	}
	m.t.Error("the server does not listen")
}

func (m *mortal) kill() {
	if err := m.process.Process.Kill(); err != nil {
		m.t.Error(err)
	}
	_ = m.process.Wait() // it says that it was killed
}

// ServeHTTP implements http.Handler.
func (m *mortal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	m.through(bytes.Contains(body, []byte(`"tools/call"`))).ServeHTTP(w, r)
}

// through returns what answers a request. The call during which the process is killed has no answer.
func (m *mortal) through(isCall bool) http.Handler {
	m.mu.Lock()
	defer m.mu.Unlock()
	if isCall {
		m.calls++
	}
	switch {
	case isCall && m.calls == 2:
		m.kill()
		m.start()
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	case isCall && m.calls == 12:
		close(m.enough)
	}
	return m.proxy
}

// says runs an example until it ends, or is interrupted after enough is closed. It returns what the example has not said of all, or how it has failed.
func says(t *testing.T, example *exec.Cmd, enough <-chan struct{}, all ...string) (problem string) {
	t.Helper()
	var out bytes.Buffer
	example.Stdout, example.Stderr = &out, &out
	if err := example.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- example.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-enough:
		_ = example.Process.Signal(os.Interrupt) // or it has ended, which Wait says
		err = <-ended
	}
	for _, want := range all {
		if err != nil || !strings.Contains(out.String(), want) {
			return fmt.Sprintf("it has not said %q: %v\n%s", want, err, out.String())
		}
	}
	return ""
}

// Examples of the SDK go on while their server is killed, after one line of each was changed. Each has three attempts, because a gateway waits for its server for
// five seconds with a list and for ten with a call, and a machine that does much else may take longer.
//
// Guarantees: G-0107.1
func TestExamplesOfTheSDK(t *testing.T) {
	overHTTP := func(example, address string) (program string) {
		return build(t, example, "&mcp.StreamableClientTransport{Endpoint: "+address+"}", "&gosdk.Supervised{Transport: &streamable.Client{URL: "+address+"}}", "streamable")
	}
	times := overHTTP("http", "url") // it is a client and a server
	load := overHTTP("client/loadtest", "args[0]")
	features := build(t, "client/listfeatures", "&mcp.CommandTransport{Command: cmd}", "&gosdk.Supervised{Transport: &stdio.Command{Cmd: cmd}}", "stdio")
	for name, attempt := range map[string]func(context.Context) (problem string){
		"http": func(ctx context.Context) string {
			_, address := serve(t, times)
			return says(t, exec.CommandContext(ctx, times, "-host", address.Hostname(), "-port", address.Port(), "client"), nil,
				"time in New York City is", "may have been executed", "time in Boston is", "completed successfully")
		},
		"client/loadtest": func(ctx context.Context) string {
			m, address := serve(t, times)
			return says(t, exec.CommandContext(ctx, load, "-tool=cityTime", `-args={"city": "sf"}`, "-workers=1", "-timeout=1m", "-duration=5m", "-v", address.String()), m.enough,
				"may have been executed", "time in San Francisco is", "failure: 0 (")
		},
		"client/listfeatures": func(ctx context.Context) string {
			server := command(t)
			example := exec.CommandContext(ctx, features, server.Path)
			example.Env = append(server.Env, mortalVariable+"="+filepath.Join(t.TempDir(), "killed"))
			return says(t, example, nil, "ended by signal: killed", "\task\n", "\tpid\n")
		},
	} {
		problem := ""
		for attempts := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			problem = attempt(ctx)
			cancel()
			if problem == "" {
				break
			}
			t.Logf("%s, attempt %d: %s", name, attempts+1, problem)
		}
		if problem != "" {
			t.Errorf("%s fails", name)
		}
	}
}
