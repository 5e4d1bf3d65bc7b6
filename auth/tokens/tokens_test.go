package tokens

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A site is a file of tokens with a clock that a test moves.
type site struct {
	*File
	t    *testing.T
	path string
	time time.Time
}

func newSite(t *testing.T, names ...string) (*site, []string) {
	t.Helper()
	s := &site{t: t, path: filepath.Join(t.TempDir(), "tokens.json"), time: time.Now()}
	var all []string
	for _, name := range names {
		all = append(all, s.add(name, time.Time{}))
	}
	file, err := Open(s.path)
	if err != nil {
		t.Fatal(err)
	}
	file.now = func() time.Time { return s.time }
	file.looked.Store(s.time.UnixNano())
	s.File = file
	return s, all
}

func (s *site) add(name string, expires time.Time) string {
	s.t.Helper()
	token, err := Add(s.path, name, expires)
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// status returns the status of a request with these Authorization headers, and who has sent it.
func (s *site) status(authorization ...string) (status int, who string) {
	r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp?access_token=x", nil)
	r.Header["Authorization"] = authorization
	caller, denied := s.Check(r)
	if denied != nil {
		if challenge := denied.Header.Get("Www-Authenticate"); denied.Status != http.StatusServiceUnavailable && !strings.HasPrefix(challenge, "Bearer") {
			s.t.Errorf("%q: the challenge is %q", authorization, challenge)
		}
		return denied.Status, ""
	}
	return http.StatusOK, caller.Identity()
}

func (s *site) want(status int, who string, authorization ...string) {
	s.t.Helper()
	if got, by := s.status(authorization...); got != status || by != who {
		s.t.Errorf("%q: %d %q, want %d %q", authorization, got, by, status, who)
	}
}

// Each forged or malformed token is refused, and each that was given out is its user's, whatever stands around it.
//
// Guarantees: G-0097.1
func TestForgedTokens(t *testing.T) {
	s, all := newSite(t, "ada", "bob")
	ada, bob := all[0], all[1]
	s.want(200, "token ada", "Bearer "+ada)
	s.want(200, "token bob", "bearer   "+bob)
	other := "A"
	if strings.HasSuffix(ada, other) {
		other = "B"
	}
	stored, err := List(s.path)
	if err != nil {
		t.Fatal(err)
	}
	for name, authorization := range map[string][]string{
		"none":                   nil,
		"empty":                  {""},
		"scheme alone":           {"Bearer"},
		"empty token":            {"Bearer "},
		"other scheme":           {"Basic " + ada},
		"without scheme":         {ada},
		"changed":                {"Bearer " + ada[:len(ada)-1] + other},
		"cut":                    {"Bearer " + ada[:len(ada)-1]},
		"longer":                 {"Bearer " + ada + "A"},
		"other case":             {"Bearer " + strings.ToUpper(ada)},
		"without prefix":         {"Bearer " + strings.TrimPrefix(ada, prefix)},
		"white space":            {"Bearer " + ada + " "},
		"two tokens":             {"Bearer " + ada + " " + bob},
		"two in one header":      {"Bearer " + ada + ", Bearer " + bob},
		"the hash":               {"Bearer " + stored[0].Hash},
		"the name":               {"Bearer ada"},
		"very long":              {"Bearer " + strings.Repeat(ada, 1000)},
		"unsigned web token":     {"Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ."},
		"bytes that are no text": {"Bearer \xff\xfe"},
	} {
		if status, who := s.status(authorization...); status != http.StatusUnauthorized || who != "" {
			t.Errorf("%s: %d, %q", name, status, who)
		}
	}
	for name, authorization := range map[string][]string{
		"two headers":              {"Bearer " + ada, "Bearer " + ada},
		"two headers of two users": {"Bearer " + ada, "Bearer " + bob},
		"two headers, one empty":   {"", "Bearer " + ada},
		"two headers, one other":   {"Bearer " + ada, "Basic " + ada},
	} {
		if status, who := s.status(authorization...); status != http.StatusBadRequest || who != "" {
			t.Errorf("%s: %d, %q", name, status, who)
		}
	}
}

// What a denial says is the whole of it: the status, the challenge, and a text that names neither a token nor a user.
//
// Guarantees: G-0097.1, G-0097.3
func TestWhatADenialSays(t *testing.T) {
	s, _ := newSite(t, "ada")
	const needed, refused, bearer, invalid = "a token is needed: bowline token add makes one", "the token is unknown, revoked or expired", "Bearer", `Bearer error="invalid_token"`
	challenge := func(text string) http.Header { return http.Header{"Www-Authenticate": {text}} }
	check := func(what string, want streamable.Denial, authorization ...string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", nil)
		r.Header["Authorization"] = authorization
		if _, denied := s.Check(r); !reflect.DeepEqual(denied, &want) {
			t.Errorf("%s: %+v, want %+v", what, denied, want)
		}
	}
	check("no token", streamable.Denial{Status: 401, Header: challenge(bearer), Text: needed})
	check("another scheme", streamable.Denial{Status: 401, Header: challenge(bearer), Text: needed}, "Basic YTpi")
	check("no more than a scheme", streamable.Denial{Status: 401, Header: challenge(bearer), Text: needed}, "Bearer  ")
	check("257 bytes", streamable.Denial{Status: 401, Header: challenge(bearer), Text: needed}, "Bearer "+strings.Repeat("x", 257))
	check("256 bytes", streamable.Denial{Status: 401, Header: challenge(invalid), Text: refused}, "Bearer "+strings.Repeat("x", 256))
	check("two headers", streamable.Denial{Status: 400, Header: challenge(`Bearer error="invalid_request"`), Text: "the header Authorization is given more than once"}, "Bearer x", "Bearer x")
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	s.time = s.time.Add(lookInterval)
	check("no file", streamable.Denial{Status: 503, Header: http.Header{"Retry-After": {"5"}}, Text: "tokens cannot be checked now"}, "Bearer x")
	check("neither file nor token", streamable.Denial{Status: 401, Header: challenge(bearer), Text: needed})
}

// A token that is revoked, expired or added while the server runs counts so within a second.
//
// Guarantees: G-0097.2
func TestTokensChangeWhileTheServerRuns(t *testing.T) {
	s, all := newSite(t, "ada")
	bob := s.add("bob", s.time.Add(time.Hour))
	s.want(401, "", "Bearer "+bob)
	s.time = s.time.Add(lookInterval)
	s.want(200, "token bob", "Bearer "+bob)
	if err := Revoke(s.path, "ada"); err != nil {
		t.Fatal(err)
	}
	s.time = s.time.Add(lookInterval)
	s.want(401, "", "Bearer "+all[0])
	again := s.add("ada", time.Time{})
	s.time = s.time.Add(time.Hour - 2*lookInterval - 1)
	s.want(200, "token bob", "Bearer "+bob)
	s.time = s.time.Add(1)
	s.want(401, "", "Bearer "+bob)
	s.want(200, "token ada", "Bearer "+again)
	s.want(401, "", "Bearer "+all[0])
	if err := Revoke(s.path, "ada"); err != nil {
		t.Fatal(err)
	}
	s.time = s.time.Add(-time.Hour) // somebody sets the clock
	s.want(401, "", "Bearer "+again)
}

// A file may be a link, as secrets in containers are, and the link may be changed. One that others can write to is refused.
//
// Guarantees: G-0097.2, G-0097.3
func TestLinksAndModes(t *testing.T) {
	s, all := newSite(t, "ada")
	link, other := s.path+".link", s.path+".other"
	if err := os.Symlink(s.path, link); err != nil {
		t.Fatal(err)
	}
	bob, err := Add(other, "bob", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	s.path = link
	if s.File, err = Open(link); err != nil {
		t.Fatal(err)
	}
	s.File.now = func() time.Time { return s.time }
	s.want(200, "token ada", "Bearer "+all[0])
	if err := errors.Join(os.Symlink(other, link+".new"), os.Rename(link+".new", link)); err != nil {
		t.Fatal(err)
	}
	s.time = s.time.Add(2 * lookInterval)
	s.want(401, "", "Bearer "+all[0])
	s.want(200, "token bob", "Bearer "+bob)
	for mode, want := range map[os.FileMode]bool{0o600: true, 0o444: true, 0o640: true, 0o620: false, 0o602: false} {
		if err := os.Chmod(other, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(other); (err == nil) != want {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

// A file that has no room for another token stays as it is: one that is too large would lock everybody out.
//
// Guarantees: G-0097.4
func TestAFileThatIsFull(t *testing.T) {
	s, all := newSite(t, "ada")
	known, err := List(s.path)
	if err != nil {
		t.Fatal(err)
	}
	const most = 8000 // tokens
	for i := range most {
		name := fmt.Sprintf("user%04d", i)
		known = append(known, Token{Name: name, Hash: hashOf(name), Made: known[0].Made})
	}
	text, err := json.MarshalIndent(content{known}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	known = known[:maxFile/(len(text)/len(known)+1)] // each takes the same room
	if text, err = json.MarshalIndent(content{known}, "", "  "); err != nil || len(text) > maxFile || len(text) < maxFile-16<<10 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	if err := os.WriteFile(s.path, append(text, strings.Repeat(" ", maxFile-len(text))...), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if _, err = Add(s.path, fmt.Sprint("more", i), time.Time{}); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrFull) || err.Error() != s.path+": "+ErrFull.Error() {
		t.Errorf("got %v, want ErrFull", err)
	}
	s.time = s.time.Add(2 * lookInterval)
	s.want(200, "token ada", "Bearer "+all[0])
	if err := Revoke(s.path, "ada"); err != nil {
		t.Error(err)
	}
}

// Streams end with the token, and after five minutes at the latest.
//
// Guarantees: G-0097.2
func TestStreamsEnd(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ expires, want time.Time }{
		{time.Time{}, at.Add(streamTime)}, {at.Add(time.Hour), at.Add(streamTime)}, {at.Add(time.Second), at.Add(time.Second)},
	} {
		if got := (&Principal{Expires: c.expires, checked: at}).Until(); !got.Equal(c.want) {
			t.Errorf("%v: %v, want %v", c.expires, got, c.want)
		}
	}
}

// A caller has the expiry of its token, and the time at which that was checked.
func TestWhoACallerIs(t *testing.T) {
	s, _ := newSite(t, "ada")
	for name, c := range map[string]struct{ expires, until time.Duration }{"for ever": {0, streamTime}, "soon": {time.Minute, time.Minute}, "late": {time.Hour, streamTime}} {
		var expires time.Time
		if c.expires > 0 {
			expires = s.time.Add(c.expires).In(time.FixedZone("", 3600))
		}
		token := s.add(strings.ReplaceAll(name, " ", "-"), expires)
		s.known.Store(s.read())
		r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		who, denied := s.Check(r)
		if denied != nil {
			t.Fatalf("%s: %+v", name, denied)
		}
		if p := who.(*Principal); p.Name != strings.ReplaceAll(name, " ", "-") || !p.Expires.Equal(expires) || !p.Until().Equal(s.time.Add(c.until)) {
			t.Errorf("%s: %+v until %v", name, p, p.Until())
		}
	}
	if text, err := os.ReadFile(s.path); err != nil || strings.Contains(string(text), "+01:00") {
		t.Errorf("the file has times of a zone: %s, %v", text, err)
	}
}

// A file that cannot be read any more lets nobody in, and everybody whom it names when it can be read again.
//
// Guarantees: G-0097.3
func TestAFileThatBreaks(t *testing.T) {
	s, all := newSite(t, "ada")
	good, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(name, of string) string {
		return `{"name":"` + name + `","hash":"` + hashOf(of) + `","made":"2026-01-01T00:00:00Z"}`
	}
	var log bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	for name, c := range map[string]struct{ text, want string }{
		"cut":                  {string(good[:len(good)-3]), "unexpected EOF"},
		"another key":          {strings.Replace(string(good), `"name"`, `"nane"`, 1), `json: unknown field "nane"`},
		"something after":      {string(good) + "{}", "something follows the tokens"},
		"an empty file":        {"", "EOF"},
		"too large":            {string(good) + strings.Repeat(" ", maxFile), "has more than 1048576 bytes"},
		"a hash too short":     {strings.Replace(string(good), `"hash": "`, `"hash": "00`, 1), "token 1, ada: its hash is not that of bowline token add"},
		"a hash in capitals":   {strings.Replace(string(good), hashOf(all[0]), strings.ToUpper(hashOf(all[0])), 1), "token 1, ada: its hash is not that of bowline token add"},
		"a strange name":       {strings.Replace(string(good), `"ada"`, `"a b"`, 1), "token 1: " + ErrName.Error()},
		"one twice":            {`{"tokens":[` + entry("a", "x") + "," + entry("a", "x") + `]}`, "token 2, a: there is another one with this name or hash"},
		"two tokens of a user": {`{"tokens":[` + entry("a", "x") + "," + entry("b", "y") + "," + entry("a", "z") + `]}`, "token 3, a: there is another one with this name or hash"},
		"two users of a token": {`{"tokens":[` + entry("a", "x") + "," + entry("b", "x") + `]}`, "token 2, b: there is another one with this name or hash"},
	} {
		if err := os.WriteFile(s.path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(s.path); err == nil || err.Error() != s.path+": "+c.want && err.Error() != s.path+" "+c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		log.Reset()
		for range 2 {
			s.time = s.time.Add(lookInterval)
			s.want(503, "", "Bearer "+all[0])
		}
		if said := log.String(); strings.Count(said, "nobody is let in until the file of tokens can be read") != 1 || !strings.Contains(said, s.path) {
			t.Errorf("%s: the log says %s", name, said)
		}
		if err := os.WriteFile(s.path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		s.time = s.time.Add(lookInterval)
		s.want(200, "token ada", "Bearer "+all[0])
	}
	// A second change within the time that a file system tells apart is found, too.
	same := time.Now().Add(time.Hour) // so it is not long ago, however slow the machine is
	for _, text := range []string{string(good), strings.Replace(string(good), `"ada"`, `"bob"`, 1)} {
		if err := errors.Join(os.WriteFile(s.path, []byte(text), 0o600), os.Chtimes(s.path, same, same)); err != nil {
			t.Fatal(err)
		}
		s.time = s.time.Add(lookInterval)
		s.status("Bearer " + all[0])
	}
	s.want(200, "token bob", "Bearer "+all[0])
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	s.time = s.time.Add(lookInterval)
	s.want(503, "", "Bearer "+all[0])
}

// Names are checked, each has one token, and whoever changes the file at the same time loses nothing.
//
// Guarantees: G-0097.4
func TestAddAndRevoke(t *testing.T) {
	s, _ := newSite(t, "ada")
	for _, name := range []string{"", "a b", "a\n", strings.Repeat("x", 65), "ä", strings.Repeat("y", 100)} {
		if _, err := Add(s.path, name, time.Time{}); !errors.Is(err, ErrName) || err.Error() != fmt.Sprintf("%.80q: %v", name, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := Add(s.path, "ada", time.Time{}); !errors.Is(err, ErrExists) || err.Error() != "ada: "+ErrExists.Error() {
		t.Error(err)
	}
	if err := Revoke(s.path, "bob"); !errors.Is(err, ErrUnknown) || err.Error() != "bob: "+ErrUnknown.Error() {
		t.Error(err)
	}
	expires := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	upper := s.add("ADA", expires)
	if all, err := List(s.path); err != nil || len(all) != 2 || all[0].Name != "ada" || !all[0].Expires.IsZero() || all[1].Made.Nanosecond() != 0 ||
		all[1] != (Token{Name: "ADA", Hash: hashOf(upper), Made: all[1].Made, Expires: expires}) {
		t.Errorf("%+v, %v", all, err)
	}
	if err := Revoke(s.path, "ADA"); err != nil {
		t.Error(err)
	}
	if all, err := List(filepath.Join(t.TempDir(), "none")); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	var adding sync.WaitGroup
	var mu sync.Mutex
	made := map[string]bool{}
	for _, name := range []string{"b", "c", "d", "e"} {
		adding.Go(func() {
			if _, err := Add(s.path, name, time.Time{}); err == nil {
				mu.Lock()
				defer mu.Unlock()
				made[name] = true
			}
		})
	}
	adding.Wait()
	all, err := List(s.path)
	if err != nil || len(all) != 1+len(made) || len(made) == 0 {
		t.Errorf("%d are left of %d: %v", len(all), 1+len(made), err)
	}
	if info, err := os.Stat(s.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	text, _ := os.ReadFile(s.path)
	if strings.Contains(string(text), prefix) {
		t.Error("a token is in the file")
	}
}

// A client with a token is served as its user, and one without is told how it is refused.
//
// Guarantees: G-0097.1
func TestClientsWithTokens(t *testing.T) {
	s, all := newSite(t, "ada")
	s.File.now = time.Now
	served := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(served, protocol.Tool{Name: "who"}, func(ctx context.Context, _ struct{}) (string, error) {
		return server.RequestFrom(ctx).Origin.Principal.(*Principal).Name, nil
	})
	endpoint := streamable.NewHandler(served, streamable.HandlerOptions{Check: s.Check})
	web := httptest.NewServer(endpoint)
	defer web.Close()
	defer served.Close(context.Background())
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		connect := func(token string) (*client.Session, error) {
			to := &streamable.Client{URL: web.URL, Header: http.Header{"Authorization": {"Bearer " + token}}}
			return client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{ProtocolVersion: version, FailFast: true}).Connect(t.Context(), to)
		}
		session, err := connect(all[0])
		if err != nil {
			t.Fatal(err)
		}
		if who, err := client.Call[string](t.Context(), session, "who", struct{}{}); who != "ada" {
			t.Errorf("%q, %v", who, err)
		}
		session.Close(context.Background())
		if session, err := connect("wrong"); err == nil {
			session.Close(context.Background())
			t.Error("a client with a wrong token is connected")
		}
	}
}

// Whatever a file has: it is refused, or each of its tokens has a name and a hash that no other one has.
//
// Guarantees: G-0097.3
func FuzzFile(f *testing.F) {
	f.Add([]byte(`{"tokens":[{"name":"a","hash":"` + hashOf("x") + `","made":"2026-01-01T00:00:00Z","expires":"2027-01-01T00:00:00Z"}]}`))
	f.Add([]byte(`{"tokens":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := decode(text)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, token := range all {
			if !validName.MatchString(token.Name) || len(token.Hash) != 64 || seen[token.Name] || seen[token.Hash] {
				t.Errorf("%+v", all)
			}
			seen[token.Name], seen[token.Hash] = true, true
		}
	})
}
