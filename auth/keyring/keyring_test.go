package keyring

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/zalando/go-keyring"
	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/auth"
)

func TestMain(m *testing.M) {
	os.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nobody/listens/here") // so that no desktop of the machine is used
	config, err := os.MkdirTemp("", "keyring")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"XDG_CONFIG_HOME", "HOME", "AppData"} {
		os.Setenv(name, config)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		os.RemoveAll(config)
		os.Exit(status)
	}))
}

const program = "bowline-test"

// The key is created once, and is the same for every process.
func TestKey(t *testing.T) {
	keyring.MockInit()
	first, err := Key(program)(t.Context())
	if err != nil || len(first) != keySize || bytes.Equal(first, make([]byte, keySize)) {
		t.Fatalf("%x, %v", first, err)
	}
	if again, err := Key(program)(t.Context()); err != nil || !bytes.Equal(again, first) {
		t.Errorf("%x and then %x, %v", first, again, err)
	}
	if other, err := Key("another")(t.Context()); err != nil || bytes.Equal(other, first) {
		t.Errorf("another program has the same key, %v", err)
	}
}

// Logins are sealed with the key, and cannot be read with another key ring.
func TestFilesSealedWithAKeyRing(t *testing.T) {
	keyring.MockInit()
	dir, k := t.TempDir(), auth.Key{Resource: "https://mcp.test"}
	save := func(*auth.Entry) (*auth.Entry, error) {
		return &auth.Entry{Issuer: "https://as.test", Access: auth.NewSecret("T0KEN")}, nil
	}
	if err := auth.NewSealedFiles(dir, Key(program), nil).Locked(t.Context(), k, save); err != nil {
		t.Fatal(err)
	}
	if e, err := auth.NewSealedFiles(dir, Key(program), nil).Load(t.Context(), k); err != nil || e.Access.Reveal() != "T0KEN" {
		t.Errorf("%v, %v", e, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	if text, err := os.ReadFile(files[0]); err != nil || bytes.Contains(text, []byte("T0KEN")) {
		t.Errorf("%s, %v", text, err)
	}
	keyring.MockInit()
	if e, err := auth.NewSealedFiles(dir, Key(program), nil).Load(t.Context(), k); err == nil {
		t.Errorf("without its key the entry is %v", e)
	}
}

// An invalid key in the key ring is not used, and not replaced.
func TestWhatIsNoKey(t *testing.T) {
	for _, text := range []string{"", "secret", base64.StdEncoding.EncodeToString([]byte("short"))} {
		keyring.MockInit()
		if err := keyring.Set(program, userName, text); err != nil {
			t.Fatal(err)
		}
		key, err := Key(program)(t.Context())
		if err == nil || err.Error() != `keyring: what the key ring has for "bowline-test" as "seal of logins" is no key` {
			t.Errorf("%q: %x, %v", text, key, err)
		}
		if kept, err := keyring.Get(program, userName); err != nil || kept != text {
			t.Errorf("%q became %q, %v", text, kept, err)
		}
	}
}

// A key ring that fails does not count as missing.
func TestAKeyRingThatFails(t *testing.T) {
	locked := errors.New("the prompt was dismissed")
	keyring.MockInitWithError(locked)
	if _, err := Key(program)(t.Context()); !errors.Is(err, locked) || errors.Is(err, auth.ErrNoKey) {
		t.Errorf("%v", err)
	}
	keyring.MockInitWithError(keyring.ErrUnsupportedPlatform)
	if _, err := Key(program)(t.Context()); !errors.Is(err, auth.ErrNoKey) || !errors.Is(err, keyring.ErrUnsupportedPlatform) {
		t.Errorf("%v", err)
	}
}
