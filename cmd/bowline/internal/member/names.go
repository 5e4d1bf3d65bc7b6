package member

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/bowline-mcp/bowline/internal/private"
)

var clusterName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// maxNodes is how many nodes of one cluster may run on one machine without --node.
const maxNodes = 100

// takeName returns a name for a node that no other process of this machine has now: the name of
// the machine and four random letters, which are kept, so that a node has the same name again
// after a restart. The name is free when the file is closed.
func takeName(folder string) (name string, lock *os.File, err error) {
	for i := range maxNodes {
		lock, err = private.Lock(filepath.Join(folder, "node-"+strconv.Itoa(i)))
		if errors.Is(err, private.ErrLocked) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		if name, err = nameIn(lock); err != nil {
			return "", nil, errors.Join(err, private.Unlock(lock))
		}
		return name, lock, nil
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
