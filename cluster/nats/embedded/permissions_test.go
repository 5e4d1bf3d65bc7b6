package embedded

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
)

// permitted returns the users of permissions.conf, for the cluster "test" and also for the buckets
// of the contract, which have the permissions of the bucket "lease".
func permitted(t *testing.T) []*natsserver.User {
	t.Helper()
	text := must[[]byte](t)(os.ReadFile("../permissions.conf"))
	conf := strings.ReplaceAll(strings.ReplaceAll(string(text), "prod", "test"), "$BOWLINE_NATS_PASSWORD", "secret")
	path := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	users := must[*natsserver.Options](t)(natsserver.ProcessConfigFile(path)).Users
	allowed := &users[0].Permissions.Publish.Allow
	for _, subject := range *allowed {
		if strings.Contains(subject, "bl_test_lease") {
			for n := range 100 {
				*allowed = append(*allowed, strings.ReplaceAll(subject, "bl_test_lease", fmt.Sprintf("bl_test_n%d", n)))
			}
		}
	}
	return users
}

// Everything works with the permissions of the file, over TCP.
func TestEngineContractWithPermissions(t *testing.T) {
	t.Parallel()
	s := plainServer(t, func(o *natsserver.Options) { o.Users = permitted(t) })
	clustertest.EngineContract(t, func(*testing.T) clustertest.Harness {
		var lines sync.Map
		return clustertest.Harness{
			Engine: func(t *testing.T) cluster.Engine {
				l := &line{dial: dialServer(s)}
				o := optionsFor(s)
				o.User, o.Password, o.Dial = "bowline", "secret", l.open
				e := connectOnly(t, o)
				lines.Store(e, l)
				return e
			},
			Cut: func(e cluster.Engine) func() {
				l, _ := lines.Load(e)
				l.(*line).setCut(true)
				return func() { l.(*line).setCut(false) }
			},
		}
	})
}

// Permissions that are removed while a node runs are noticed at once, and named.
func TestPermissionsAreRemoved(t *testing.T) {
	var options *natsserver.Options
	s := plainServer(t, func(o *natsserver.Options) {
		o.Users = permitted(t)
		options = o.Clone()
	})
	o := optionsFor(s)
	o.User, o.Password = "bowline", "secret"
	e := connect(t, o)
	b := must[cluster.Bucket](t)(e.Bucket(within(t), cluster.BucketOptions{Name: "lease", TTL: time.Hour, Memory: true}))
	revision := must[uint64](t)(b.Create(within(t), "k", nil, 0))
	fewer := options.Clone()
	fewer.Users = permitted(t)
	permissions := fewer.Users[0].Permissions
	permissions.Publish.Allow = []string{"bl.test.>"}
	permissions.Subscribe.Allow = []string{"_INBOX_bl_test.>"}
	fewer.Port = s.Addr().(*net.TCPAddr).Port
	if err := s.ReloadOptions(fewer); err != nil {
		t.Fatal(err)
	}
	denied := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, cluster.ErrDenied) || !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("%s got %v, want ErrDenied", what, err)
		}
	}
	awaitConnected(t, e, true)
	began := time.Now()
	_, err := b.Update(within(t), "k", nil, revision)
	denied("update", err)
	_, err = b.Get(within(t), "k")
	denied("get", err)
	for _, err := range b.Keys(within(t), "") {
		denied("keys", err)
	}
	_, err = e.Bucket(within(t), cluster.BucketOptions{Name: "lease", TTL: time.Hour, Memory: true})
	denied("bucket", err)
	_, err = e.Subscribe(within(t), "s", func(cluster.Message) {})
	denied("subscribe", err)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
