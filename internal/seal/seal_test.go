package seal

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func secret(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }

func fixed(secrets ...[]byte) func() [][]byte { return func() [][]byte { return secrets } }

// What is sealed opens with any of the keys, for its purpose, and with what it is about.
// Otherwise, and after any change of a bit, it does not open.
//
// Guarantees: G-0080.1
func TestSealedValuesOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value, about := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "value"), rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "about")
		sealed, err := New("p", fixed(secret(1))).Seal(value, about)
		if err != nil || len(sealed) != len(value)+Overhead {
			t.Fatalf("sealed %d bytes as %d: %v", len(value), len(sealed), err)
		}
		for _, s := range []*Sealer{New("p", fixed(secret(1))), New("p", fixed(secret(2), secret(1)))} {
			if got, err := s.Open(sealed, about); err != nil || !bytes.Equal(got, value) {
				t.Fatalf("opened %x as %x: %v", value, got, err)
			}
		}
		changed := bytes.Clone(sealed)
		bit := rapid.IntRange(0, 8*len(sealed)-1).Draw(t, "bit")
		changed[bit/8] ^= 1 << (bit % 8)
		short := sealed[:rapid.IntRange(0, len(sealed)-1).Draw(t, "length")]
		for what, open := range map[string]func() ([]byte, error){
			"another key":     func() ([]byte, error) { return New("p", fixed(secret(2))).Open(sealed, about) },
			"no key":          func() ([]byte, error) { return New("p", fixed()).Open(sealed, about) },
			"another purpose": func() ([]byte, error) { return New("q", fixed(secret(1))).Open(sealed, about) },
			"another name":    func() ([]byte, error) { return New("p", fixed(secret(1))).Open(sealed, append(about, 'x')) },
			"a changed bit":   func() ([]byte, error) { return New("p", fixed(secret(1))).Open(changed, about) },
			"a part of it":    func() ([]byte, error) { return New("p", fixed(secret(1))).Open(short, about) },
		} {
			if _, err := open(); !errors.Is(err, ErrOpen) {
				t.Fatalf("%s: got %v, want ErrOpen", what, err)
			}
		}
	})
}

// Keys are replaced while a Sealer is in use: the first one seals, and a removed one does not
// open any more.
//
// Guarantees: G-0080.1
func TestKeysRotate(t *testing.T) {
	var secrets [][]byte
	s := New("p", func() [][]byte { return secrets })
	if _, err := s.Seal(nil, nil); err == nil {
		t.Error("sealed without a key")
	}
	secrets = [][]byte{secret(1)}
	old, err := s.Seal([]byte("old"), nil)
	if err != nil {
		t.Fatal(err)
	}
	secrets = [][]byte{secret(2), secret(1)}
	young, err := s.Seal([]byte("young"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Open(old, nil); string(got) != "old" {
		t.Errorf("the older value: %q, %v", got, err)
	}
	secrets = [][]byte{secret(2)}
	if got, err := s.Open(young, nil); string(got) != "young" {
		t.Errorf("the newer value: %q, %v", got, err)
	}
	if _, err := s.Open(old, nil); !errors.Is(err, ErrOpen) {
		t.Errorf("the older value without its key: %v", err)
	}
	secrets[0][0]++ // the program reuses its memory
	if _, err := s.Open(young, nil); !errors.Is(err, ErrOpen) {
		t.Errorf("the newer value without its key: %v", err)
	}
}

// A secret that is too short is an error, and not one more key.
//
// Guarantees: G-0080.1
func TestShortSecrets(t *testing.T) {
	s := New("p", fixed(secret(1), secret(2)[:31]))
	if _, err := s.Seal(nil, nil); err == nil {
		t.Error("sealed with a short secret")
	}
	if _, err := s.Open(make([]byte, Overhead), nil); err == nil || errors.Is(err, ErrOpen) {
		t.Errorf("opened with a short secret: %v", err)
	}
}
