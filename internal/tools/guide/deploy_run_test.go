//go:build linux

package guide

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nobody is the user of the images, who has no rights and is in no list of users.
const nobody = 65532

// An emptyRoot is a root folder with one program, in which the gateway may write a few folders.
type emptyRoot struct {
	*testing.T
	deployment
	dir    string
	client *http.Client // trusts the certificate of the gateway
}

const (
	adminToken = "4fd1c0"
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	begun      = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	echo       = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"test__echo","arguments":{"message":"still there"}}}`
)

// run starts the gateway twice, as an upgrade does. The session of a client must outlive that.
func (d deployment) run(t *testing.T, binary string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r := &emptyRoot{T: t, deployment: d, dir: t.TempDir()}
	token := r.lay(ctx, binary)
	session := ""
	for i := range 2 {
		g := r.start(ctx)
		for _, probe := range d.probes {
			r.want(http.StatusOK, cmp.Or(g.probes, g.page)+probe, "", "")
		}
		if g.probes != "" { // there is nothing else, whoever asks
			r.want(http.StatusOK, g.probes+"/metrics", "", "")
			for _, other := range []string{"/", "/v1/report", "/v1/audit", "/servers/test"} {
				r.want(http.StatusNotFound, g.probes+other, adminToken, "")
			}
		}
		r.want(http.StatusUnauthorized, g.endpoint, "", "", initialize)
		if session == "" {
			header, _ := r.want(http.StatusOK, g.endpoint, token, "", initialize)
			session = header.Get("Mcp-Session-Id")
			r.want(http.StatusAccepted, g.endpoint, token, session, begun)
		}
		if _, body := r.want(http.StatusOK, g.endpoint, token, session, echo); !strings.Contains(body, "still there") || strings.Contains(body, `"isError":true`) {
			t.Errorf("a call: %s", body)
		}
		if d.before != "" { // so do records, which name people
			r.want(http.StatusUnauthorized, g.page+"/v1/audit", "", "")
			for body := ""; !strings.Contains(body, "test__echo"); { // a record comes after its answer, unless the file says sync
				if _, body = r.want(http.StatusOK, g.page+"/v1/audit?who=ada", adminToken, ""); ctx.Err() != nil {
					t.Fatalf("the records: %s", body)
				}
			}
		}
		if d.asks != nil {
			r.bowline(ctx, d.asks...)
		}
		if len(d.secrets) > 0 && i == 1 {
			r.revoke(ctx, g.endpoint, token, session)
		}
		g.end()
	}
	if said := r.bowline(ctx, "audit", "/var/lib/bowline/audit.jsonl", "--verify"); !strings.Contains(said, "whole") {
		t.Errorf("the trail: %s", said)
	}
}

// revoke replaces the secret of the tokens by one without any, as Kubernetes does: all its files at once. It returns when the token is refused.
func (r *emptyRoot) revoke(ctx context.Context, endpoint, token, session string) {
	r.Helper()
	secret := filepath.Join(r.dir, "run/secrets/tokens")
	next, link := filepath.Join(secret, "..2026_11_29"), filepath.Join(secret, "..data_tmp")
	err := errors.Join(os.Mkdir(next, 0o755), os.WriteFile(filepath.Join(next, "tokens.json"), []byte(`{"tokens":[]}`), 0o444),
		os.Symlink("..2026_11_29", link), os.Rename(link, filepath.Join(secret, "..data")))
	if err != nil {
		r.Fatal(err)
	}
	for status := 0; status != http.StatusUnauthorized; {
		if status, _, _ = r.ask(http.MethodPost, endpoint, token, session, echo); ctx.Err() != nil {
			r.Fatal("the token is not refused")
		}
	}
}

// lay makes the root folder, and a token of a user. What the gateway need not write belongs to root.
func (r *emptyRoot) lay(ctx context.Context, binary string) (token string) {
	r.Helper()
	bin := filepath.Join(r.dir, "usr/local/bin") // a copy would be open for writing in what another test starts meanwhile, and could not be executed
	if err := errors.Join(os.MkdirAll(bin, 0o755), os.Link(binary, filepath.Join(bin, "bowline"))); err != nil {
		r.Fatal(err)
	}
	for path, text := range r.mounts {
		r.place(path, []byte(text), 0o644)
	}
	for _, folder := range r.folders {
		r.folder(folder)
	}
	cert, key := r.certificate()
	for _, arg := range r.args {
		if path, is := strings.CutPrefix(arg, "--tls-cert="); is {
			r.place(path, cert, 0o640)
		} else if path, is := strings.CutPrefix(arg, "--tls-key="); is {
			r.place(path, key, 0o640)
		}
	}
	if r.before != "" {
		r.place("/run/secrets/admin/admin.token", []byte(adminToken), 0o440)
		r.shell(ctx)
	}
	for _, text := range r.mounts {
		if named := regexp.MustCompile(`"tokens": "([^"]+)"`).FindStringSubmatch(text); named != nil {
			return r.mountTokens(ctx, binary, named[1])
		}
	}
	return strings.TrimSpace(r.bowline(ctx, "token", "add", "ada"))
}

// mountTokens makes the file of tokens where an administrator works.
func (r *emptyRoot) mountTokens(ctx context.Context, binary, path string) (token string) {
	r.Helper()
	file := filepath.Join(r.TempDir(), "tokens.json")
	said, err := exec.CommandContext(ctx, binary, "token", "add", "ada", "--file", file).Output()
	if err != nil {
		r.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		r.Fatal(err)
	}
	r.place(path, text, 0o440)
	return strings.TrimSpace(string(said))
}

// place makes a file that the gateway may read. In the folder of a secret it is a link, beside others that Kubernetes replaces at once.
func (r *emptyRoot) place(path string, text []byte, mode os.FileMode) {
	r.Helper()
	dir, at := filepath.Join(r.dir, filepath.Dir(path)), filepath.Join(r.dir, path)
	isLink := slices.Contains(r.secrets, filepath.Dir(path))
	if isLink {
		at = filepath.Join(dir, "..2026_11_28", filepath.Base(path))
	}
	err := os.MkdirAll(filepath.Dir(at), 0o755)
	if err == nil {
		err = os.WriteFile(at, text, mode)
	}
	if err == nil { // what has just been written is read again in any case
		err = os.Chtimes(at, time.Time{}, time.Now().Add(-time.Hour))
	}
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(at, 0, nobody)
	}
	if _, failed := os.Lstat(filepath.Join(dir, "..data")); err == nil && isLink && failed != nil {
		err = os.Symlink("..2026_11_28", filepath.Join(dir, "..data"))
	}
	if err == nil && isLink {
		err = os.Symlink(filepath.Join("..data", filepath.Base(path)), filepath.Join(dir, filepath.Base(path)))
	}
	if err != nil {
		r.Fatal(err)
	}
}

// folder makes a folder in which the gateway may write.
func (r *emptyRoot) folder(path string) {
	r.Helper()
	path = filepath.Join(r.dir, path)
	owner, mode := nobody, os.FileMode(0o700)
	if r.shared {
		owner, mode = 0, 0o775|os.ModeSetgid
	}
	err := os.MkdirAll(path, 0o755)
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(path, owner, nobody)
	}
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		r.Fatal(err)
	}
}

// certificate makes one that the client of the test trusts.
func (r *emptyRoot) certificate() (cert, key []byte) {
	r.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
	r.client = &http.Client{Transport: transport}
	secret, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		r.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// shell does what has to be done before the gateway starts, as its user.
func (r *emptyRoot) shell(ctx context.Context) {
	r.Helper()
	there := regexp.MustCompile(`/(var/lib|run/secrets)/`).ReplaceAllString(r.before, r.dir+"$0")
	if err := os.Chmod(filepath.Dir(r.dir), 0o755); err != nil { // it is the test's own
		r.Fatal(err)
	}
	shell := exec.CommandContext(ctx, "sh", "-euc", there)
	if shell.Dir = r.dir; os.Geteuid() == 0 {
		shell.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	if said, err := shell.CombinedOutput(); err != nil {
		r.Fatalf("%s: %v\n%s", there, err, said)
	}
}

// command runs bowline in the root folder, without any right. Who is not root gets a root folder by a user namespace.
func (r *emptyRoot) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "/usr/local/bin/bowline", args...)
	c.Dir, c.Env = "/", []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for name, value := range r.env {
		c.Env = append(c.Env, name+"="+value)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: r.dir}
	if me := os.Geteuid(); me == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	} else {
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: me, Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getegid(), Size: 1}}
	}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 20 * time.Second
	return c
}

// bowline runs another command beside the gateway.
func (r *emptyRoot) bowline(ctx context.Context, args ...string) string {
	r.Helper()
	said, err := r.command(ctx, args...).CombinedOutput()
	if err != nil {
		r.Fatalf("bowline %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return string(said)
}

// A running gateway has free ports in place of those of its file.
type running struct {
	endpoint, page string
	probes         string // "": they are at the page only
	end            func()
}

var port = regexp.MustCompile(`^(--(?:http|admin|probes)=.*:)\d+$`)

func (r *emptyRoot) start(ctx context.Context) running {
	r.Helper()
	args := slices.Clone(r.args)
	for i, arg := range args {
		args[i] = port.ReplaceAllString(arg, "${1}0")
	}
	if !strings.Contains(strings.Join(args, " "), " --admin=") {
		args = append(args, "--admin=127.0.0.1:0")
	}
	c := r.command(ctx, args...)
	stderr, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		r.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	var g running
	said := ""
	for g.endpoint == "" && lines.Scan() {
		said += lines.Text() + "\n"
		if page, found := strings.CutPrefix(lines.Text(), "bowline: the page is "); found {
			g.page, _, _ = strings.Cut(page, "/;")
		} else if at, found := strings.CutPrefix(lines.Text(), "bowline: probes and metrics are at "); found {
			g.probes = strings.TrimSuffix(at, "/")
		} else if url, found := strings.CutPrefix(lines.Text(), "bowline: serving "); found {
			g.endpoint = strings.Replace(url, "[::]", "127.0.0.1", 1)
		}
	}
	if g.endpoint == "" || g.page == "" {
		r.Fatalf("it does not serve: %v\n%s", c.Wait(), said)
	}
	g.end = func() {
		began := time.Now()
		_ = c.Process.Signal(syscall.SIGTERM) // else Wait says that it has ended
		rest, _ := io.ReadAll(stderr)
		if err := c.Wait(); err != nil || time.Since(began) > time.Duration(r.grace)*time.Second {
			r.Errorf("it ended after %v: %v\n%s%s", time.Since(began), err, said, rest)
		}
	}
	return g
}

// want asks for something: with a body by POST, as a client.
func (r *emptyRoot) want(status int, url, token, session string, body ...string) (http.Header, string) {
	r.Helper()
	method := http.MethodGet
	if len(body) > 0 {
		method = http.MethodPost
	}
	got, header, text := r.ask(method, url, token, session, strings.Join(body, ""))
	if got != status {
		r.Errorf("%s: %d, want %d: %s", url, got, status, text)
	}
	return header, text
}

func (r *emptyRoot) ask(method, url, token, session, body string) (status int, header http.Header, text string) {
	r.Helper()
	request, err := http.NewRequestWithContext(r.Context(), method, url, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + token, "Mcp-Session-Id": session, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"} {
		if value != "" && value != "Bearer " {
			request.Header.Set(name, value)
		}
	}
	answer, err := r.client.Do(request)
	if err != nil {
		r.Fatal(err)
	}
	defer answer.Body.Close()
	whole, err := io.ReadAll(answer.Body)
	if err != nil {
		r.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(whole)
}
