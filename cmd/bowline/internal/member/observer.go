package member

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/spf13/cobra"
)

// SteeringTimeout limits commands that ask nodes.
const SteeringTimeout = 15 * time.Second

// Observe runs f with a view of a cluster that runs already, within a time.
func (c *ClusterFlags) Observe(cmd *cobra.Command, with Engines, within time.Duration, f func(context.Context, *cluster.Observer) error) error {
	if err := c.choose(with); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), within)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	folder, err := clusterFolder(c.Name)
	if err != nil {
		return err
	}
	key, err := c.observerKey(folder)
	if err != nil {
		return err
	}
	o := c.options(folder, log)
	o.Observe = true
	engine, err := c.open(ctx, with, o)
	if err != nil {
		return err
	}
	n, err := cluster.Observe(ctx, engine, cluster.Options{Cluster: c.Name, Key: key, Log: log})
	switch {
	case err == nil:
		err = f(ctx, n)
		n.Close()
	case errors.Is(err, cluster.ErrNotFound):
		err = process.Usage(fmt.Errorf("no cluster %s has run there: is the name right?", c.Name))
	default:
		err = c.explain(err)
	}
	return errors.Join(err, engine.Close())
}

// choose checks the flags. Without a name it chooses the only cluster that runs on this machine.
func (c *ClusterFlags) choose(with Engines) error {
	if c.Name == "" && with.Open != nil {
		folder, err := clustersFolder()
		if err != nil {
			return err
		}
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var names []string
		for _, entry := range entries {
			if clusterName.MatchString(entry.Name()) && with.Running(filepath.Join(folder, entry.Name())) {
				names = append(names, entry.Name())
			}
		}
		switch len(names) {
		case 0:
			return process.Usage(errors.New("no cluster without NATS servers of yours runs on this machine: name one with --cluster, and say with --nats and --cluster-key how it is reached"))
		case 1:
			c.Name = names[0]
		default:
			return process.Usage(fmt.Errorf("name one of the clusters of this machine with --cluster: %s", strings.Join(names, ", ")))
		}
	}
	return c.check(with)
}
