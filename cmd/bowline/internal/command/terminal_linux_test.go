package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/protocol"
	"golang.org/x/sys/unix"
)

// An exchange is what a person at a terminal waits for, and then types.
type exchange struct{ sees, types string }

// onTerminal runs the command with a terminal for all its streams, and simulates a person
// with a dialogue. It returns what was written to the terminal.
func onTerminal(t *testing.T, directory string, dialogue []exchange, args ...string) (screen string, status int) {
	t.Helper()
	cmd := command(t, args...)
	cmd.Dir = directory
	terminal := attach(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Stdin.(*os.File).Close(); err != nil { // the child has it
		t.Fatal(err)
	}
	seen, buffer := 0, make([]byte, 4096)
	for {
		n, err := terminal.Read(buffer)
		screen += strings.ReplaceAll(string(buffer[:n]), "\r\n", "\n")
		for len(dialogue) > 0 {
			at := strings.Index(screen[seen:], dialogue[0].sees)
			if at < 0 {
				break
			}
			seen += at + len(dialogue[0].sees)
			if _, err := terminal.WriteString(dialogue[0].types); err != nil {
				t.Fatal(err)
			}
			dialogue = dialogue[1:]
		}
		if err != nil {
			break // nobody has the other side any more
		}
	}
	status = exitStatus(t, cmd.Wait())
	if len(dialogue) > 0 {
		t.Errorf("%q was not written to the terminal:\n%s", dialogue[0].sees, screen)
	}
	return screen, status
}

// attach sets a new terminal as the standard streams of the command.
func attach(t *testing.T, cmd *exec.Cmd) (controller *os.File) {
	t.Helper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { controller.Close() })
	if err := unix.IoctlSetPointerInt(int(controller.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(controller.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	return controller
}

func wantPrinted(t *testing.T, screen string, fragments ...string) {
	t.Helper()
	for _, fragment := range fragments {
		if !strings.Contains(screen, fragment) {
			t.Errorf("%q is not on the terminal:\n%s", fragment, screen)
		}
	}
}

// TestQuestionsAreAskedOnATerminal checks in both eras that answers are validated, and that
// the question cannot imitate a message of the command.
func TestQuestionsAreAskedOnATerminal(t *testing.T) {
	for _, revision := range []string{protocol.Latest, "2025-11-25"} {
		screen, status := onTerminal(t, "", []exchange{
			{"Do you want to answer? [y/n] ", "y\n"},
			{"name - your name\n", ""}, {"> ", "\n"},
			{"An answer is required", ""}, {"> ", "Ada\n"},
			{"age", ""}, {"> ", "old\n"},
			{`"old" is not an integer`, ""}, {"> ", "36\n"},
			{"2. writer", ""}, {"[reader] > ", "2\n"},
			{"agree", ""}, {"> ", "yes\n"},
		}, withPeer(t, "library", "call", "register", "--revision", revision)...)
		if status != 0 {
			t.Errorf("status %d", status)
		}
		wantPrinted(t, screen, "asks:\n  Who are you?\n  bowline: forged \uFFFD]52;c;aGk=\uFFFD\n", "{Name:Ada Age:36 Kind:writer Agree:true}")
	}
}

// TestQuestionsCanBeDeclinedAndDismissed checks that nothing else than a no declines, such as the
// answer itself.
//
// Guarantees: G-0031.14
func TestQuestionsCanBeDeclinedAndDismissed(t *testing.T) {
	for types, want := range map[string]string{"n\n": "the user declined", "\x04": "the user gave no answer"} {
		screen, status := onTerminal(t, "", []exchange{{"[y/n] ", "Ada\n"}, {"y or n: ", "\n"}, {"y or n: ", types}}, withPeer(t, "library", "call", "register")...)
		if status != process.ExitToolFailed {
			t.Errorf("status %d", status)
		}
		wantPrinted(t, screen, `tool "register" failed: `+want)
	}
}

// TestPagesAreShownWhole checks that the whole URL is shown before the user is asked, and that the
// page is opened only after a yes. Without a browser the user opens it.
//
// Guarantees: G-0031.15
func TestPagesAreShownWhole(t *testing.T) {
	const url, offer = "https://library.test/?a=1#b", "Open library.test in your browser? [y/N] "
	visit := withPeer(t, "library", "call", "visit")
	t.Setenv("PATH", t.TempDir())
	screen, status := onTerminal(t, "", []exchange{{url, ""}, {offer, "y\n"}, {"Have you opened it? [y/N] ", "y\n"}}, visit...)
	if status != 0 {
		t.Errorf("without a browser: status %d", status)
	}
	wantPrinted(t, screen, "visited\n")
	opened := browser(t)
	if screen, status = onTerminal(t, "", []exchange{{url, ""}, {offer, "n\n"}}, visit...); status != process.ExitToolFailed {
		t.Errorf("after a no: status %d", status)
	}
	wantPrinted(t, screen, "the user declined")
	screen, status = onTerminal(t, "", []exchange{{url, ""}, {offer, "y\n"}}, visit...)
	if got := opened(); status != 0 || got != url {
		t.Errorf("after a yes: status %d, opened %q, want %q", status, got, url)
	}
	wantPrinted(t, screen, "visited\n")
}

// TestPagesThatCannotBeOpenedAreNotOffered checks what the command says instead.
//
// Guarantees: G-0031.15
func TestPagesThatCannotBeOpenedAreNotOffered(t *testing.T) {
	for _, c := range []struct {
		url, says, want string
		status          int
		dialogue        []exchange
	}{
		{"file:///etc/passwd", "Declined: this is not the address of a web page.", "the user declined", process.ExitToolFailed, nil},
		{"http://library.test/", "because it is not https", "visited\n", 0, []exchange{{"Have you opened it? [y/N] ", "y\n"}}},
	} {
		t.Setenv("PAGE", c.url)
		screen, status := onTerminal(t, "", append([]exchange{{c.url, ""}, {c.says, ""}}, c.dialogue...), withPeer(t, "library", "call", "visit")...)
		if status != c.status || strings.Contains(screen, "in your browser?") {
			t.Errorf("%s: status %d, want %d without an offer to open it:\n%s", c.url, status, c.status, screen)
		}
		wantPrinted(t, screen, c.want)
	}
}

// TestConsentOnATerminal checks that consent is requested once for each content of a file,
// with the commands that the file starts.
//
// Guarantees: G-0018.16
func TestConsentOnATerminal(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	path := writeConfig(t, ".mcp.json", `{"servers": {"bundled": {"command": "$SELF", "args": ["serve", "--stdio"], "envFile": ".env", "env": {"KEY": "${HOME}"}}}}`)
	directory := filepath.Dir(path)
	write(t, filepath.Join(directory, ".env"), "SECRET=HUNTER2\n")
	call := []string{"call", "echo", "message=hi"}
	screen, status := onTerminal(t, directory, []exchange{{"[y/N] ", "n\n"}}, call...)
	if status != process.ExitUsage {
		t.Errorf("after a no: status %d", status)
	}
	wantPrinted(t, screen, "bundled: ", " serve --stdio  with envFile .env; env KEY\n", "bowline: .mcp.json is not used")
	if strings.Contains(screen, "HUNTER2") {
		t.Errorf("a value is shown:\n%s", screen)
	}
	screen, status = onTerminal(t, directory, []exchange{{"[y/N] ", "y\n"}}, call...)
	if status != 0 {
		t.Errorf("after a yes: status %d", status)
	}
	wantPrinted(t, screen, "hi\n")
	if _, status = onTerminal(t, directory, nil, call...); status != 0 {
		t.Errorf("after an earlier yes: status %d", status)
	}
	bowlineIn(t, directory, call...).want(t, 0, "hi\n", "")
}

// TestInputsAreAskedOnATerminal checks that inputs are requested, and a password is not
// shown.
func TestInputsAreAskedOnATerminal(t *testing.T) {
	path := writeConfig(t, "mcp.json", `{"inputs": [
		{"id": "word", "type": "promptString", "description": "a word"},
		{"id": "key", "type": "promptString", "password": true}],
		"servers": {"a": {"command": "$SELF", "env": {"GREETING": "${input:word} ${input:key}", "`+role+`": "odd"}}}}`)
	screen, status := onTerminal(t, "", []exchange{{"word - a word\n", ""}, {"> ", "hello\n"}, {"key\n", ""}, {"> ", "HUNTER2\r"}},
		"call", "arguments", "--mcp-config", path)
	if status != 0 || strings.Contains(screen, "HUNTER2") {
		t.Errorf("status %d:\n%s", status, screen)
	}
	for _, leave := range []string{"\x03", "\x04"} { // Ctrl-C and Ctrl-D, while nothing is shown
		screen, status = onTerminal(t, "", []exchange{{"> ", "hello\n"}, {"> ", leave}}, "tools", "--mcp-config", path)
		if status != process.ExitUsage {
			t.Errorf("after %q: status %d", leave, status)
		}
		wantPrinted(t, screen, `"${input:key}" has no answer: the user gave none`)
	}
	screen, _ = onTerminal(t, "", []exchange{{"> ", "hello\n"}, {"> ", "there\r"}}, "call", "surroundings", "--mcp-config", path)
	wantPrinted(t, screen, " hello there\n")
}

// TestAReloadAsksOnlyForWhatIsNew answers an input of a gateway, and reads its file again, first as it was, and then with another input.
//
// Guarantees: G-0088.13
func TestAReloadAsksOnlyForWhatIsNew(t *testing.T) {
	inputs := func(ids ...string) string {
		text, uses := "", ""
		for _, id := range ids {
			text += `{"id": "` + id + `", "type": "promptString", "description": "please"},`
			uses += "${input:" + id + "}"
		}
		return `{"inputs": [` + text + `], "servers": {"a": {"command": "$SELF", "env": {"X": "` + uses + `", "` + role + `": "odd"}}}}`
	}
	path := writeConfig(t, "mcp.json", inputs("one"))
	up := command(t, "up", path, "--http", ":0", "--admin", "off")
	terminal := attach(t, up)
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	seen, screen, buffer := 0, "", make([]byte, 4096)
	await := func(fragment string) {
		t.Helper()
		for !strings.Contains(screen[seen:], fragment) {
			n, err := terminal.Read(buffer)
			if screen += string(buffer[:n]); err != nil || strings.Count(screen, "one - please") > 1 {
				t.Fatalf("%q is not on the terminal, %v:\n%s", fragment, err, screen)
			}
		}
		seen += strings.Index(screen[seen:], fragment) + len(fragment)
	}
	await("> ")
	terminal.WriteString("first\n")
	await("serving")
	up.Process.Signal(syscall.SIGHUP)
	await("the file was read again")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(inputs("one", "two"), "$SELF", executable(t))), 0o600); err != nil {
		t.Fatal(err)
	}
	up.Process.Signal(syscall.SIGHUP)
	await("two - please")
	terminal.WriteString("second\n")
	await("the file was read again")
	up.Process.Signal(syscall.SIGTERM)
	if status := exitStatus(t, up.Wait()); status != 0 {
		t.Errorf("status %d", status)
	}
}

// TestServersCannotDriveATerminal checks that control characters in answers are not printed.
func TestServersCannotDriveATerminal(t *testing.T) {
	for _, args := range [][]string{{"read", "book://moby"}, {"inspect"}, {"inspect", "--json"}} {
		screen, status := onTerminal(t, "", nil, withPeer(t, "library", args...)...)
		if status != 0 || strings.Contains(screen, "\x1b") {
			t.Errorf("%v: status %d, the terminal got %q", args, status, screen)
		}
	}
	screen, _ := onTerminal(t, "", nil, withPeer(t, "library", "read", "book://cover")...)
	wantPrinted(t, screen, "[resource: book://cover, image/png, 4 bytes]\n")
}

// TestLoginsCannotDriveATerminal checks that control characters of a login are not printed.
func TestLoginsCannotDriveATerminal(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	dir, err := auth.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	const url = "http://127.0.0.1:1/mcp"
	if err := auth.NewFiles(dir, nil).Locked(t.Context(), auth.Key{Resource: url}, func(*auth.Entry) (*auth.Entry, error) {
		return &auth.Entry{Issuer: "https://as.test", ClientID: "a\u009b2Jb\u202ec", Access: auth.NewSecret("T0KEN")}, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"auth", "status"}, {"auth", "status", "--json"}} {
		screen, status := onTerminal(t, "", nil, args...)
		if status != 0 || strings.ContainsAny(screen, "\u009b\u202e") {
			t.Errorf("%v: status %d, the terminal got %q", args, status, screen)
		}
		wantPrinted(t, screen, "a\uFFFD2Jb\uFFFDc")
	}
}
