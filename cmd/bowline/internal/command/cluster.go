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

	// A NATS server of the user's.
	URLs        []string // none: a server in one of the processes of this machine
	Credentials string   // a file; "" for none

	Log *slog.Logger
}

// clusterFlags are the flags that say which cluster is meant, and how it is reached.
type clusterFlags struct {
	name        string
	urls        []string
	credentials string
	keyFile     string
}

// addFlags adds the flags that every command about a cluster has.
func (c *clusterFlags) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&c.name, "cluster", "", "the `NAME` of the cluster")
	flags.StringSliceVar(&c.urls, "nats", nil, "use the NATS server at this `URL`, such as tls://nats.example.com:4222 (default: one of the nodes on this machine runs a server)")
	flags.StringVar(&c.credentials, "nats-creds", "", "log in to NATS with the credentials in this `FILE`")
	flags.StringVar(&c.keyFile, "cluster-key", "", "a `FILE` with the key of the cluster, which \"bowline cluster init\" makes (default: BOWLINE_CLUSTER_KEY, or a key that is kept on this machine)")
}

// keyVariable is the environment variable with the key of the cluster, in hexadecimal.
const keyVariable = "BOWLINE_CLUSTER_KEY"

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
	return nil
}

// join returns the engine of the cluster, and the key of the cluster.
func (c *clusterFlags) join(ctx context.Context, with Extras, log *slog.Logger) (cluster.Engine, []byte, error) {
	folder, err := clusterFolder(c.name)
	if err != nil {
		return nil, nil, err
	}
	key, err := c.key(folder)
	if err != nil {
		return nil, nil, err
	}
	engine, err := with.Engine(ctx, EngineOptions{
		Cluster: c.name, Key: key, Folder: folder, URLs: c.urls, Credentials: c.credentials, Log: log,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("cluster %s: %w", c.name, err)
	}
	return engine, key, nil
}

// clustersFolder is where this machine keeps what belongs to its clusters.
func clustersFolder() (string, error) {
	config, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(config, "bowline", "clusters"), nil
}

// clusterFolder returns the folder of a cluster on this machine, and creates it.
func clusterFolder(name string) (string, error) {
	folder, err := clustersFolder()
	if err != nil {
		return "", err
	}
	folder = filepath.Join(folder, name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	return folder, private.CheckFolder(folder)
}

// key returns the key of the cluster.
func (c *clusterFlags) key(folder string) ([]byte, error) {
	if c.keyFile != "" {
		file, err := os.Open(c.keyFile)
		if err != nil {
			return nil, usageFailure(fmt.Errorf("--cluster-key: %w", err))
		}
		defer file.Close()
		return readKey("--cluster-key "+c.keyFile, file)
	}
	if text := os.Getenv(keyVariable); text != "" {
		return readKey(keyVariable, strings.NewReader(text))
	}
	return keyOfMachine(filepath.Join(folder, "key"))
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
	var key [cluster.KeySize]byte
	rand.Read(key[:]) // rand.Read never fails
	temporary, err := os.CreateTemp(filepath.Dir(path), ".key-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = fmt.Fprintln(temporary, hex.EncodeToString(key[:]))
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Link(temporary.Name(), path) // fails if there is one
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
