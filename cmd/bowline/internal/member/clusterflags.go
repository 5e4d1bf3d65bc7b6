package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/spf13/cobra"
)

// ClusterFlags are the flags that say which cluster is meant, and how it is reached.
type ClusterFlags struct {
	Name        string
	urls        []string
	credentials string
	keyFile     string
	seedFlags
}

// Add adds the flags that every command about a cluster has.
func (c *ClusterFlags) Add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&c.Name, "cluster", "", "the `NAME` of the cluster")
	flags.StringSliceVar(&c.urls, "nats", nil, "use the NATS server at this `URL`, such as tls://nats.example.com:4222; BOWLINE_NATS_PASSWORD may have the password of a user in it, or a token (default: one of the nodes on this machine runs a server)")
	c.seedFlags.addFlags(command)
	flags.StringVar(&c.credentials, "nats-creds", "", "log in to NATS with the credentials in this `FILE`")
	flags.StringVar(&c.keyFile, "cluster-key", "", "a `FILE` with the key of the cluster, which \"bowline cluster init\" makes (default: BOWLINE_CLUSTER_KEY, or a key that is kept on this machine)")
}

// check refuses flags that do not fit.
func (c *ClusterFlags) check(with Engines) error {
	ownKey := c.keyFile != "" || os.Getenv(keyVariable) != ""
	switch {
	case with.Open == nil:
		return process.Lean("--cluster", "NATS")
	case !clusterName.MatchString(c.Name):
		return process.Usage(fmt.Errorf("--cluster %.80q: the name of a cluster has 1 to 64 letters, digits, \"-\" and \"_\"", c.Name))
	case c.credentials != "" && len(c.urls) == 0:
		return process.Usage(errors.New("--nats-creds needs --nats, which says where to log in"))
	case !ownKey && len(c.urls) > 0:
		return process.Usage(errors.New("nodes that share a NATS server need one key: make it with \"bowline cluster init --cluster-key FILE\", and give all of them --cluster-key FILE"))
	}
	if err := c.checkNATS(); err != nil {
		return err
	}
	return c.seedFlags.check(c.urls, ownKey)
}

// checkNATS refuses URLs and credentials of no use.
func (c *ClusterFlags) checkNATS() error {
	for _, text := range c.urls {
		if err := checkURL(text); err != nil {
			return process.Usage(err)
		}
	}
	if c.credentials == "" {
		return nil
	}
	file, err := os.Open(c.credentials)
	if err != nil {
		return process.Usage(fmt.Errorf("--nats-creds: %w", err))
	}
	return file.Close()
}

// checkURL refuses the URL of a NATS server that has a password: everybody on this machine can see flags.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "nats" && u.Scheme != "tls" {
		return errors.New("--nats: the URL of a NATS server is like tls://nats.example.com:4222")
	}
	_, shown := u.User.Password()
	switch {
	case shown:
		return fmt.Errorf("--nats has a password, which everybody on this machine can see: give only the user, and put the password into %s", passwordVariable)
	case u.User != nil && os.Getenv(passwordVariable) == "":
		return fmt.Errorf("--nats has the user %q: put the password into %s", u.User.Username(), passwordVariable)
	}
	return nil
}

// options says how to reach what the nodes share.
func (c *ClusterFlags) options(folder string, log *slog.Logger) EngineOptions {
	o := EngineOptions{Cluster: c.Name, Folder: folder, Credentials: c.credentials, Seeds: c.seeds, Listen: c.listen, Log: log}
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
func (c *ClusterFlags) open(ctx context.Context, with Engines, o EngineOptions) (cluster.Engine, error) {
	engine, err := with.Open(ctx, o)
	if err != nil {
		return nil, c.explain(err)
	}
	return engine, nil
}

// explain says of an error which flag is wrong, if one is.
func (c *ClusterFlags) explain(err error) error {
	var (
		key      *cluster.KeyError
		taken    *cluster.NameTakenError
		settings *cluster.SettingsError
	)
	err = fmt.Errorf("cluster %s: %w", c.Name, err)
	switch {
	case errors.As(err, &key):
		return process.Usage(fmt.Errorf("%w. The key is that of --cluster-key or %s", err, keyVariable))
	case errors.As(err, &taken):
		return process.Usage(fmt.Errorf("%w with --node", err))
	case errors.As(err, &settings), errors.Is(err, cluster.ErrInvalid), errors.As(err, new(*UnfitError)):
		return process.Usage(err)
	}
	return err
}
