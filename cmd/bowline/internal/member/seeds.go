package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/spf13/cobra"
)

// seedFlags are the flags of nodes that keep what they share themselves, on several machines.
type seedFlags struct {
	listen string
	seeds  []string
}

func (s *seedFlags) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&s.listen, "cluster-listen", "", "keep what the nodes share in the nodes themselves: listen on this `ADDRESS` for the others, such as :4248")
	flags.StringSliceVar(&s.seeds, "seed", nil, "the `ADDRESSES` at which all nodes listen for each other, separated by commas: a:4248,b:4248,c:4248")
}

// fewestSeeds is how many nodes keep a copy of everything.
const fewestSeeds = 3

// check refuses flags that do not fit.
func (s *seedFlags) check(urls []string, ownKey bool) error {
	const example = "--cluster-listen :4248 --seed a:4248,b:4248,c:4248"
	switch {
	case s.listen == "" && len(s.seeds) == 0:
		return nil
	case len(urls) > 0:
		return process.Usage(errors.New("--nats and --seed exclude each other: your NATS servers keep what the nodes share, or the nodes do"))
	case s.listen == "":
		return process.Usage(errors.New("--seed needs --cluster-listen, where this node listens for the others: " + example))
	case len(s.seeds) == 0:
		return process.Usage(errors.New("--cluster-listen needs --seed, with the addresses of all nodes: " + example))
	case !ownKey:
		return process.Usage(errors.New("nodes on several machines need one key, by which they know each other: make it with \"bowline cluster init --cluster-key FILE\", and give all of them --cluster-key FILE"))
	case len(s.seeds) < fewestSeeds:
		return process.Usage(fmt.Errorf("--seed %s: name three nodes or more. Two buy nothing: more than half of the nodes must be up, so two would stop as soon as one of them does. "+
			"On one machine leave out --seed and --cluster-listen", strings.Join(s.seeds, ",")))
	}
	seen := map[string]bool{}
	for _, seed := range s.seeds {
		if host, err := splitSeed(seed); err != nil || host == "" {
			return process.Usage(fmt.Errorf("--seed: %.100q is no address with a port, such as a:4248", seed))
		}
		if seen[seed] {
			return process.Usage(fmt.Errorf("--seed names %s twice; each node has one entry", seed))
		}
		seen[seed] = true
	}
	if _, err := splitSeed(s.listen); err != nil {
		return process.Usage(fmt.Errorf("--cluster-listen: %.100q is no address with a port, such as :4248", s.listen))
	}
	return nil
}

var hostForm = regexp.MustCompile(`^[A-Za-z0-9._:%-]*$`)

// splitSeed returns the host of an address that has a port.
func splitSeed(address string) (host string, err error) {
	host, port, err := splitAddress(address)
	if err == nil && port == 0 {
		err = errNoAddress
	}
	return host, err
}

var errNoAddress = errors.New("no host and port")

// splitAddress returns the host of an address, perhaps none, and its port.
func splitAddress(address string) (host string, port uint64, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	if port, err = strconv.ParseUint(text, 10, 16); err != nil || !hostForm.MatchString(host) {
		return "", 0, errNoAddress
	}
	return host, port, nil
}

// lookupTimeout limits how long a node looks for its own address among the seeds.
const lookupTimeout = 5 * time.Second

// self returns which of the seeds is this node: the one with the host that it advertises, the one
// on which it listens, or else the only one with an address of this machine.
func (s *seedFlags) self(ctx context.Context, advertise string) (string, error) {
	if bare, _, err := net.SplitHostPort(advertise); err == nil {
		advertise = bare
	}
	if advertise == "" && slices.Contains(s.seeds, s.listen) {
		return s.listen, nil
	}
	mine := s.own(ctx, advertise)
	_, port, _ := net.SplitHostPort(s.listen) // it was checked
	if len(mine) > 1 {
		mine = slices.DeleteFunc(mine, func(seed string) bool { return !strings.HasSuffix(seed, ":"+port) })
	}
	if len(mine) != 1 {
		return "", process.Usage(fmt.Errorf("none of --seed %s is known to be this node: name its host with --advertise, as it stands in the list", strings.Join(s.seeds, ",")))
	}
	return mine[0], nil
}

// own returns the seeds that may be this node: those with the host that it advertises, or with an address of
// this machine.
func (s *seedFlags) own(ctx context.Context, advertised string) []string {
	if advertised != "" {
		return s.with(func(host string) bool { return host == advertised })
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return s.with(func(host string) bool { return isOwn(ctx, host) })
}

// with returns the seeds whose hosts fit.
func (s *seedFlags) with(fits func(host string) bool) (all []string) {
	for _, seed := range s.seeds {
		if host, _, _ := net.SplitHostPort(seed); fits(host) {
			all = append(all, seed)
		}
	}
	return all
}

// isOwn reports whether a host is this machine.
func isOwn(ctx context.Context, host string) bool {
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return false // the name of another node may not be known yet
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, address := range addresses {
		if address.Unmap().IsLoopback() { // as the name of a machine often is on the machine
			return true
		}
		for _, o := range own {
			if network, ok := o.(*net.IPNet); ok && network.IP.Equal(address.AsSlice()) {
				return true
			}
		}
	}
	return false
}

// reach returns the defaults of --hop and --advertise for a node with seeds: the host of its own
// entry is that by which others reach it.
func (s *seedFlags) reach(self, hop, advertise string) (string, string) {
	host, _, _ := net.SplitHostPort(self)
	listening, _, _ := net.SplitHostPort(s.listen)
	return cmp.Or(hop, net.JoinHostPort(listening, "0")), cmp.Or(advertise, host)
}
