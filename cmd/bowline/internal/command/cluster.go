package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/internal/private"
	"github.com/spf13/cobra"
)

// An EngineOptions says how to reach what the nodes of a cluster share.
type EngineOptions struct {
	Cluster string
	Key     []byte // of the cluster
	Folder  string // of the cluster on this machine; it exists, and is private

	Observe bool // do not become a node: connect to what runs already

	// NATS servers of the user's.
	URLs                  []string // none: a server in one of the processes of this machine
	User, Password, Token string   // "" for none
	Credentials           string   // a file; "" for none

	// Servers in the nodes of several machines.
	Seeds        []string // where they listen for each other; none: only this machine has nodes
	Self, Listen string   // which of Seeds is this node, and the address on which it listens

	Log *slog.Logger
}

// clusterFlags are the flags that say which cluster is meant, and how it is reached.
type clusterFlags struct {
	name        string
	urls        []string
	credentials string
	keyFile     string
	seedFlags
}

// addFlags adds the flags that every command about a cluster has.
func (c *clusterFlags) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&c.name, "cluster", "", "the `NAME` of the cluster")
	flags.StringSliceVar(&c.urls, "nats", nil, "use the NATS server at this `URL`, such as tls://nats.example.com:4222; BOWLINE_NATS_PASSWORD may have the password of a user in it, or a token (default: one of the nodes on this machine runs a server)")
	c.seedFlags.addFlags(command)
	flags.StringVar(&c.credentials, "nats-creds", "", "log in to NATS with the credentials in this `FILE`")
	flags.StringVar(&c.keyFile, "cluster-key", "", "a `FILE` with the key of the cluster, which \"bowline cluster init\" makes (default: BOWLINE_CLUSTER_KEY, or a key that is kept on this machine)")
}

const (
	keyVariable      = "BOWLINE_CLUSTER_KEY"   // has the key of the cluster, in hexadecimal
	passwordVariable = "BOWLINE_NATS_PASSWORD" // has the password of the user in --nats, or a token if that names none
)

var clusterName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// check refuses flags that do not fit.
func (c *clusterFlags) check(with Extras) error {
	ownKey := c.keyFile != "" || os.Getenv(keyVariable) != ""
	switch {
	case with.Engine == nil:
		return errLean("--cluster", "NATS")
	case !clusterName.MatchString(c.name):
		return usageFailure(fmt.Errorf("--cluster %.80q: the name of a cluster has 1 to 64 letters, digits, \"-\" and \"_\"", c.name))
	case c.credentials != "" && len(c.urls) == 0:
		return usageFailure(errors.New("--nats-creds needs --nats, which says where to log in"))
	case !ownKey && len(c.urls) > 0:
		return usageFailure(errors.New("nodes that share a NATS server need one key: make it with \"bowline cluster init --cluster-key FILE\", and give all of them --cluster-key FILE"))
	}
	if err := c.checkNATS(); err != nil {
		return err
	}
	return c.seedFlags.check(c.urls, ownKey)
}

// checkNATS refuses URLs and credentials of no use.
func (c *clusterFlags) checkNATS() error {
	for _, text := range c.urls {
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || u.Scheme != "nats" && u.Scheme != "tls" {
			return usageFailure(errors.New("--nats: the URL of a NATS server is like tls://nats.example.com:4222"))
		}
		_, shown := u.User.Password()
		switch {
		case shown:
			return usageFailure(fmt.Errorf("--nats has a password, which everybody on this machine can see: give only the user, and put the password into %s", passwordVariable))
		case u.User != nil && os.Getenv(passwordVariable) == "":
			return usageFailure(fmt.Errorf("--nats has the user %q: put the password into %s", u.User.Username(), passwordVariable))
		}
	}
	if c.credentials == "" {
		return nil
	}
	file, err := os.Open(c.credentials)
	if err != nil {
		return usageFailure(fmt.Errorf("--nats-creds: %w", err))
	}
	return file.Close()
}

// options says how to reach what the nodes share.
func (c *clusterFlags) options(folder string, log *slog.Logger) EngineOptions {
	o := EngineOptions{Cluster: c.name, Folder: folder, Credentials: c.credentials, Seeds: c.seeds, Listen: c.listen, Log: log}
	for _, text := range c.urls {
		u, err := url.Parse(text)
		if err != nil {
			continue // it was checked
		}
		if u.User != nil {
			o.User = u.User.Username()
		}
		o.URLs = append(o.URLs, (&url.URL{Scheme: u.Scheme, Host: u.Host}).String())
	}
	o.Password = os.Getenv(passwordVariable)
	if o.User == "" {
		o.Password, o.Token = "", o.Password
	}
	return o
}

// open returns the engine of the cluster.
func (c *clusterFlags) open(ctx context.Context, with Extras, o EngineOptions) (cluster.Engine, error) {
	engine, err := with.Engine(ctx, o)
	if err != nil {
		return nil, c.explain(err)
	}
	return engine, nil
}

// explain says of an error which flag is wrong, if one is.
func (c *clusterFlags) explain(err error) error {
	var (
		key      *cluster.KeyError
		taken    *cluster.NameTakenError
		settings *cluster.SettingsError
	)
	err = fmt.Errorf("cluster %s: %w", c.name, err)
	switch {
	case errors.As(err, &key):
		return usageFailure(fmt.Errorf("%w. The key is that of --cluster-key or %s", err, keyVariable))
	case errors.As(err, &taken):
		return usageFailure(fmt.Errorf("%w with --node", err))
	case errors.As(err, &settings), errors.Is(err, cluster.ErrInvalid), errors.As(err, new(*UnfitError)):
		return usageFailure(err)
	}
	return err
}

// An UnfitError says that the engine of a cluster cannot be used as it is, and what to do.
type UnfitError struct{ Err error }

func (e *UnfitError) Error() string { return e.Err.Error() }
func (e *UnfitError) Unwrap() error { return e.Err }

// clustersFolder is where this machine keeps what belongs to its clusters.
func clustersFolder() (string, error) {
	config, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(config, "bowline", "clusters"), nil
}

// clusterFolder returns the folder of a cluster on this machine, which may not exist yet.
func clusterFolder(name string) (string, error) {
	folder, err := clustersFolder()
	if err != nil {
		return "", err
	}
	folder = filepath.Join(folder, name)
	return folder, private.CheckFolder(folder)
}

// nodeFolder returns the folder of a cluster on this machine, and creates it.
func nodeFolder(name string) (string, error) {
	folder, err := clusterFolder(name)
	if err != nil {
		return "", err
	}
	return folder, os.MkdirAll(folder, 0o700)
}

// given returns the key that the flags or the environment name; nil: none.
func (c *clusterFlags) given() ([]byte, error) {
	if c.keyFile != "" {
		return readKeyFile(c.keyFile)
	}
	if text := os.Getenv(keyVariable); text != "" {
		return readKey(keyVariable, strings.NewReader(text))
	}
	return nil, nil
}

// keep returns the key for a node, which is the given one if there is one, and remembers where it
// is for commands that name the cluster only.
func (c *clusterFlags) keep(key []byte, folder string) ([]byte, error) {
	if err := c.rememberKey(filepath.Join(folder, "key-file")); err != nil {
		return nil, err
	}
	if key == nil {
		return keyOfMachine(filepath.Join(folder, "key"))
	}
	return key, nil
}

// rememberKey writes the path of the key of the cluster into a file.
func (c *clusterFlags) rememberKey(path string) error {
	if c.keyFile == "" {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	keyFile, err := filepath.Abs(c.keyFile)
	if err != nil {
		return err
	}
	file, err := private.Open(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = file.WriteString(keyFile)
	return errors.Join(err, file.Close())
}

// observerKey returns the key of a cluster that runs on this machine or that the flags describe.
func (c *clusterFlags) observerKey(folder string) ([]byte, error) {
	if key, err := c.given(); key != nil || err != nil {
		return key, err
	}
	path := filepath.Join(folder, "key")
	if file, err := private.Open(filepath.Join(folder, "key-file"), os.O_RDONLY); err == nil {
		text, err := io.ReadAll(io.LimitReader(file, maxPath))
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
		path = string(text)
	}
	key, err := readKeyFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, usageFailure(fmt.Errorf("the key of the cluster %s is not known on this machine: give --cluster-key FILE", c.name))
	}
	return key, err
}

// maxPath bounds the path of a file with a key.
const maxPath = 4096

func readKeyFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, usageFailure(fmt.Errorf("--cluster-key: %w", err))
	}
	defer file.Close()
	return readKey("--cluster-key "+path, file)
}

// readKey reads 32 bytes in hexadecimal.
func readKey(where string, from io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, 4*cluster.KeySize))
	if err != nil {
		return nil, usageFailure(fmt.Errorf("%s: %w", where, err))
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != cluster.KeySize {
		return nil, usageFailure(fmt.Errorf("%s has no key of %d bytes in hexadecimal; \"bowline cluster init\" makes one", where, cluster.KeySize))
	}
	return key, nil
}

// keyOfMachine returns the key in a file, which the first of several processes makes.
func keyOfMachine(path string) ([]byte, error) {
	err := makeKey(path)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	file, err := private.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readKey(path, file)
}

// makeKey writes a new key into a file that does not exist yet. Nobody sees half of a key.
func makeKey(path string) error {
	temporary := path + "." + rand.Text()
	if err := writeKey(temporary); err != nil {
		return err
	}
	defer os.Remove(temporary)
	return os.Link(temporary, path) // fails if there is one
}

// writeKey writes a new key into a new file.
func writeKey(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	var key [cluster.KeySize]byte
	rand.Read(key[:]) // rand.Read never fails
	_, err = fmt.Fprintln(file, hex.EncodeToString(key[:]))
	return errors.Join(err, file.Sync(), file.Close())
}

// maxNodes is how many nodes of one cluster may run on one machine without --node.
const maxNodes = 100

// takeName returns a name for a node that no other process of this machine has now: the name of
// the machine and four random letters, which are kept, so that a node has the same name again
// after a restart. The name is free when the file is closed.
func takeName(folder string) (name string, lock *os.File, err error) {
	for i := range maxNodes {
		file, err := private.Open(filepath.Join(folder, "node-"+strconv.Itoa(i)), os.O_RDWR|os.O_CREATE)
		if err != nil {
			return "", nil, err
		}
		free, err := private.TryLock(file)
		if err == nil && !free {
			err = file.Close()
			if err == nil {
				continue
			}
		}
		if err == nil {
			name, err = nameIn(file)
		}
		if err != nil {
			return "", nil, errors.Join(err, file.Close())
		}
		return name, file, nil
	}
	return "", nil, fmt.Errorf("%d nodes of this cluster run on this machine: name more with --node", maxNodes)
}

var notOfName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// nameIn returns the name in a file, and makes one if there is none.
func nameIn(file *os.File) (string, error) {
	kept, err := io.ReadAll(io.LimitReader(file, 100))
	if err != nil {
		return "", err
	}
	if clusterName.Match(kept) {
		return string(kept), nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	host, _, _ = strings.Cut(host, ".")
	host = cmp.Or(strings.Trim(notOfName.ReplaceAllString(host, "-"), "-"), "node")
	name := strings.ToLower(host[:min(len(host), 40)] + "-" + rand.Text()[:4])
	if err := file.Truncate(0); err != nil {
		return "", err
	}
	_, err = file.WriteAt([]byte(name), 0)
	return name, err
}
