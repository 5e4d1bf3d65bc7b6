package command

import (
	"context"
	"errors"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/spf13/cobra"
)

const logoutUserLong = `End the login of a user of a running "bowline up" at a server with "login": "user". It is
removed, in a cluster for all nodes, its tokens are revoked if the authorization server
does that, and the user's connections with the server end; calls that are running have
five seconds to finish. The user's next call asks for a login again. To keep the user
from that, take the user's token of the gateway away first.

USER is the identity that "bowline ps" and the audit trail show: "token ada", or the
issuer, a space and the subject.`

// newLogoutUser ends the login of somebody else. That of who runs the gateway is for logout.
func newLogoutUser() *cobra.Command {
	command := &cobra.Command{
		Use:     "logout-user SERVER USER",
		Short:   "End the login of a user of a gateway at a server",
		Long:    logoutUserLong,
		Example: "  bowline logout-user issues \"token ada\"",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return process.Usage(errors.New("name a server of the file, and a user"))
			}
			return nil
		},
	}
	return asking(command, func(ctx context.Context, args []string, c *admin.Client) error {
		return c.Logout(ctx, args[0], args[1])
	})
}
