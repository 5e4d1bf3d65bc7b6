//go:build npm

package peers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

var oidcProvider = npmPackage{name: "oidc-provider", version: "9.13.3", short: "oidc-provider"}

// A foreignIssuer is a process of oidc-provider.
type foreignIssuer struct {
	url string

	mu    sync.Mutex
	lines []string // what it has done
}

// startNode starts a program of node, which ends when its input does. Its first line is where it serves, and the scanner has that.
func startNode(t *testing.T, command *exec.Cmd) (input io.Closer, lines *bufio.Scanner) {
	t.Helper()
	command.Stderr = t.Output()
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines = bufio.NewScanner(output)
	lines.Scan()
	return input, lines
}

// startForeignIssuer starts one for a protected server. Its tokens expire after the given number
// of seconds.
func startForeignIssuer(t *testing.T, protected string, life int) *foreignIssuer {
	t.Helper()
	if err := oidcProvider.install(); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("node", "oidc.mjs", oidcProvider.folder(), protected, fmt.Sprint(life))
	input, lines := startNode(t, command)
	f := &foreignIssuer{url: lines.Text()}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
			f.mu.Lock()
			f.lines = append(f.lines, lines.Text())
			f.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		input.Close()
		<-read
		if err := command.Wait(); err != nil {
			t.Errorf("oidc-provider: %v", err)
		}
		if t.Failed() {
			t.Logf("oidc-provider logged %q", f.lines)
		}
	})
	return f
}

// count returns how often the issuer has logged an event.
func (f *foreignIssuer) count(what string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range f.lines {
		if line == what {
			n++
		}
	}
	return n
}

var (
	formAction  = regexp.MustCompile(`<form(?:[^>]* action="([^"]*)")?`) // without one, it is sent to the page itself
	hiddenInput = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)
)

// signIn simulates a person with a browser, who submits every page of oidc-provider, and before that the one of a gateway, until there is
// none. It returns the last page, or where a client is that listens nowhere, and reads the address.
func signIn(ctx context.Context, who, address string) (string, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return "", err
	}
	pool := &http.Transport{}
	defer pool.CloseIdleConnections()
	browser := &http.Client{Jar: jar, Transport: pool, CheckRedirect: func(next *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(next.URL.String(), authtest.Redirect) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	for pages := 0; err == nil && pages < 10; pages++ {
		var response *http.Response
		if response, err = browser.Do(request); err != nil {
			return "", err
		}
		page, err := io.ReadAll(response.Body)
		response.Body.Close()
		if back, err := response.Location(); err == nil {
			return back.String(), nil
		}
		action := formAction.FindSubmatch(page)
		if err != nil || action == nil {
			return string(page), err
		}
		to, err := response.Request.URL.Parse(html.UnescapeString(string(action[1])))
		if err != nil {
			return "", err
		}
		form := url.Values{"login": {who}, "password": {"any"}}
		for _, input := range hiddenInput.FindAllSubmatch(page, -1) {
			form.Set(string(input[1]), html.UnescapeString(string(input[2])))
		}
		if request, err = http.NewRequestWithContext(ctx, http.MethodPost, to.String(), strings.NewReader(form.Encode())); err != nil {
			return "", err
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return "", fmt.Errorf("no end of pages: %w", err)
}

// A shell runs the command with its own configuration.
type shell struct {
	bowline, home string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{bowline: filepath.Join(t.TempDir(), "bowline.exe"), home: t.TempDir()}
	if err := build("..", s.bowline, "./cmd/bowline"); err != nil {
		t.Fatal(err)
	}
	return s
}

// command returns the command to run. It finds no browser.
func (s *shell) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, s.bowline, args...)
	command.Env = []string{"BOWLINE_KEYRING=off", "HOME=" + s.home, "XDG_CONFIG_HOME=" + s.home, "PATH=" + s.home}
	return command
}

// run runs the command to its end, and checks its status and that its output contains a text.
func (s *shell) run(t *testing.T, status int, want string, args ...string) {
	t.Helper()
	command := s.command(t.Context(), args...)
	out, err := command.CombinedOutput()
	if command.ProcessState == nil || command.ProcessState.ExitCode() != status || !bytes.Contains(out, []byte(want)) {
		t.Fatalf("bowline %q: %v, want status %d and %q: %s", args, err, status, want, out)
	}
}

// login runs a login, and opens the page that the command prints.
func (s *shell) login(t *testing.T, page *regexp.Regexp, args ...string) {
	t.Helper()
	command := s.command(t.Context(), append([]string{"login"}, args...)...)
	stderr, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := new(bytes.Buffer)
	command.Stdout = out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var all, last string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		all += lines.Text() + "\n"
		if address := page.FindStringSubmatch(lines.Text()); address != nil {
			if last, err = signIn(t.Context(), "ada", address[1]); err != nil {
				t.Error(err)
			}
		}
	}
	if err := command.Wait(); err != nil || !strings.Contains(out.String(), "logged in at") {
		t.Fatalf("bowline login: %v: %s%s\nthe browser shows %s", err, all, out, last)
	}
}

// serveProtected runs `bowline serve --issuer` until the test ends.
func (s *shell) serveProtected(t *testing.T, address, issuer string) {
	t.Helper()
	s.serve(t, "serve", "--http", address, "--issuer", issuer, "--scope", "read")
}

// serve runs a command that serves until the test ends. It returns when that begins.
func (s *shell) serve(t *testing.T, args ...string) {
	t.Helper()
	command := s.command(t.Context(), args...)
	stderr, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	for line := ""; !strings.Contains(line, "serving"); {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("bowline %s: %v: %s", args[0], err, line)
		}
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		io.Copy(t.Output(), lines)
		_ = command.Wait() // it was killed
	})
}

var (
	loginPage  = regexp.MustCompile(`open this page to log in, if your browser does not: (\S+)`)
	devicePage = regexp.MustCompile(`Open (\S+) and enter the code`)
)

// TestAForeignIssuer takes the command through a login, calls, refreshes and a logout, at an
// authorization server of another project, which also protects the command's own server.
func TestAForeignIssuer(t *testing.T) {
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + port
	protected := "http://" + address + "/mcp"
	as := startForeignIssuer(t, protected, 2)
	s := newShell(t)
	s.serveProtected(t, address, as.url)
	call := []string{"call", "echo", "message=hello", "--url", protected}
	s.run(t, 3, "bowline login", call...)
	s.login(t, loginPage, "--url", protected)
	s.run(t, 0, "issuer  "+as.url, "auth", "status")
	for as.count("granted refresh_token") < 2 { // each call is a process of its own
		s.run(t, 0, "hello", call...)
	}
	if n := as.count("granted authorization_code"); n != 1 {
		t.Errorf("%d logins", n)
	}
	s.run(t, 0, "", "logout", "--url", protected)
	if as.count("revoked") == 0 {
		t.Error("the login was not revoked")
	}
	s.run(t, 3, "bowline login", call...)
}

// TestAForeignIssuerWithoutABrowserHere logs in with a code that is entered on another machine, and
// as a program that has no user.
func TestAForeignIssuerWithoutABrowserHere(t *testing.T) {
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + port
	as := startForeignIssuer(t, "http://"+address+"/mcp", 3600)
	s := newShell(t)
	s.serveProtected(t, address, as.url)
	protected := "http://" + address + "/mcp"
	s.login(t, devicePage, "--device", "--url", protected)
	s.run(t, 0, "hello", "call", "echo", "message=hello", "--url", protected)
	if n := as.count("granted urn:ietf:params:oauth:grant-type:device_code"); n != 1 {
		t.Errorf("%d logins with a device", n)
	}
	config := filepath.Join(s.home, "mcp.json")
	entry := `{"mcpServers": {"tools": {"url": "` + protected + `", "bowline": {"auth": {
		"grant": "client_credentials", "clientId": "machine", "clientSecret": "machine-secret"}}}}}`
	if err := os.WriteFile(config, []byte(entry), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(t, 0, "hello", "call", "echo", "message=hello", "--mcp-config", config)
	if n := as.count("granted client_credentials"); n != 1 {
		t.Errorf("%d logins without a user", n)
	}
}

// TestAUserOfAGatewayAtAForeignIssuer logs a user in at a server behind a gateway, which asks his client to open the page, and refreshes his login
// when his tokens end. Its own login, for the list of tools, is another one.
func TestAUserOfAGatewayAtAForeignIssuer(t *testing.T) {
	var addresses []string
	for range 2 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, "127.0.0.1:"+port)
	}
	protected := "http://" + addresses[0] + "/mcp"
	as := startForeignIssuer(t, protected, 2)
	s := newShell(t)
	s.serveProtected(t, addresses[0], as.url)
	config := filepath.Join(s.home, "mcp.json")
	if err := os.WriteFile(config, []byte(`{"mcpServers": {"tools": {"url": "`+protected+`", "bowline": {"login": "user"}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.login(t, loginPage, "--mcp-config", config, "--server", "tools")
	s.serve(t, "up", config, "--http", addresses[1], "--admin", "off")
	pages := 0
	o := client.Options{FailFast: true, ElicitURL: func(ctx context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		pages++
		last, err := signIn(ctx, "ada", p.URL)
		if err != nil || !strings.Contains(last, "You are logged in") {
			t.Errorf("%v: %s", err, last)
		}
		return &protocol.ElicitResult{Action: protocol.ElicitAccept}, nil
	}}
	session, err := client.New(protocol.Implementation{Name: "peer", Version: "1"}, o).Connect(t.Context(), &streamable.Client{URL: "http://" + addresses[1] + "/mcp"})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	for refreshed := as.count("granted refresh_token"); as.count("granted refresh_token") < refreshed+4; { // of two logins
		if text, err := client.Call[string](t.Context(), session, "tools__echo", map[string]string{"message": "hello"}); err != nil || !strings.Contains(text, "hello") {
			t.Fatalf("%q, %v", text, err)
		}
	}
	if n := as.count("granted authorization_code"); n != 2 || pages != 1 || as.count("registered") != 2 {
		t.Errorf("%d logins of %d registrations, with %d pages", n, as.count("registered"), pages)
	}
}
