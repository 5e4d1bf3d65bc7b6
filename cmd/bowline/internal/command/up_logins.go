package command

import (
	"cmp"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/doors"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/spf13/cobra"
)

// userLogins returns where the logins of users are. They are not among those of who runs this program: a registration there has another address to come back to, and
// other files have other users of the same names.
func userLogins(cmd *cobra.Command, path string) auth.Store {
	dir, err := doors.LoginsOf(path)
	if err != nil {
		cmd.PrintErrln(render.Message("logins of users end with this gateway: " + err.Error()))
		return auth.NewMemory()
	}
	return connect.LoginsIn(dir, cmd.ErrOrStderr())
}

// personAt returns whose logins an identity has at a node. All hosts are the user of its machine, who need not log in again because one of them was restarted; at
// other nodes of a cluster, which keep all logins in one place, they may be somebody else's.
func personAt(node string) func(identity string) string {
	return func(identity string) string {
		if doors.IsHost(identity) {
			return "the hosts of " + cmp.Or(node, "this machine")
		}
		return identity
	}
}
