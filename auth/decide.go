//bowline:pure

package auth

// What to do about a token is decided here, as tables. The functions know no clock, store or
// network: they get facts, and return the next step. Refused.go and refresh.go gather the facts
// and take the steps.

// A step is what to do next for a request whose token was refused.
type step uint8

const (
	takeSaved    step = iota // use the token in the store, which is newer
	refreshFirst             // refresh; decide again if that gives no other token
	logIn                    // get a new token
	logInAgain               // get a new token, unless new ones were refused too often
	stepUp                   // get a token with more scopes, if the program wants them, unless that was refused too often
)

// A refusedToken is what is known about a token that the server has refused.
type refusedToken struct {
	forbidden bool // with 403: the token lacks scopes; otherwise with 401
	sent      bool // the request had a token
	savedIsOK bool // the store has a valid token that is another one
	recent    bool // this process got the refused token within the last minute
	expired   bool // the refused token has expired meanwhile
	refreshed bool // a refresh was tried, and there is still no other token
}

// decide returns what to do about a refused token. The first row that applies counts.
//
//	| the store has another valid token                  | use that                     |
//	| 401, not refreshed yet, token not new, or expired  | refresh                      |
//	| 403, and the request had a token                   | log in with more scopes      |
//	| the request had a token, which no refresh replaces | log in again, a few times    |
//	| otherwise                                          | log in                       |
func (t refusedToken) decide() step {
	switch {
	case t.savedIsOK:
		return takeSaved
	case !t.forbidden && !t.refreshed && (!t.recent || t.expired):
		return refreshFirst
	case t.forbidden && t.sent:
		return stepUp
	case t.sent:
		return logInAgain
	default:
		return logIn
	}
}

// A savedLogin is what is known about the login in the store, when a request needs another
// token than the one that it has.
type savedLogin struct {
	usable      bool // it is there, and was made for this server and client
	isOther     bool // its token is valid, and not the one that the request has
	refreshable bool // it has a refresh token
	tooEarly    bool // a refresh has just failed
}

// A renewal is what to do with the login in the store.
type renewal uint8

const (
	noRenewal  renewal = iota // there is nothing to use or to refresh
	adoptSaved                // use its token
	waitFirst                 // it is too early for another refresh
	exchange                  // exchange its refresh token
)

// decide returns what to do with the login in the store. A valid token is used even if it is too
// early for a refresh: another process may just have got it.
func (l savedLogin) decide() renewal {
	switch {
	case !l.usable:
		return noRenewal
	case l.isOther:
		return adoptSaved
	case !l.refreshable:
		return noRenewal
	case l.tooEarly:
		return waitFirst
	default:
		return exchange
	}
}
