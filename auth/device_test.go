package auth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/internal/testenv"
)

// While a person enters the code, the token endpoint is asked as often as the server wants, at most once a second and at least once a
// minute; less often if it says so, is down or overloaded, or cannot be reached. The code counts for as long as the server says,
// between a minute and half an hour.
//
// Guarantees: G-0044.1
func TestHowADeviceIsAwaited(t *testing.T) {
	type answer struct {
		status int // 0: the request does not arrive
		text   string
	}
	pending, slower := answer{http.StatusBadRequest, `{"error":"authorization_pending"}`}, answer{http.StatusBadRequest, `{"error":"slow_down"}`}
	token := answer{http.StatusOK, `{"access_token":"t","token_type":"Bearer"}`}
	const failed = "auth: as.example gave no token: status "
	for name, c := range map[string]struct {
		interval, life any
		answers        []answer
		polls          []int  // in seconds after the code
		want           string // the error; "": none
		nobody         bool   // and whether it is ErrUnanswered
	}{
		"at once":                {5, 600, []answer{token}, []int{5}, "", false},
		"without an interval":    {nil, 600, []answer{token}, []int{5}, "", false},
		"an interval of nothing": {0.001, 600, []answer{pending, token}, []int{1, 2}, "", false},
		"a long interval":        {300, 600, []answer{pending, token}, []int{60, 120}, "", false},
		"pending":                {7, 600, []answer{pending, pending, token}, []int{7, 14, 21}, "", false},
		"slower":                 {7, 600, []answer{slower, slower, pending, token}, []int{7, 19, 36, 53}, "", false},
		"slower, to a minute":    {58, 600, []answer{slower, slower, token}, []int{58, 118, 178}, "", false},
		"down":                   {5, 600, []answer{{500, ""}, {503, ""}, {599, ""}, {500, ""}, {500, ""}, token}, []int{5, 15, 35, 75, 135, 195}, "", false},
		"overloaded":             {5, 600, []answer{{429, `{"error":"x"}`}, pending, token}, []int{5, 15, 25}, "", false},
		"unreachable":            {5, 600, []answer{{}, {}, token}, []int{5, 15, 35}, "", false},
		"denied":                 {5, 600, []answer{pending, {400, `{"error":"access_denied"}`}}, []int{5, 10}, "auth: " + offlineIssuer + " gives no authorization: access_denied", false},
		"expired":                {5, 600, []answer{{400, `{"error":"expired_token"}`}}, []int{5}, "auth: nobody has logged in: " + failed + "400, expired_token", true},
		"another error":          {5, 600, []answer{{400, `{"error":"invalid_grant"}`}}, []int{5}, failed + "400, invalid_grant", false},
		"no token":               {5, 600, []answer{{499, ``}}, []int{5}, failed + "499", false},
		"a short life":           {50, 1, []answer{pending, token}, []int{50}, "auth: nobody has logged in", true},
		"a life of 90 seconds":   {40, 90, []answer{pending, pending, token}, []int{40, 80}, "auth: nobody has logged in", true},
		"no life":                {50, nil, []answer{pending, token}, []int{50}, "auth: nobody has logged in", true},
		"a life of a day":        {59, 86400, slices.Repeat([]answer{pending}, 40), every(59, 30), "auth: nobody has logged in", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newOffline(authtest.Options{})
				f.as.Lie(authtest.Device, func(a *authtest.Answer) { a.Object["interval"], a.Object["expires_in"] = c.interval, c.life })
				var start time.Time
				var polls []int
				f.fetch = func(r *http.Request) (*http.Response, error) {
					if r.URL.Path != "/token" {
						return nil, nil
					}
					polls = append(polls, int(time.Since(start)/time.Second))
					answer := c.answers[len(polls)-1]
					if answer.status == 0 {
						return nil, errors.New("unreachable")
					}
					w := httptest.NewRecorder()
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(answer.status)
					_, err := w.WriteString(answer.text)
					return w.Result(), err
				}
				var shown DeviceCode
				a := f.login(t, Options{Grant: Device{Show: func(_ context.Context, code DeviceCode) error {
					start, shown = time.Now(), code
					return nil
				}}})
				err := a.Login(t.Context())
				if text := strings.TrimPrefix(errorText(err), "auth: log in to "+offlineURL+" first: "); c.want == "" && err != nil || c.want != "" && text != c.want {
					t.Errorf("Login: %v, want %q", err, c.want)
				}
				if errors.Is(err, ErrUnanswered) != c.nobody {
					t.Errorf("nobody has logged in: %t", !c.nobody)
				}
				if diff := cmp.Diff(c.polls, polls); diff != "" {
					t.Errorf("the polls: -want +got\n%s", diff)
				}
				life := time.Minute
				if seconds, ok := c.life.(int); ok {
					life = min(max(time.Duration(seconds)*time.Second, time.Minute), 30*time.Minute)
				}
				if shown.URL != offlineIssuer+"/device-login" || shown.Code != "BOWL-LINE" || shown.Whole != "" || !shown.Expires.Equal(start.Add(life)) {
					t.Errorf("the person is shown %+v, %v before its end", shown, shown.Expires.Sub(start))
				}
			})
		})
	}
}

func every(seconds, times int) (all []int) {
	for i := range times {
		all = append(all, seconds*(i+1))
	}
	return all
}

// What a person is shown has to be a code and an https address, of visible letters and bounded.
//
// Guarantees: G-0044.14
func TestRefusedDeviceCodes(t *testing.T) {
	const failed = "auth: as.example gave no token: status "
	stop := errors.New("stop here")
	shows := func(*offline) Options {
		return Options{Grant: Device{Show: func(context.Context, DeviceCode) error { return stop }}}
	}
	const none, strange, shown = failed + "200, its answer has no code for a device", failed + "200, its address for the person is not https", "stop here"
	address := func(n int) string { return "https://as.example/" + long(n-len("https://as.example/")) }
	wantRefusals(t, shows, map[string]refusedAnswer{
		"no endpoint":            {authtest.Metadata, setMember("device_authorization_endpoint", nil), "auth: metadata at " + offlineIssuer + ": it has no logins for devices"},
		"refused":                {authtest.Device, answerWith(400, `{"error":"invalid_scope"}`), failed + "400, invalid_scope"},
		"another success":        {authtest.Device, answerWith(201, `{}`), failed + "201"},
		"half an answer":         {authtest.Device, answerWith(200, `{"device_code":"x"`), none},
		"no device code":         {authtest.Device, setMember("device_code", ""), none},
		"no code":                {authtest.Device, setMember("user_code", ""), none},
		"no address":             {authtest.Device, setMember("verification_uri", ""), none},
		"a code of two words":    {authtest.Device, setMember("user_code", "a ~"), shown},
		"a code with a bell":     {authtest.Device, setMember("user_code", "a\x07"), none},
		"a code with DEL":        {authtest.Device, setMember("user_code", "a\x7f"), none},
		"a code of 2 KB":         {authtest.Device, setMember("user_code", long(2048)), shown},
		"a longer code":          {authtest.Device, setMember("user_code", long(2049)), none},
		"an address of 2 KB":     {authtest.Device, setMember("verification_uri", address(2048)), shown},
		"a longer address":       {authtest.Device, setMember("verification_uri", address(2049)), none},
		"an address over http":   {authtest.Device, setMember("verification_uri", "http://as.example/"), strange},
		"an address of a script": {authtest.Device, setMember("verification_uri", "javascript:alert(1)"), strange},
		"an address with a code": {authtest.Device, setMember("verification_uri_complete", "https://as.example/?code=x"), shown},
		"one that is a script":   {authtest.Device, setMember("verification_uri_complete", "javascript:alert(1)"), strange},
		"one with a line break":  {authtest.Device, setMember("verification_uri_complete", "https://as.example/\n"), none},
	})
}

// A fastDevice polls as often as the server allows, even more than once a second.
type fastDevice struct{ Device }

func (g fastDevice) token(ctx context.Context, l *login) (*client, *tokenResponse, error) {
	return g.poll(ctx, l, time.Millisecond)
}

// Guarantees: G-0044.1
func TestADevice(t *testing.T) {
	f := newFixture(t, authtest.Options{DevicePolls: 1})
	f.as.Lie(authtest.Device, func(a *authtest.Answer) { a.Object["interval"] = 0.01 })
	shown := make(chan DeviceCode, 1)
	a := f.login(t, Options{Grant: fastDevice{Device{Show: func(_ context.Context, c DeviceCode) error { shown <- c; return nil }}}})
	wantCall(t, a, f.url)
	if c := testenv.Receive(t, shown, "a code is shown"); c.URL == "" || c.Code == "" || time.Until(c.Expires) <= 0 {
		t.Errorf("%+v", c)
	}
	f.as.Lie(authtest.Device, func(a *authtest.Answer) { a.Object["verification_uri"] = "javascript:alert(1)" })
	if err := a.Login(t.Context()); err == nil || len(shown) > 0 {
		t.Errorf("%v", err)
	}
}

// If the server is down or overloaded while the person logs in, polling continues.
//
// Guarantees: G-0044.1
func TestADeviceOutlastsFailures(t *testing.T) {
	f := newFixture(t, authtest.Options{DevicePolls: 2})
	f.as.Lie(authtest.Device, func(a *authtest.Answer) { a.Object["interval"] = 0.01 })
	polls := 0
	f.as.Lie(authtest.Token, func(a *authtest.Answer) {
		if status := []int{429, 503, 200}[min(polls, 2)]; status != 200 {
			a.Status, a.Body = status, []byte("<html>later</html>")
		}
		polls++
	})
	a := f.login(t, Options{Grant: fastDevice{Device{Show: func(context.Context, DeviceCode) error { return nil }}}})
	wantCall(t, a, f.url)
	if polls != 3 {
		t.Errorf("%d polls", polls)
	}
}
