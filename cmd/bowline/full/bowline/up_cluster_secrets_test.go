//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/nats"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/tools/nodes"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A keepingNode is a gateway at a node of a cluster, with the folders of what stands for a machine of its own.
type keepingNode struct {
	*gatewayNode
	config, run string
	page, token string // the address of its page, and what shows everything there
}

// command returns a command on the machine of the node.
func (n *keepingNode) command(args ...string) *exec.Cmd {
	cmd := bowline(n.t, args...)
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+n.config, "XDG_RUNTIME_DIR="+n.run)
	return cmd
}

// A keepingCluster is two gateways with users behind a balancer, which sends each request to the other one than the last, and the NATS server that they use. The
// test knows all that is given to them to keep.
type keepingCluster struct {
	t            *testing.T
	url          string // of the balancer
	nodes        []*keepingNode
	member       *cluster.Node      // by which the test knows the keys that the nodes share
	servers      []*authtest.Server // where users and gateways log in
	issuer       *authtest.Server   // of the tokens of users; nil: the gateways have made these
	browser      *http.Client
	heard        overheard
	clusterFlags []string

	secrets map[string]string // by what they are
	said    map[string]string // by what has said it
}

const (
	secretArgument = "s3cret-argument"
	secretFailure  = "s3cret-failure"
	secretOfServer = "s3cret-of-a-server"
	secretOfClient = "s3cret-of-a-client"
	secretForged   = "s3cret-forged"
)

func newKeepingCluster(t *testing.T, auth string) *keepingCluster {
	t.Helper()
	t.Setenv("BOWLINE_KEYRING", "off")
	t.Setenv("A_SECRET", secretOfServer)
	t.Setenv("B_SECRET", secretOfClient)
	c := &keepingCluster{t: t, said: map[string]string{}, secrets: map[string]string{
		"argument and result": secretArgument, "text of an error": secretFailure, "env of a server": secretOfServer, "client_secret": secretOfClient,
		"forged token": secretForged, "password of NATS": natsPassword,
	}}
	at, key := permittedServer(t), newKey(t)
	c.clusterFlags = []string{"--cluster", "prod", "--nats", at, "--cluster-key", key}
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	c.secrets["key of the cluster"] = strings.TrimSpace(string(text))
	raw, err := hex.DecodeString(c.secrets["key of the cluster"])
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(c.secrets, written("key of the cluster", raw))
	balancer := nodes.NewBalancer(2)
	front := httptest.NewServer(balancer)
	t.Cleanup(front.Close)
	t.Cleanup(balancer.Close)
	c.url = front.URL + "/mcp"
	file := c.file(auth)
	for i, name := range []string{"a", "b"} {
		n := c.start(name, file, auth)
		c.nodes = append(c.nodes, n)
		at, err := url.Parse(n.url)
		if err != nil {
			t.Fatal(err)
		}
		balancer.Set(i, at)
	}
	c.join(at, raw)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.browser = &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	return c
}

// file returns the file of the gateways, which have servers of all kinds that get a secret.
func (c *keepingCluster) file(auth string) []byte {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	bound := authtest.Options{
		Clients: []authtest.Client{{ID: "gateway", Secret: secretOfClient, Auth: "client_secret_basic"}}, DPoPNonces: true,
	}
	child := func(kind, instances, share string) map[string]any {
		return map[string]any{
			"command": self, "args": []string{"serve", "--stdio"}, "env": map[string]string{role: kind, "TOKEN": "${A_SECRET}"},
			"bowline": map[string]string{"instances": instances, "share": share},
		}
	}
	remote := func(o authtest.Options, own map[string]any) map[string]any {
		as, at := protectedServer(c.t, o)
		c.servers = append(c.servers, as)
		return map[string]any{"url": at, "bowline": own}
	}
	top := map[string]any{"url": c.url, "audit": map[string]any{"file": "audit.jsonl", "sync": true}}
	if auth == "oauth" {
		c.issuer = authtest.Start(c.t, authtest.Options{Resource: c.url})
		top["auth"] = map[string]any{"issuers": []string{c.issuer.Issuer()}, "dpop": "allowed"}
		c.secrets["token of a user"] = c.issuer.IssueClaims(c.issuer.Claims("read"))
	}
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"each": child("command", "each", "user"), "one": child("command", "one", "all"), "asker": child("asker", "each", "user"),
		"personal": remote(authtest.Options{}, map[string]any{"login": "user"}),
		"bound":    remote(bound, map[string]any{"auth": map[string]any{"grant": "client_credentials", "clientId": "gateway", "clientSecret": "${B_SECRET}", "dpop": true}}),
	}, "bowline": top})
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// start starts a gateway. Where users have tokens, the first one makes one, and the others have its file.
func (c *keepingCluster) start(name string, file []byte, auth string) *keepingNode {
	c.t.Helper()
	run, err := os.MkdirTemp("/tmp", "bowline") // a socket has a short path
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { os.RemoveAll(run) })
	n := &keepingNode{config: c.t.TempDir(), run: run}
	c.t.Setenv("XDG_CONFIG_HOME", n.config)
	c.t.Setenv("XDG_RUNTIME_DIR", n.run)
	if auth == "tokens" && len(c.nodes) == 0 {
		said, err := bowline(c.t, "token", "add", "ada").Output()
		if err != nil {
			c.t.Fatal(err)
		}
		c.secrets["token of a user"] = strings.TrimSpace(string(said))
	} else if auth == "tokens" {
		users, err := os.ReadFile(filepath.Join(c.nodes[0].config, "bowline", "tokens.json"))
		if err == nil {
			err = os.Mkdir(filepath.Join(n.config, "bowline"), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(n.config, "bowline", "tokens.json"), users, 0o600)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	n.gatewayNode = startAt(c.t, file, append([]string{"--admin", ":0", "--auth", auth, "--node", name}, c.clusterFlags...)...)
	n.page = regexp.MustCompile(`the page is (http://[^;]*)`).FindStringSubmatch(n.said.String())[1]
	token, err := os.ReadFile(filepath.Join(n.config, "bowline", "admin.token"))
	if err != nil {
		c.t.Fatal(err)
	}
	n.token = strings.TrimSpace(string(token))
	c.secrets["token of the page of "+name] = n.token
	return n
}

// join makes the test a node of the cluster.
func (c *keepingCluster) join(at string, key []byte) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), hangGuard)
	defer cancel()
	engine, err := nats.Connect(ctx, nats.Options{
		URLs: []string{strings.Replace(at, "bowline@", "", 1)}, Cluster: "prod", User: "bowline", Password: natsPassword,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { engine.Close() })
	if c.member, err = cluster.Join(ctx, engine, cluster.Options{Cluster: "prod", Node: "test", Key: key, Log: slog.New(slog.DiscardHandler)}); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := c.member.Close(context.Background()); err != nil {
			c.t.Error(err)
		}
	})
}

// written returns what bytes look like in a text, by what they are.
func written(what string, secret []byte) map[string]string {
	return map[string]string{
		what + ", in hexadecimal": hex.EncodeToString(secret), what + ", in base64": base64.RawStdEncoding.EncodeToString(secret),
		what + ", in base64 of URLs": base64.RawURLEncoding.EncodeToString(secret), what + ", in numbers": strings.Trim(fmt.Sprint(secret), "[]"),
		what + ", in quotes": strings.Trim(strconv.Quote(string(secret)), `"`),
	}
}

// An overheard notes what a client and gateways say to each other.
type overheard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *overheard) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *overheard) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if id := response.Header.Get("Mcp-Session-Id"); id != "" {
		fmt.Fprintf(o, "{\"session\":%q}\n", id)
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(response.Body, o), response.Body}
	return response, nil
}

// secrets returns the states of questions, and the ids of sessions, that gateways have given to the client.
func (o *overheard) secrets() map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string]string{}
	for i, found := range regexp.MustCompile(`"(requestState|session)":"([^"]+)"`).FindAllStringSubmatch(o.text.String(), -1) {
		all[fmt.Sprintf("%s %d", found[1], i)] = found[2]
	}
	return all
}

// connect begins to use the gateways with a token.
func (c *keepingCluster) connect(token, version string) (*client.Session, error) {
	return client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
		ProtocolVersion: version, FailFast: true,
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return client.Accept(map[string]any{"size": secretArgument})
		},
	}).Connect(c.t.Context(), &streamable.Client{URL: c.url, HTTP: &http.Client{Transport: &c.heard}, Header: http.Header{"Authorization": {"Bearer " + token}}})
}

// use makes calls that work, and others that fail, so that each gateway has a part in it, and has everything done to the cluster that somebody can do.
func (c *keepingCluster) use() {
	c.t.Helper()
	if _, err := c.connect(secretForged, protocol.Latest); err == nil {
		c.t.Error("a forged token was accepted")
	}
	for _, version := range []string{protocol.Latest, protocol.LatestLegacy} {
		c.call(version)
		for _, args := range [][]string{{"keys", "rotate"}, {"move", "one", "a"}, {"move", "one", "b"}, {"nodes"}, {"nodes", "--json"}, {"keys"}} {
			c.say(c.nodes[0].command(append(args, c.clusterFlags...)...))
		}
		for _, n := range c.nodes {
			for _, args := range [][]string{{"restart", "each"}, {"reload"}} {
				c.say(n.command(append(args, "--file", n.file)...))
			}
			c.fetch(n.page+"v1/reload", http.MethodPost, secretForged)
		}
		c.noteKeys()
	}
	c.prove()
	maps.Copy(c.secrets, c.heard.secrets())
	for i, server := range c.servers {
		for j, secret := range server.Secrets() {
			c.secrets[fmt.Sprintf("secret %d of authorization server %d", j, i)] = secret
		}
	}
}

// call makes the calls of a user in a revision. Each of the gateways gets the half of the requests.
func (c *keepingCluster) call(version string) {
	c.t.Helper()
	session, err := c.connect(c.secrets["token of a user"], version)
	if err != nil {
		c.t.Fatal(err)
	}
	defer session.Close(context.WithoutCancel(c.t.Context()))
	call := func(tool, message string) string {
		arguments, err := json.Marshal(map[string]string{"message": message})
		if err != nil {
			c.t.Fatal(err)
		}
		result, err := session.CallTool(c.t.Context(), &protocol.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			return err.Error()
		}
		return result.Content.Text()
	}
	for range 2 {
		for _, tool := range []string{"each__echo", "one__echo", "bound__echo"} {
			if got := call(tool, secretArgument); got != secretArgument {
				c.t.Errorf("%s: %s", tool, got)
			}
		}
		if got := call("one__fail", secretFailure); !strings.Contains(got, secretFailure) {
			c.t.Errorf("a tool that fails: %s", got)
		}
		if got, err := client.Call[string](c.t.Context(), session, "asker__ask", struct{}{}); err != nil || got != "the size is "+secretArgument {
			c.t.Errorf("a tool that asks: %q, %v", got, err)
		}
		call("none__none", secretArgument)
	}
	if _, rest, found := strings.Cut(call("personal__echo", secretArgument), "open "); found {
		page, _, _ := strings.Cut(rest, " ")
		c.secrets["page of a login"] = page[strings.LastIndex(page, "/")+1:]
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodGet} { // the last one comes too late
			c.fetch(page, method, "")
		}
	}
	if got := call("personal__echo", secretArgument); got != secretArgument {
		c.t.Errorf("who has logged in: %s", got)
	}
}

// prove shows one gateway a token with a proof of its key, and the other one the same proof again, if users have tokens that are bound to keys.
func (c *keepingCluster) prove() {
	c.t.Helper()
	if c.issuer == nil {
		return
	}
	token, prove := boundToken(c.t, c.issuer, c.url)
	proof := prove()
	for _, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		if status, _, body := askWith(c.t, c.url, http.Header{"Authorization": {"DPoP " + token}, "Dpop": {proof}}, initialize); status != want {
			c.t.Errorf("with a proof: %d, want %d: %s", status, want, body)
		}
	}
	c.secrets["token that is bound to a key"], c.secrets["proof of a client"] = token, proof
}

// noteKeys notes the keys that the nodes have now, and accept.
func (c *keepingCluster) noteKeys() {
	for _, purpose := range []string{"asking", "dpop"} {
		for _, key := range c.member.Keys(purpose)() {
			maps.Copy(c.secrets, written(fmt.Sprintf("key %x of %s", key[:2], purpose), key))
		}
	}
}

// say runs a command, which must succeed, and notes all that it prints.
func (c *keepingCluster) say(cmd *exec.Cmd) {
	c.t.Helper()
	said, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Errorf("%q: %v: %s", cmd.Args[1:], err, said)
	}
	c.said[fmt.Sprintf("%q %d", cmd.Args[1:], len(c.said))] = string(said)
}

// fetch returns what somebody sees who shows a token; "": nobody's.
func (c *keepingCluster) fetch(at, method, token string) string {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, at, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return c.send(c.browser, r)
}

// send returns the body of an answer. Of a stream it is the first event.
func (c *keepingCluster) send(by *http.Client, r *http.Request) (text string) {
	c.t.Helper()
	response, err := by.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	isStream := strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream")
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() && (!isStream || lines.Text() != "") {
		text += lines.Text() + "\n"
	}
	if err := lines.Err(); err != nil {
		c.t.Fatal(err)
	}
	return text
}

// look notes all that a gateway says of itself, and of the others.
func (c *keepingCluster) look(n *keepingNode) {
	c.t.Helper()
	for _, args := range [][]string{{"ps"}, {"ps", "--node", "all"}, {"ps", "--json"}, {"audit"}, {"audit", "--json"}, {"pins"}, {"stderr", "each"}} {
		c.say(n.command(append(args, "--file", n.file)...))
	}
	sockets, err := filepath.Glob(filepath.Join(n.run, "bowline", "*.sock"))
	if err != nil || len(sockets) != 1 {
		c.t.Fatal(sockets, err)
	}
	socket := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", sockets[0])
	}}}
	for _, path := range []string{"", "servers/each", "servers/one", "servers/asker", "servers/personal", "servers/bound", "audit", "metrics", "readyz", "v1/report", "v1/audit", "v1/pins", "v1/events", "page/events"} {
		c.said[n.page+path] = c.fetch(n.page+path, http.MethodGet, n.token)
		c.said[n.page+path+" without a token"] = c.fetch(n.page+path, http.MethodGet, "")
		r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://bowline/"+path, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		c.said[n.page+path+" at the socket"] = c.send(socket, r)
	}
}

// drain ends a gateway, whose session another one takes.
func (c *keepingCluster) drain(n, other *keepingNode) {
	c.t.Helper()
	header := func() http.Header { return http.Header{"Authorization": {"Bearer " + c.secrets["token of a user"]}} }
	_, given, body := askWith(c.t, n.url, header(), initialize)
	session := given.Get("Mcp-Session-Id")
	if session == "" {
		c.t.Fatalf("there is no session: %s", body)
	}
	c.secrets["session that is taken"] = session
	in := func(at, message string) (status int) {
		with := header()
		with.Set("Mcp-Session-Id", session)
		status, _, body = askWith(c.t, at, with, message)
		return status
	}
	if status := in(n.url, initialized); status != http.StatusAccepted {
		c.t.Errorf("initialized: %d %s", status, body)
	}
	c.say(n.command(append([]string{"drain", "a"}, c.clusterFlags...)...))
	n.ended()
	if status := in(other.url, strings.Replace(echo, `"echo"`, `"each__echo"`, 1)); status != http.StatusOK {
		c.t.Errorf("a call where the session is now: %d %s", status, body)
	}
}

// end ends a gateway, and notes what it has printed and recorded.
func (c *keepingCluster) end(n *keepingNode) {
	c.t.Helper()
	n.interrupt()
	status, rest := n.ended()
	if status != 0 {
		c.t.Errorf("a gateway has ended with status %d: %s", status, rest)
	}
	c.said["log of "+n.page] = n.serve.said.String() + rest
	trail, err := os.ReadFile(filepath.Join(filepath.Dir(n.file), "audit.jsonl"))
	if err != nil {
		c.t.Fatal(err)
	}
	if calls, asked := strings.Count(string(trail), `"method":"tools/call"`), strings.Count(string(trail), `"name":"asker__ask"`); calls < 6 || asked < 1 {
		c.t.Errorf("a gateway has had %d calls, and %d of the tool that asks", calls, asked)
	}
	c.said["trail of "+n.page] = string(trail)
}

// Whatever gateways of a cluster are given to keep, share with each other, or get from clients at one another, is in nothing that any of them says, and in nothing that a command about
// the cluster prints: neither in a trail, nor in a log, a report, its events, a page, its metrics or an answer of a socket.
//
// Guarantees: G-0091.24, G-0104.10
func TestNoSecretIsSaidInACluster(t *testing.T) {
	for _, auth := range []string{"tokens", "oauth"} {
		t.Run(auth, func(t *testing.T) {
			c := newKeepingCluster(t, auth)
			c.use()
			for _, n := range c.nodes {
				c.look(n)
			}
			c.drain(c.nodes[0], c.nodes[1])
			for _, n := range c.nodes {
				c.end(n)
			}
			c.wantKnown()
			for place, text := range c.said {
				if strings.HasPrefix(place, "http") && strings.TrimSpace(text) == "" {
					t.Errorf("nothing is at %s", place)
				}
				for what, secret := range c.secrets {
					if strings.Contains(text, strings.TrimPrefix(secret, "bowline_")) {
						t.Errorf("%s has a secret: %s", place, what)
					}
				}
			}
		})
	}
}

// wantKnown checks that the test knows secrets of all kinds, each long enough to be searched for.
func (c *keepingCluster) wantKnown() {
	c.t.Helper()
	names := slices.Sorted(maps.Keys(c.secrets))
	for prefix, least := range map[string]int{
		"token of ": 3, "key of the cluster": 6, "key ": 2*2*5 + 6, "requestState ": 2, "session ": 1, "page of a login": 1, "secret ": 6,
	} {
		if known := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, prefix) }); len(known) < least {
			c.t.Errorf("of %q the test knows %d: %q", prefix, len(known), known)
		}
	}
	for what, secret := range c.secrets {
		if len(secret) < 8 {
			c.t.Errorf("%s: %q is too short to be searched for", what, secret)
		}
	}
}
