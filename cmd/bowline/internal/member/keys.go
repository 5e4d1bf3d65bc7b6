package member

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/internal/private"
)

const (
	keyVariable      = "BOWLINE_CLUSTER_KEY"   // has the key of the cluster, in hexadecimal
	passwordVariable = "BOWLINE_NATS_PASSWORD" // has the password of the user in --nats, or a token if that names none
)

// given returns the key that the flags or the environment name; nil: none.
func (c *ClusterFlags) given() ([]byte, error) {
	if c.keyFile != "" {
		return readKeyFile(c.keyFile)
	}
	if text := os.Getenv(keyVariable); text != "" {
		return ReadKey(keyVariable, strings.NewReader(text))
	}
	return nil, nil
}

// keep returns the key for a node, which is the given one if there is one, and remembers where it
// is for commands that name the cluster only.
func (c *ClusterFlags) keep(key []byte, folder string) ([]byte, error) {
	if err := c.rememberKey(filepath.Join(folder, "key-file")); err != nil {
		return nil, err
	}
	if key == nil {
		return private.Key(filepath.Join(folder, "key"), cluster.KeySize)
	}
	return key, nil
}

// rememberKey writes the path of the key of the cluster into a file.
func (c *ClusterFlags) rememberKey(path string) error {
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
func (c *ClusterFlags) observerKey(folder string) ([]byte, error) {
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
		return nil, process.Usage(fmt.Errorf("the key of the cluster %s is not known on this machine: give --cluster-key FILE", c.Name))
	}
	return key, err
}

// maxPath bounds the path of a file with a key.
const maxPath = 4096

func readKeyFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, process.Usage(fmt.Errorf("--cluster-key: %w", err))
	}
	defer file.Close()
	return ReadKey("--cluster-key "+path, file)
}

// ReadKey reads the key of a cluster, in hexadecimal digits.
func ReadKey(where string, from io.Reader) ([]byte, error) {
	key, err := private.ReadKey(where, from, cluster.KeySize)
	if err != nil {
		return nil, process.Usage(fmt.Errorf("%w; \"bowline cluster init\" makes one", err))
	}
	return key, nil
}
