// Auth callout, driven by the libraries that its services are made of: jwt and nkeys make the tokens, nats.go uses them.
//
//	calloutcheck config DIR     makes a key in DIR and prints a configuration
//	calloutcheck run URL DIR    everything, on a server that was just started with it
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

const patience = 60 * time.Second

func check(cond bool, format string, args ...any) {
	if !cond {
		fmt.Fprintf(os.Stderr, "FAIL "+format+"\n", args...)
		os.Exit(1)
	}
}

func must[T any](v T, err error) T {
	check(err == nil, "%v", err)
	return v
}

func ok(err error) { check(err == nil, "%v", err) }

func config(dir string) {
	issuer := must(nkeys.CreateAccount())
	ok(os.WriteFile(filepath.Join(dir, "issuer.seed"), must(issuer.Seed()), 0o600))
	fmt.Printf(`accounts {
  AUTH { users: [ { user: auth, password: auth } ] }
  APP {}
  OTHER {}
  SYS {}
}
system_account: SYS
authorization {
  timeout: 2
  auth_callout { issuer: %s, account: AUTH, auth_users: [ auth ] }
}
`, must(issuer.PublicKey()))
}

// service answers as users ask for it by their names.
type service struct {
	issuer nkeys.KeyPair
	asked  atomic.Int64
	seen   atomic.Pointer[jwt.AuthorizationRequestClaims]
}

func (s *service) respond(m *nats.Msg) {
	s.asked.Add(1)
	request := must(jwt.DecodeAuthorizationRequestClaims(string(m.Data)))
	s.seen.Store(request)
	answer := func(with func(*jwt.AuthorizationResponseClaims)) {
		response := jwt.NewAuthorizationResponseClaims(request.UserNkey)
		response.Audience = request.Server.ID
		with(response)
		ok(m.Respond([]byte(must(response.Encode(s.issuer)))))
	}
	admit := func(account string, with func(*jwt.UserClaims)) func(*jwt.AuthorizationResponseClaims) {
		user := jwt.NewUserClaims(request.UserNkey)
		user.Audience = account
		with(user)
		return func(response *jwt.AuthorizationResponseClaims) { response.Jwt = must(user.Encode(s.issuer)) }
	}
	plain := func(*jwt.UserClaims) {}
	switch name := request.ConnectOptions.Username; {
	case request.ConnectOptions.Password != "secret":
		answer(func(response *jwt.AuthorizationResponseClaims) { response.Error = "wrong password" })
	case name == "silent":
	case name == "slow":
		time.Sleep(500 * time.Millisecond)
		answer(admit("APP", plain))
	case name == "twice":
		// Of two that differ nats-server 2.15.2 takes both, one after the other.
		answer(admit("APP", plain))
		answer(admit("APP", plain))
	case name == "liar":
		stranger := must(must(nkeys.CreateUser()).PublicKey())
		user := jwt.NewUserClaims(stranger)
		user.Audience = "APP"
		answer(func(response *jwt.AuthorizationResponseClaims) { response.Jwt = must(user.Encode(s.issuer)) })
	case name == "forged":
		user := jwt.NewUserClaims(request.UserNkey)
		user.Audience = "APP"
		other := must(nkeys.CreateAccount())
		answer(func(response *jwt.AuthorizationResponseClaims) { response.Jwt = must(user.Encode(other)) })
	case name == "other":
		answer(admit("OTHER", plain))
	case name == "limited":
		answer(admit("APP", func(user *jwt.UserClaims) {
			user.Permissions.Pub.Allow.Add("a.>")
			user.Permissions.Sub.Allow.Add("a.>", "_INBOX.>")
			user.Expires = time.Now().Add(3 * time.Second).Unix()
		}))
	default:
		answer(admit("APP", plain))
	}
}

func connect(url, user, password string, options ...nats.Option) (*nats.Conn, error) {
	options = append(options, nats.UserInfo(user, password), nats.NoReconnect(), nats.Timeout(patience), nats.Name("callout check"))
	return nats.Connect(url, options...)
}

func refused(url, user, password string) {
	nc, err := connect(url, user, password)
	if err == nil {
		nc.Close()
	}
	check(errors.Is(err, nats.ErrAuthorization), "%s: %v, not an authorization violation", user, err)
}

func run(url, dir string) {
	// Nobody is there yet.
	refused(url, "alice", "secret")
	s := &service{issuer: must(nkeys.FromSeed(must(os.ReadFile(filepath.Join(dir, "issuer.seed")))))}
	auth := must(connect(url, "auth", "auth"))
	defer auth.Close()
	must(auth.Subscribe("$SYS.REQ.USER.AUTH", func(m *nats.Msg) { go s.respond(m) }))
	ok(auth.Flush())

	alice := must(connect(url, "alice", "secret"))
	request := s.seen.Load()
	check(request.Server.ID == alice.ConnectedServerId(), "asked by %q, connected to %q", request.Server.ID, alice.ConnectedServerId())
	check(request.Issuer == request.Server.ID && request.Audience == "nats-authorization-request", "issuer %q, audience %q", request.Issuer, request.Audience)
	check(request.ClientInformation.Kind == "Client" && request.ClientInformation.Type == "nats" && request.ClientInformation.User == "alice", "client %+v", request.ClientInformation)
	check(request.ConnectOptions.Name == "callout check" && request.ConnectOptions.Lang == "go", "options %+v", request.ConnectOptions)
	check(request.Expires > time.Now().Unix()-1, "expires %d", request.Expires)
	subscription := must(alice.SubscribeSync("a.>"))
	ok(alice.Flush())

	// Another account, two answers, and one that takes its time.
	other := must(connect(url, "other", "secret"))
	ok(other.Publish("a.b", []byte("unseen")))
	ok(other.Flush())
	twice := must(connect(url, "twice", "secret"))
	ok(twice.Publish("a.b", []byte("seen")))
	ok(twice.Flush())
	slow := must(connect(url, "slow", "secret"))
	slow.Close()
	message := must(subscription.NextMsg(patience))
	check(string(message.Data) == "seen", "%q came first", message.Data)

	for _, user := range []string{"silent", "liar", "forged"} {
		refused(url, user, "secret")
	}
	refused(url, "alice", "wrong")
	before := s.asked.Load()
	refused(url, "auth", "wrong")
	check(s.asked.Load() == before, "the service was asked about its own user")

	limits(url)
	// Nobody but the server asks the service.
	errs := make(chan error, 1)
	forger := must(connect(url, "auth", "auth", nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err })))
	ok(forger.Publish("$SYS.REQ.USER.AUTH", []byte("x")))
	select {
	case err := <-errs:
		check(errors.Is(err, nats.ErrPermissionViolation), "%v", err)
	case <-time.After(patience):
		check(false, "a publish to the service was let through")
	}
	check(s.asked.Load() == before+1, "asked %d times, not once more than %d", s.asked.Load(), before)
	fmt.Println("ok")
}

// limits checks permissions and the time of a token.
func limits(url string) {
	errs := make(chan error, 8)
	closed := make(chan struct{})
	limited := must(connect(url, "limited", "secret",
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err }),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) })))
	ok(limited.Publish("b", nil))
	select {
	case err := <-errs:
		check(errors.Is(err, nats.ErrPermissionViolation), "%v", err)
	case <-time.After(patience):
		check(false, "no violation")
	}
	select {
	case <-closed:
		// What comes last may be the end of the stream.
		last := limited.LastError()
		check(errors.Is(last, nats.ErrAuthExpired) || errors.Is(last, io.EOF), "closed by %v", last)
	case <-time.After(patience):
		check(false, "a token that is over still counts")
	}
}

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "config":
		config(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "run":
		run(os.Args[2], os.Args[3])
	default:
		fmt.Fprintln(os.Stderr, "usage: calloutcheck config DIR | run URL DIR")
		os.Exit(2)
	}
}
