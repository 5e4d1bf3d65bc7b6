package doors

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bowline-mcp/bowline/internal/private"
)

const socketEnd = ".sock"

// folder is where the sockets are. A runtime folder is the user's own and empty after a restart of the machine.
func folder() (string, error) { return folderIn("/run/user") }

// folderIn returns the folder of the sockets. Many hosts give the commands that they start HOME and PATH, and no XDG_RUNTIME_DIR: these must find
// the gateway that a terminal finds, so systemd's folder of this user, below users, is used without the variable, too.
func folderIn(users string) (string, error) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "bowline"), nil
	}
	dir := filepath.Join(users, strconv.Itoa(os.Geteuid()))
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm() == 0o700 && private.CheckFolder(dir) == nil {
		return filepath.Join(dir, "bowline"), nil
	}
	return stateOf("run")
}

// socketOf names the socket of the gateway of a file.
func socketOf(file string) (string, error) {
	dir, err := folder()
	if err != nil {
		return "", err
	}
	name, err := nameOf(file)
	return filepath.Join(dir, name+socketEnd), err
}

// nameOf names what belongs to the gateway of a file. Links to a file are the same file.
func nameOf(file string) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:8]), nil
}

// SessionsOf names the folder of the sessions of the clients of a file's gateway. It is beside the user's settings and not in the runtime
// folder, since clients outlive a restart of this machine's session.
func SessionsOf(file string) (string, error) { return folderOf("sessions", file) }

// LoginsOf names the folder of the logins that users of a file's gateway have at its servers. Another file may have other users of the same names.
func LoginsOf(file string) (string, error) { return folderOf("logins", file) }

// folderOf names a folder of one kind that belongs to the gateway of a file.
func folderOf(kind, file string) (string, error) {
	dir, err := stateOf(kind)
	if err != nil {
		return "", err
	}
	name, err := nameOf(file)
	return filepath.Join(dir, name), err
}

// TokensOfUsers names the file of the tokens of users, and makes its folder.
func TokensOfUsers() (string, error) { return ownFile("tokens.json") }

// AuditKey names the file of the key of audit trails, and makes its folder.
func AuditKey() (string, error) { return ownFile("audit.key") }

// ownFile names a file beside this user's settings, and makes its folder, in which nobody else can write.
func ownFile(name string) (string, error) {
	dir, err := stateOf("")
	if err == nil {
		err = makePrivate(dir)
	}
	return filepath.Join(dir, name), err
}

// stateOf returns a folder of what gateways keep beside this user's settings.
func stateOf(what string) (string, error) {
	config, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("%w: set it to a folder of yours, where bowline keeps what it needs", err)
	}
	return filepath.Join(config, "bowline", what), nil
}

// readToken returns the token of the page, and the path of its file. The first gateway makes it; later ones have the same, so that a
// browser stays logged in.
func readToken() (token, path string, err error) {
	if path, err = ownFile("admin.token"); err != nil {
		return "", path, err
	}
	if token, err = read(path); errors.Is(err, fs.ErrNotExist) {
		if err = write(path); err == nil {
			token, err = read(path)
		}
	}
	if err == nil && token == "" {
		err = errors.New(path + " is empty: remove it, and a new token is made")
	}
	return token, path, err
}

func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return private.CheckFolder(dir)
}

func read(path string) (string, error) {
	file, err := private.Open(path, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if _, err := private.Restrict(file); err != nil {
		return "", err
	}
	const most = 1 << 10 // bytes
	text, err := io.ReadAll(io.LimitReader(file, most))
	return strings.TrimSpace(string(text)), err
}

// write makes a token under another name first: nobody reads half of one, and of two gateways that start together the first wins.
func write(path string) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".token") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(rand.Text() + "\n")
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
