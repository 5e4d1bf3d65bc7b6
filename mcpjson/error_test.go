package mcpjson

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mistakes returns the lines of the error for a text.
func mistakes(t *testing.T, text string, env variables) string {
	t.Helper()
	f, err := parse("m", text, env)
	if err == nil {
		f.ReadFile = func(string) ([]byte, error) { return []byte(strings.Repeat("#", 1<<20)), nil }
		err = f.Check()
	}
	var wrong *Error
	if !errors.As(err, &wrong) {
		t.Errorf("%.200s\ngives %v, want an *Error", text, err)
		return ""
	}
	return err.Error()
}

const issuerForm = "expected a URL of https, with a host; http is for loopback hosts only"

// TestMistakes checks each kind of mistake in its own file. The text of a server begins on
// the second line, after four characters.
//
// Guarantees: G-0018.3
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`[]`, "m:1:1: expected an object, got an array"},
		{`{}`, "m:1:1: expected mcpServers, servers or context_servers"},
		{" \n {\"mcpservers\": {}}", "m:2:2: expected mcpServers, servers or context_servers; did you mean mcpServers?"},
		{`{"mcp-server": {}}`, "m:1:1: expected mcpServers, servers or context_servers; did you mean mcpServers?"},
		{`{"Servers": {}}`, "m:1:1: expected mcpServers, servers or context_servers; did you mean servers?"},
		{`{"server": {}}`, "m:1:1: expected mcpServers, servers or context_servers; did you mean servers?"},
		{`{"hosts": {}}`, "m:1:1: expected mcpServers, servers or context_servers"},
		{`{"mcpServers": 3}`, "m:1:16: mcpServers: expected an object, got a number"},
		{`{"mcpServers": 3, "servers": {"a": {}}}`, "m:1:16: mcpServers: expected an object, got a number"},
		{`{"servers": {"a": {"command": "x"}, "a": {"command": "x"}, "b": {}}}`, "m:1:37: servers.a: the name is repeated: rename or remove one of the two\nm:1:60: servers.b: it has neither a command nor a url: give it one of them"},
		{`{"servers": {"{": {}, "Z9z": {}}}`, "m:1:14: servers[\"{\"]: it has neither a command nor a url: give it one of them\nm:1:23: servers.Z9z: it has neither a command nor a url: give it one of them"},
		{`{"servers": {}, "servers": {}}`, "m:1:17: servers: the name is repeated"},
		{`{"servers": {"a": null}}`, "m:1:19: servers.a: expected an object, got null"},
		{`{"servers": {"a": {"command": "x"}, "\u0061": {"command": "x"}}}`, "m:1:37: servers.a: the name is repeated: rename or remove one of the two"},
		{`{"servers": {"a": {"command": "x"}}, "mcpServers": {"a": {"command": "x"}}}`, "m:1:53: mcpServers.a: servers and mcpServers both name it: rename or remove one of the two"},
		{`{"servers": {"": {"command": "x"}}}`, `m:1:14: servers[""]: the name is empty`},
		{`{"servers": {"a\u001b": {"command": "x"}}}`, `m:1:14: servers["a\x1b"]: the name has a control character`},
		{server(``), "m:2:1: servers.a: it has neither a command nor a url: give it one of them"},
		{server(`"bowline": {"auth": {}}`), "m:2:1: servers.a: it has neither a command nor a url: give it one of them"},
		{server(`"type": "http", "args": 7`), "m:2:1: servers.a: it has neither a command nor a url: give it one of them\nm:2:31: servers.a.args: expected an array of strings, got a number"},
		{server(`"command": null`), "m:2:1: servers.a: it has neither a command nor a url: give it one of them"},
		{server(`"command": "x", "url": "http://h"`), "m:2:1: servers.a: it has both a command and a url: remove one of them"},
		{server(`"command": "x", "url": "http://h", "args": 7`), "m:2:1: servers.a: it has both a command and a url: remove one of them\nm:2:50: servers.a.args: expected an array of strings, got a number"},
		{server(`"url": 5`), "m:2:14: servers.a.url: expected a string, got a number"},
		{server(`"command": "x", "command": "y", "args": 7`), "m:2:23: servers.a.command: the name is repeated\nm:2:47: servers.a.args: expected an array of strings, got a number"},
		{server(`"command": "x", "command": "y"`), "m:2:23: servers.a.command: the name is repeated"},
		{server(`"command": ["x"]`), "m:2:18: servers.a.command: expected a string, got an array"},
		{server(`"command": "${E}"`), "m:2:18: servers.a.command: the command is empty"},
		{server(`"command": "x\u0000"`), "m:2:18: servers.a.command: it contains a NUL character, which no program can receive"},
		{server(`"command": "x", "args": 1`), "m:2:31: servers.a.args: expected an array of strings, got a number"},
		{server(`"command": "x", "args": ["-p", 8080]`), "m:2:38: servers.a.args[1]: expected a string, got a number"},
		{server(`"command": "x", "args": [null]`), "m:2:32: servers.a.args[0]: expected a string, got null"},
		{server(`"command": "x", "env": []`), "m:2:30: servers.a.env: expected an object, got an array"},
		{server(`"command": "x", "env": {"PORT": [80]}`), "m:2:39: servers.a.env.PORT: expected a string, a number or a boolean, got an array"},
		{server(`"command": "x", "env": {"A=B": "c"}`), `m:2:31: servers.a.env["A=B"]: this cannot be the name of an environment variable`},
		{server(`"command": "x", "env": {"": "c"}`), `m:2:31: servers.a.env[""]: this cannot be the name of an environment variable`},
		{server(`"command": "x", "cwd": true`), "m:2:30: servers.a.cwd: expected a string, got a boolean"},
		{server(`"command": "x", "disabled": "no"`), "m:2:35: servers.a.disabled: expected true or false, got a string"},
		{server(`"command": "x", "enabled": 0`), "m:2:34: servers.a.enabled: expected true or false, got a number"},
		{server(`"command": "x", "type": "SSE"`), "m:2:31: servers.a.type: a server of this type has a url, not a command"},
		{server(`"command": "x", "httpUrl": "http://h"`), "m:2:1: servers.a: it has both a command and a url: remove one of them"},
		{server(`"command": "x", "disabled": {}`), "m:2:35: servers.a.disabled: expected true or false, got an object"},
		{server(`"command": "x", "type": "docker"`), `m:2:31: servers.a.type: "docker" is none of stdio, http, streamable-http and sse`},
		{server(`"command": "x", "type": "${S}"`), `m:2:31: servers.a.type: "${S}" is none of stdio, http, streamable-http and sse`},
		{server(`"command": "x", "type": "http"`), "m:2:31: servers.a.type: a server of this type has a url, not a command"},
		{server(`"url": "http://h", "type": "stdio"`), "m:2:34: servers.a.type: a server of this type has a command, not a url"},
		{server(`"url": "ws://h"`), "m:2:14: servers.a.url: expected a URL of http or https, with a host"},
		{server(`"url": "http://:80/x"`), "m:2:14: servers.a.url: expected a URL of http or https, with a host"},
		{server(`"url": "http://h/%zz${S}"`), "m:2:14: servers.a.url: expected a URL of http or https, with a host"},
		{server(`"url": "http://h", "headers": {"a b": "c"}`), `m:2:38: servers.a.headers["a b"]: this cannot be the name of a header`},
		{server(`"url": "http://h", "headers": {"A": "b", "a": "c"}`), "m:2:48: servers.a.headers.a: the header is repeated: case does not matter"},
		{server(`"url": "http://h", "headers": {"a": "${L}"}`), "m:2:43: servers.a.headers.a: a header cannot hold a line break or control character"},
		{server(`"url": "http://h", "headers": "a: b"`), "m:2:37: servers.a.headers: expected an object, got a string"},
		{server(`"command": "x", "timeout": "30s"`), "m:2:34: servers.a.timeout: expected a number of milliseconds, got a string"},
		{server(`"command": "x", "timeout": 0`), "m:2:34: servers.a.timeout: expected a number of milliseconds above 0, of at most 2147483647"},
		{server(`"command": "x", "timeout": -1`), "m:2:34: servers.a.timeout: expected a number of milliseconds above 0, of at most 2147483647"},
		{server(`"command": "x", "timeout": 2147483648`), "m:2:34: servers.a.timeout: expected a number of milliseconds above 0, of at most 2147483647"},
		{server(`"command": "x", "timeout": 1e999`), "m:2:34: servers.a.timeout: expected a number of milliseconds above 0, of at most 2147483647"},
		{server(`"command": "x", "bowline": "30s"`), "m:2:34: servers.a.bowline: expected an object, got a string"},
		{server(`"command": "x", "bowline": {"inittimeout": "1s"}`), "m:2:35: servers.a.bowline.inittimeout: unknown: there are only " + strings.Join(settingNames, ", ") + " here"},
		{server(`"command": "x", "bowline": {"retries": 1.5}`), "m:2:46: servers.a.bowline.retries: expected a whole number from 0 to 100"},
		{server(`"command": "x", "bowline": {"retries": -1}`), "m:2:46: servers.a.bowline.retries: expected a whole number from 0 to 100"},
		{server(`"command": "x", "bowline": {"retries": "1"}`), "m:2:46: servers.a.bowline.retries: expected a whole number from 0 to 100"},
		{server(`"command": "x", "bowline": {"retries": 101}`), "m:2:46: servers.a.bowline.retries: expected a whole number from 0 to 100"},
		{server(`"command": "x", "bowline": {"retries": [1]}`), "m:2:46: servers.a.bowline.retries: expected a whole number from 0 to 100"},
		{server(`"command": "x", "bowline": {"maxTimeout": "0s"}`), `m:2:49: servers.a.bowline.maxTimeout: "0s" is not a duration above zero, such as 30s or 2m`},
		{server(`"command": "x", "bowline": {"waitForReady": 1}`), "m:2:51: servers.a.bowline.waitForReady: expected true or false, got a number"},
		{server(`"command": "x", "bowline": {"liveness": "never"}`), `m:2:47: servers.a.bowline.liveness: "never" is not a duration above zero, such as 30s or 2m`},
		{server(`"command": "x", "bowline": {"backoffMin": "2s", "backoffMax": "1s"}`), "m:2:49: servers.a.bowline.backoffMin: it is above backoffMax"},
		{server(`"command": "x", "bowline": {"toolModes": {"t": "sticky"}}`), "m:2:54: servers.a.bowline.toolModes.t: expected stateless or stateful"},
		{server(`"command": "x", "bowline": {"toolModes": {"t": "sticky", "u": 7}}`), "m:2:54: servers.a.bowline.toolModes.t: expected stateless or stateful\nm:2:69: servers.a.bowline.toolModes.u: expected a string, got a number"},
		{server(`"command": "x", "bowline": {"toolModes": []}`), "m:2:48: servers.a.bowline.toolModes: expected an object, got an array"},
		{server(`"url": "http://h/", "bowline": {"auth": {"grant": "magic"}}`), "m:2:57: servers.a.bowline.auth.grant: expected one of authorization_code, client_credentials, device"},
		{server(`"url": "http://h/", "bowline": {"auth": {"secret": "x"}}`), "m:2:48: servers.a.bowline.auth.secret: unknown: there are only " + strings.Join(authNames[:], ", ") + " here"},
		{server(`"url": "http://h/", "bowline": {"auth": {"grant": "client_credentials"}}`), "m:2:47: servers.a.bowline.auth: a clientId is missing"},
		{server(`"url": "http://h/", "bowline": {"auth": {"clientSecret": "s"}}`), "m:2:47: servers.a.bowline.auth: a clientId is missing"},
		{server(`"url": "http://h/", "bowline": {"auth": {"clientId": "c", "issuer": "https://%zz"}}`), "m:2:75: servers.a.bowline.auth.issuer: " + issuerForm},
		{server(`"url": "http://h/", "bowline": {"auth": {"clientMetadataUrl": "http://c/x"}}`), "m:2:69: servers.a.bowline.auth.clientMetadataUrl: expected a URL of https, with a path"},
		{server(`"url": "http://h/", "bowline": {"auth": {"clientId": "c", "issuer": "as"}}`), "m:2:75: servers.a.bowline.auth.issuer: " + issuerForm},
		{server(`"url": "http://h/", "bowline": {"auth": {"clientId": "c", "issuer": "http://as.test"}}`), "m:2:75: servers.a.bowline.auth.issuer: " + issuerForm},
		{server(`"url": "http://h/", "bowline": {"auth": {"clientId": "c", "issuer": "ftp://localhost"}}`), "m:2:75: servers.a.bowline.auth.issuer: " + issuerForm},
		{server(`"url": "http://h/", "bowline": {"auth": {"clientId": "c", "issuer": "https:///as"}}`), "m:2:75: servers.a.bowline.auth.issuer: " + issuerForm},
		{server(`"url": "http://h/", "bowline": {"auth": {"issuer": "https://as.test", "grant": "device"}}`),
			"m:2:58: servers.a.bowline.auth.issuer: it has no effect without a clientId: add the one of this issuer, or remove the issuer"},
		{server(`"url": "http://h/", "bowline": {"auth": {"port": 70000}}`), "m:2:56: servers.a.bowline.auth.port: expected a whole number from 0 to 65535"},
		{server(`"command": "x", "bowline": {"auth": {}}`), "m:2:34: servers.a.bowline: auth is for a server that is reached over HTTP"},
		{server(`"command": "x", "bowline": {"initTimeout": 30}`), "m:2:50: servers.a.bowline.initTimeout: expected a string, got a number"},
		{server(`"command": "x", "bowline": {"initTimeout": "30"}`), `m:2:50: servers.a.bowline.initTimeout: "30" is not a duration above zero, such as 30s or 2m`},
		{server(`"command": "x", "bowline": {"requestTimeout": "-${S:-1s}"}`), `m:2:53: servers.a.bowline.requestTimeout: "-${S:-1s}" is not a duration above zero, such as 30s or 2m`},
	} {
		if got := mistakes(t, c.text, variables{"E": "", "L": "a\r\nb", "S": "secret"}); got != c.want {
			t.Errorf("%s\ngives %s\nwant  %s", c.text, got, c.want)
		}
	}
}

func server(settings string) string { return "{\"servers\": {\n\"a\": {" + settings + "}}}" }

// TestSyntax checks the place of a syntax error.
//
// Guarantees: G-0018.3
func TestSyntax(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", `m:1:1: the file is empty; without servers it is {"mcpServers": {}}`},
		{"\uFEFF \n", `m:1:1: the file is empty; without servers it is {"mcpServers": {}}`},
		{"// nothing", "m:1:11: parsing value: unexpected EOF"},
		{"\n\n{1: 1}", "m:3:2: invalid character '1' at start of object name"},
		{"{\n  \"a\": 1", "m:2:9: parsing object after value: unexpected EOF"},
		{"{\n  \"a\": 1\n  \"b\": 2}", "m:3:3: invalid character '\"' after object value (expecting ',' or '}')"},
		{"{\"a\" 1}", "m:1:6: invalid character '1' after object name"},
		{"{1: 1}", "m:1:2: invalid character '1' at start of object name"},
		{"{,}", "m:1:2: invalid character ',' at start of value"},
		{"[1,,]", "m:1:4: invalid character ',' at start of value"},
		{"{} {}", "m:1:4: invalid character '{' after top-level value"},
		{"{} /* no end", "m:1:4: parsing comment: unexpected EOF"},
		{"{\"a\": yes}", "m:1:7: invalid literal: yes"},
		{"{\"a\": " + strings.Repeat("yes", 100) + "}", "m:1:7: invalid literal: " + strings.Repeat("yes", 34) + "y"},
		{"\uFEFF{\"a\": \"C:\\Users\"}", `m:1:7: invalid string: a control character, or a \ that escapes nothing; a \ itself is \\`},
		{"{\"a\": \"\x1b]0;title\x07\"}", `m:1:7: invalid string: a control character, or a \ that escapes nothing; a \ itself is \\`},
		{"{\"a\": \"", "m:1:8: parsing string: unexpected EOF"},
		{"{\n\"\uFFFD\": \"\xff\"}", "m:2:9: this is not UTF-8: save the file as UTF-8"},
		{"{\n\"a\": \"\xff\"}", "m:2:7: this is not UTF-8: save the file as UTF-8"},
		{"\xff\xfe{\x00}\x00", "m:1:1: this is not UTF-8: save the file as UTF-8"},
	} {
		if got := mistakes(t, c.text, nil); got != c.want {
			t.Errorf("%q\ngives %s\nwant  %s", c.text, got, c.want)
		}
	}
}

// TestAllErrorsAreReportedTogether checks that all mistakes are reported in file order, without the
// value of an environment variable.
//
// Guarantees: G-0018.3, G-0018.4
func TestAllErrorsAreReportedTogether(t *testing.T) {
	text := `{
  "inputs": [],
  "mcpServers": {
    "my.files": {
      "timeout": "1m",
      "args": [1, "${MISSING} ${input:key}", "${TOKEN}"],
      "env": {"A": "${TOKEN}", "B": null},
    },
    "web": {
      "url": "${TOKEN}", // not a URL
      "type": "${TOKEN}",
      "bowline": {"initTimeout": "${TOKEN}", "tries": 3},
    },
    "off": {"disabled": true, "command": "${MISSING}", "args": 7},
    "web": {},
  },
}`
	want := `m:4:5: mcpServers["my.files"]: it has neither a command nor a url: give it one of them
m:5:18: mcpServers["my.files"].timeout: expected a number of milliseconds, got a string
m:6:16: mcpServers["my.files"].args[0]: expected a string, got a number
m:6:19: mcpServers["my.files"].args[1]: the environment variable MISSING is not set, and there is no default: set it, or write ${MISSING:-default}
m:6:19: mcpServers["my.files"].args[1]: "${input:key}": the file has no input of that id
m:7:37: mcpServers["my.files"].env.B: expected a string, a number or a boolean, got null
m:10:14: mcpServers.web.url: expected a URL of http or https, with a host
m:11:15: mcpServers.web.type: "${TOKEN}" is none of stdio, http, streamable-http and sse
m:12:34: mcpServers.web.bowline.initTimeout: "${TOKEN}" is not a duration above zero, such as 30s or 2m
m:12:46: mcpServers.web.bowline.tries: unknown: there are only ` + strings.Join(settingNames, ", ") + ` here
m:15:5: mcpServers.web: the name is repeated: rename or remove one of the two`
	if diff := cmp.Diff(want, mistakes(t, text, variables{"TOKEN": "s3cret"})); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s", diff)
	}
}

// TestMistakesCanBeRead checks that a program can read the mistakes from the error.
func TestMistakesCanBeRead(t *testing.T) {
	f, err := Parse("dir/mcp.json", []byte(server(`"command": "x", "args": 1`)))
	if err != nil {
		t.Fatal(err)
	}
	var wrong *Error
	if _, err := f.Server("a"); !errors.As(err, &wrong) {
		t.Fatalf("Server: %v", err)
	}
	want := &Error{"dir/mcp.json", []Mistake{{2, 31, "servers.a.args", "expected an array of strings, got a number"}}}
	if diff := cmp.Diff(want, wrong); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

// TestBounds checks the limits of the file, its depth, its expansion and its mistakes.
//
// Guarantees: G-0018.11
func TestBounds(t *testing.T) {
	fits := `{"servers": {}}` + strings.Repeat(" ", 1<<20-15)
	mustParse(t, fits, nil)
	mustParse(t, `{"servers": {}, "x": `+strings.Repeat("[", 9_998)+strings.Repeat("]", 9_998)+`}`, nil)
	long := variables{"LONG": strings.Repeat("x", 1<<18)}
	mustParse(t, server(`"command": "${LONG}${LONG}${LONG}${LONG}"`), long)
	for name, c := range map[string]struct{ text, want string }{
		"size":      {fits + " ", "m:1:1: the file is above the limit of 1048576 bytes"},
		"depth":     {`{"servers": {}, "x": ` + strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999) + `}`, "m:1:1: the file has more than 10000 opening brackets"},
		"open":      {strings.Repeat("[", 1<<20), "m:1:1: the file has more than 10000 opening brackets"},
		"cut":       {`{"servers": {}}` + strings.Repeat(" ", 1<<20-15) + " 1", "m:1:1: the file is above the limit of 1048576 bytes"},
		"env file":  {server(`"command": "x", "args": ["${LONG}${LONG}", "${LONG}${LONG}"], "envFile": "/e"`), "m:2:80: servers.a.envFile: the variables of the server stand for more than 1048576 bytes"},
		"both":      {server(`"command": "x", "args": ["${LONG}${LONG}${LONG}${LONG}${LONG}"], "envFile": "/e"`), "m:2:32: servers.a.args[0]: the variables of the server stand for more than 1048576 bytes"},
		"expansion": {server(`"command": "x", "args": ["${LONG}", "${LONG}${LONG}${LONG}", "${LONG}", "${LONG}"]`), "m:2:68: servers.a.args[2]: the variables of the server stand for more than 1048576 bytes"},
	} {
		if got := mistakes(t, c.text, long); got != c.want {
			t.Errorf("%s: %.300s\nwant %s", name, got, c.want)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	mistakes(t, server(`"command": "`+strings.Repeat("${LONG}", 1000)+`"`), long)
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 64<<20 {
		t.Errorf("variables of 250 MiB took %d bytes", after.TotalAlloc-before.TotalAlloc)
	}
	many := mistakes(t, server(`"command": "x", "args": [`+strings.Repeat("1, ", 1000)+`]`), nil)
	lines := strings.Split(many, "\n")
	if last := fmt.Sprintf("m:2:%d: servers.a.args[99]: ", 32+3*99); len(lines) != 100 || !strings.HasPrefix(lines[99], last) {
		t.Errorf("1000 mistakes are %d lines, the last %s", len(lines), lines[len(lines)-1])
	}
}
