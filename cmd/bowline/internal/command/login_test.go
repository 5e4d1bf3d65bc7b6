package command

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// protected starts a server with a tool that needs a token of an authorization server.
func protected(t *testing.T, o authtest.Options) (as *authtest.Server, url string) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	s := server.New(protocol.Implementation{Name: "vault", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "open"}, func(_ context.Context, _ struct{}) (string, error) { return "opened", nil })
	listening := httptest.NewUnstartedServer(nil)
	url = "http://" + listening.Listener.Addr().String() + "/mcp"
	o.Resource = url
	as = authtest.Start(t, o)
	listening.Config.Handler = as.Protect(streamable.NewHandler(s, streamable.HandlerOptions{}))
	listening.Start()
	t.Cleanup(listening.Close)
	return as, url
}

// loggingIn runs a login, opens the page as a person does, and returns the output.
func loggingIn(t *testing.T, args ...string) outcome {
	t.Helper()
	cmd := command(t, append([]string{"login", "--no-browser"}, args...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	typed, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := new(strings.Builder)
	cmd.Stdout = stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	var all strings.Builder
	for {
		line, err := lines.ReadString('\n')
		all.WriteString(line)
		if err != nil {
			status := exitStatus(t, cmd.Wait()) // behind which stdout is whole
			return outcome{stdout.String(), all.String(), status}
		}
		if _, address, ok := strings.Cut(strings.TrimSpace(line), "open this page to log in: "); ok {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			io.WriteString(typed, response.Header.Get("Location")+"\n")
		}
	}
}

// A person logs in once. Then every command uses the login, in other processes, until the
// person logs out.
func TestLogin(t *testing.T) {
	as, url := protected(t, authtest.Options{})
	o := bowline(t, "", "call", "open", "--url", url)
	o.want(t, process.ExitNoSession, "", "bowline login --url '"+url+"'")
	if want := "bowline: \"" + url + "\" needs a login\n"; !strings.HasPrefix(o.stderr, want) || strings.Contains(o.stderr, "nobody is there") {
		t.Errorf("standard error is %q, want it to begin with %q, without the causes", o.stderr, want)
	}
	bowline(t, "", "auth", "status", "--url", url).want(t, process.ExitNoSession, "", "there is no login")
	bowline(t, "", "auth", "status").want(t, process.ExitNoSession, "", "there is no login")

	output := loggingIn(t, "--url", url)
	output.want(t, 0, "logged in at "+as.Issuer(), "")
	bowline(t, "", "call", "open", "--url", url).want(t, 0, "opened", "")
	path := writeConfig(t, "mcp.json", `{"mcpServers": {"vault": {"url": "`+url+`"}}}`)
	bowline(t, "", "call", "open", "--mcp-config", path).want(t, 0, "opened", "")

	shown := bowline(t, "", "auth", "status")
	shown.want(t, 0, "issuer  "+as.Issuer(), "")
	shown.want(t, 0, "then renewed", "")
	one := bowline(t, "", "auth", "status", "--json", "--mcp-config", path)
	var statuses []loginStatus
	if err := json.Unmarshal([]byte(one.stdout), &statuses); err != nil || len(statuses) != 1 || statuses[0].Server != url {
		t.Errorf("%v: %s", err, one.stdout)
	}
	issued := as.Sink.Requests(authtest.Token)
	if len(issued) != 1 {
		t.Errorf("%d token requests", len(issued))
	}
	wantNoSecrets(t, as, o, output, shown, one, bowline(t, "", "call", "open", "--verbose", "--url", url))

	bowline(t, "", "logout", "--url", url).want(t, 0, "", "")
	if n := len(as.Sink.Requests(authtest.Revoke)); n != 2 {
		t.Errorf("%d revocations", n)
	}
	bowline(t, "", "call", "open", "--url", url).want(t, process.ExitNoSession, "", "bowline login")
}

// wantNoSecrets checks that the output has no secret of the authorization server.
func wantNoSecrets(t *testing.T, as *authtest.Server, printed ...outcome) {
	t.Helper()
	if len(as.Secrets()) == 0 {
		t.Error("the authorization server has issued nothing")
	}
	for _, o := range printed {
		if found := as.Printed(o.stdout + o.stderr); len(found) > 0 {
			t.Errorf("%d secrets are printed", len(found))
		}
	}
}

// The client in an mcp.json is used, without a person.
func TestLoginOfAFile(t *testing.T) {
	_, url := protected(t, authtest.Options{Clients: []authtest.Client{{ID: "known", Secret: "S3CRET", Auth: "client_secret_basic"}}})
	t.Setenv("VAULT_SECRET", "S3CRET")
	entry := `{"mcpServers": {"vault": {"url": "` + url + `", "bowline": {"auth": {"grant": "client_credentials", "clientId": "known", "clientSecret": "${VAULT_SECRET}"}}}}}`
	path := writeConfig(t, "mcp.json", entry)
	bowline(t, "", "call", "open", "--mcp-config", path).want(t, 0, "opened", "")
	t.Setenv("VAULT_SECRET", "WRONGS3CRET")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	o := bowline(t, "", "call", "open", "--mcp-config", path)
	if o.want(t, process.ExitNoSession, "", "invalid_client"); strings.Contains(o.stderr, "WRONGS3CRET") {
		t.Errorf("the secret is printed: %s", o.stderr)
	}
}

// After the server has revoked a login, it counts as missing. Without a key ring, the
// commands behave as with one.
func TestALoginThatIsRevoked(t *testing.T) {
	if runtime.GOOS == "linux" {
		t.Setenv(connect.KeyringVariable, "")
		t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nobody/listens/here")
	}
	as, url := protected(t, authtest.Options{})
	loggingIn(t, "--url", url).want(t, 0, "logged in", "")
	as.RevokeAll()
	bowline(t, "", "call", "open", "--url", url).want(t, process.ExitNoSession, "", "bowline login")
	loggingIn(t, "--url", url).want(t, 0, "logged in", "")
	bowline(t, "", "call", "open", "--url", url).want(t, 0, "opened", "")
}

// A login whose key is missing can be shown, replaced and removed.
//
// Guarantees: G-0044.21
func TestALoginThatCannotBeOpened(t *testing.T) {
	_, url := protected(t, authtest.Options{})
	dir, err := auth.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	gone := auth.NewSealedFiles(dir, func(context.Context) ([]byte, error) { return make([]byte, 32), nil }, nil)
	seal := func() {
		if err := gone.Locked(t.Context(), auth.Key{Resource: url}, func(*auth.Entry) (*auth.Entry, error) {
			return &auth.Entry{Issuer: "https://as.test", Access: auth.NewSecret("T0KEN")}, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	seal()
	bowline(t, "", "auth", "status").want(t, process.ExitNoSession, "unreadable: ", "the stored login cannot be read")
	bowline(t, "", "auth", "status", "--url", url, "--json").want(t, process.ExitNoSession, `"unreadable": `, "the stored login cannot be read")
	loggingIn(t, "--url", url).want(t, 0, "logged in", "")
	bowline(t, "", "auth", "status").want(t, 0, "then renewed", "")
	bowline(t, "", "logout", "--url", url).want(t, 0, "", "")
	seal()
	if runtime.GOOS != "windows" { // which has no modes
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		bowline(t, "", "auth", "status").want(t, process.ExitNoSession, "", "others can write to the folder (mode 0777): run chmod 700 "+dir)
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	bowline(t, "", "logout", "--url", url).want(t, process.ExitCallFailed, "", "its tokens are not revoked")
	bowline(t, "", "auth", "status").want(t, process.ExitNoSession, "", "there is no login")
}

// If the login cannot be saved, no page is opened.
//
// Guarantees: G-0044.20
func TestALoginThatCannotBeSaved(t *testing.T) {
	as, url := protected(t, authtest.Options{})
	t.Setenv("XDG_CONFIG_HOME", writeConfig(t, "file", ""))
	loggingIn(t, "--url", url).want(t, process.ExitNoSession, "", "the login could not be saved")
	if n := len(as.Sink.Requests(authtest.Authorize)); n != 0 {
		t.Errorf("the page was opened %d times", n)
	}
}

func TestLoginsAreForHTTP(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	bowline(t, "", "login", "--command", "x").want(t, process.ExitUsage, "", "only for servers over HTTP")
	bowline(t, "", "login", "--url", "http://127.0.0.1:1/mcp", "--header", "Authorization: Bearer x").want(t, process.ExitUsage, "", "without an Authorization header")
	bowline(t, "", "login", "--url", "http://127.0.0.1:1/mcp").want(t, process.ExitNoSession, "", "cannot be fetched")
}

// A server that registers no programs is no place to log in, and the command says what to do.
func TestLoginWhereNobodyCanRegister(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	o := bowline(t, "", "login", "--url", site.URL+"/mcp")
	o.want(t, process.ExitNoSession, "", "refuses to register this program (status 404)")
	o.want(t, process.ExitNoSession, "", connect.AdviceRegister)
}
