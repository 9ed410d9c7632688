// Operator mode, driven by the libraries that its tools are made of: jwt and nkeys make the tokens, nats.go uses them.
//
//	jwtcheck setup DIR        makes keys and tokens in DIR and prints a configuration
//	jwtcheck run URL DIR      everything, on a server that was just started with it
//	jwtcheck after URL DIR    what must be as before, on a server that was started again
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// world holds the keys; they stay the same from setup to the end.
type world struct {
	dir  string
	keys map[string]nkeys.KeyPair
}

func load(dir string) *world {
	seeds := map[string]string{}
	ok(json.Unmarshal(must(os.ReadFile(filepath.Join(dir, "seeds.json"))), &seeds))
	w := &world{dir, map[string]nkeys.KeyPair{}}
	for name, seed := range seeds {
		w.keys[name] = must(nkeys.FromSeed([]byte(seed)))
	}
	return w
}

func (w *world) public(name string) string { return must(w.keys[name].PublicKey()) }

func (w *world) seed(name string) []byte { return must(w.keys[name].Seed()) }

// account makes a token of an account, signed with the operator's signing key.
func (w *world) account(name string, with func(*jwt.AccountClaims)) string {
	claims := jwt.NewAccountClaims(w.public(name))
	claims.Name = strings.ToUpper(name)
	with(claims)
	return must(claims.Encode(w.keys["operator-signing"]))
}

// user makes a token of the user "user-…" of an account, signed by the named key.
func (w *world) user(name, account, signer string, with func(*jwt.UserClaims)) string {
	claims := jwt.NewUserClaims(w.public(name))
	claims.Name = name
	if signer != account {
		claims.IssuerAccount = w.public(account)
	}
	with(claims)
	return must(claims.Encode(w.keys[signer]))
}

func plain(*jwt.UserClaims) {}

// try connects with a token; the connection ends for good with its first error.
func (w *world) try(url, name, token string) (*nats.Conn, error) {
	return nats.Connect(url, nats.UserJWTAndSeed(token, string(w.seed(name))), nats.NoReconnect(), nats.Timeout(patience), remembered)
}

// remembered keeps the errors that the server sends on a connection that is up: what ends it may also be the end of the stream.
var errorsOf = struct {
	sync.Mutex
	list map[*nats.Conn][]error
}{list: map[*nats.Conn][]error{}}

var remembered = nats.ErrorHandler(func(nc *nats.Conn, _ *nats.Subscription, err error) {
	errorsOf.Lock()
	defer errorsOf.Unlock()
	errorsOf.list[nc] = append(errorsOf.list[nc], err)
})

func hasSaid(nc *nats.Conn, want error) bool {
	errorsOf.Lock()
	defer errorsOf.Unlock()
	is := func(err error) bool { return errors.Is(err, want) }
	return slices.ContainsFunc(errorsOf.list[nc], is) || is(nc.LastError())
}

func (w *world) connect(url, name, token string) *nats.Conn {
	return must(w.try(url, name, token))
}

func (w *world) refused(url, name, token, what string) {
	nc, err := w.try(url, name, token)
	check(errors.Is(err, nats.ErrAuthorization), "%s: %v %v", what, nc, err)
}

// closedWith waits for the end of a connection and looks at why.
func closedWith(nc *nats.Conn, want error) {
	deadline := time.Now().Add(patience)
	for !nc.IsClosed() || !hasSaid(nc, want) {
		check(time.Now().Before(deadline), "closed %v, with %v instead of %v", nc.IsClosed(), nc.LastError(), want)
		time.Sleep(5 * time.Millisecond)
	}
}

// claims sends a request about tokens and gives back its answer.
func claims(sys *nats.Conn, subject, body string) (message, failure string) {
	msg := must(sys.Request(subject, []byte(body), patience))
	var answer struct {
		Data  struct{ Message string }
		Error *struct{ Description string }
	}
	ok(json.Unmarshal(msg.Data, &answer))
	if answer.Error != nil {
		return "", answer.Error.Description
	}
	return answer.Data.Message, ""
}

func push(sys *nats.Conn, token string) {
	message, failure := claims(sys, "$SYS.REQ.CLAIMS.UPDATE", token)
	check(message == "jwt updated", "push: %q %q", message, failure)
}

func setup(dir string) {
	ok(os.MkdirAll(dir, 0o755))
	seeds := map[string]string{}
	add := func(name string, kind nkeys.PrefixByte) {
		seeds[name] = string(must(must(nkeys.CreatePair(kind)).Seed()))
	}
	add("operator", nkeys.PrefixByteOperator)
	add("operator-signing", nkeys.PrefixByteOperator)
	for _, account := range []string{"sys", "app", "app-signing", "app-role", "shop", "stranger"} {
		add(account, nkeys.PrefixByteAccount)
	}
	for _, user := range []string{"ada", "ben", "cat", "dan", "root"} {
		add(user, nkeys.PrefixByteUser)
	}
	ok(os.WriteFile(filepath.Join(dir, "seeds.json"), must(json.Marshal(seeds)), 0o600))
	w := load(dir)
	claims := jwt.NewOperatorClaims(w.public("operator"))
	claims.Name = "birds"
	claims.SigningKeys.Add(w.public("operator-signing"))
	claims.SystemAccount = w.public("sys")
	claims.StrictSigningKeyUsage = false
	token := must(claims.Encode(w.keys["operator"]))
	file := filepath.Join(dir, "operator.jwt")
	ok(os.WriteFile(file, must(jwt.DecorateJWT(token)), 0o600))
	sys := w.account("sys", func(*jwt.AccountClaims) {})
	fmt.Printf("operator: %q\nresolver: { type: full, dir: %q, allow_delete: true, interval: \"2m\", timeout: \"2s\" }\n", file, filepath.Join(dir, "accounts"))
	fmt.Printf("resolver_preload: { %s: %s }\n", w.public("sys"), sys)
}

// app is the token of the account that most of it is about.
func (w *world) app(with func(*jwt.AccountClaims)) string {
	return w.account("app", func(c *jwt.AccountClaims) {
		c.Tags.Add("zone:eu")
		c.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: 1 << 20, MemoryStorage: 1 << 20, Streams: 1, Consumer: -1}
		c.SigningKeys.Add(w.public("app-signing"))
		role := jwt.NewUserScope()
		role.Key, role.Role = w.public("app-role"), "role"
		role.Template.Pub.Allow.Add("desk.{{name()}}.>", "{{tag(team)}}.{{account-tag(zone)}}.>")
		role.Template.Sub.Allow.Add("_INBOX.>", "{{account-subject()}}.{{subject()}}")
		c.SigningKeys.AddScopedSigner(role)
		c.AddMapping("from.*", jwt.WeightedMapping{Subject: "to.{{wildcard(1)}}", Weight: 100})
		activation := jwt.NewActivationClaims(w.public("app"))
		activation.ImportSubject, activation.ImportType = "orders.*", jwt.Service
		c.Imports.Add(
			&jwt.Import{Name: "orders", Subject: "orders.*", Account: w.public("shop"), LocalSubject: "buy.$1", Type: jwt.Service, Token: must(activation.Encode(w.keys["shop"]))},
			&jwt.Import{Name: "news", Subject: "news.>", Account: w.public("shop"), LocalSubject: "heard.news.>", Type: jwt.Stream},
		)
		with(c)
	})
}

func (w *world) shop(with func(*jwt.AccountClaims)) string {
	return w.account("shop", func(c *jwt.AccountClaims) {
		c.Exports.Add(
			&jwt.Export{Name: "orders", Subject: "orders.*", Type: jwt.Service, TokenReq: true},
			&jwt.Export{Name: "news", Subject: "news.>", Type: jwt.Stream},
		)
		with(c)
	})
}

func run(url, dir string) {
	w := load(dir)
	sys := w.connect(url, "root", w.user("root", "sys", "sys", plain))
	defer sys.Close()
	push(sys, w.shop(func(*jwt.AccountClaims) {}))
	push(sys, w.app(func(*jwt.AccountClaims) {}))
	w.credentials(url)
	w.strangers(url)
	w.bearer(url, sys)
	w.roles(url)
	w.exchange(url, sys)
	w.streams(url)
	w.expiry(url)
	w.revocation(url, sys)
	w.requests(url, sys)
	fmt.Println("ok jwtcheck run")
}

func (w *world) credentials(url string) {
	token := w.user("ada", "app", "app-signing", func(c *jwt.UserClaims) { c.Limits.Src.Add("127.0.0.0/8") })
	file := filepath.Join(w.dir, "ada.creds")
	ok(os.WriteFile(file, must(jwt.FormatUserConfig(token, w.seed("ada"))), 0o600))
	nc := must(nats.Connect(url, nats.UserCredentials(file), nats.Timeout(patience)))
	defer nc.Close()
	var info struct {
		Data struct {
			User, Account string
			AccountName   string `json:"account_name"`
			UserName      string `json:"user_name"`
		}
	}
	ok(json.Unmarshal(must(nc.Request("$SYS.REQ.USER.INFO", nil, patience)).Data, &info))
	check(info.Data.User == w.public("ada") && info.Data.Account == w.public("app"), "user info: %+v", info)
	check(info.Data.AccountName == "APP" && info.Data.UserName == "ada", "user info: %+v", info)
	sub := must(nc.SubscribeSync("to.*"))
	ok(nc.Publish("from.here", nil))
	check(must(sub.NextMsg(patience)).Subject == "to.here", "the mapping of the account")
}

func (w *world) strangers(url string) {
	w.refused(url, "ada", w.user("ada", "stranger", "stranger", plain), "an account that is not there")
	w.refused(url, "ada", w.user("ada", "app", "stranger", plain), "a key that is not the account's")
	w.refused(url, "ben", w.user("ada", "app", "app", plain), "another user's token")
	w.refused(url, "ada", w.user("ada", "app", "app", func(c *jwt.UserClaims) { c.Expires = time.Now().Unix() - 60 }), "an expired token")
	w.refused(url, "ada", w.user("ada", "app", "app", func(c *jwt.UserClaims) { c.Src.Add("10.1.0.0/16") }), "another network")
	w.refused(url, "ada", w.user("ada", "app", "app", func(c *jwt.UserClaims) { c.AllowedConnectionTypes.Add("WEBSOCKET") }), "another kind of connection")
	_, err := nats.Connect(url, nats.UserInfo("ada", "ada"))
	check(errors.Is(err, nats.ErrAuthorization), "a password: %v", err)
}

func (w *world) bearer(url string, sys *nats.Conn) {
	token := w.user("ben", "app", "app", func(c *jwt.UserClaims) { c.BearerToken = true })
	asBearer := func() (*nats.Conn, error) {
		return nats.Connect(url, nats.NoReconnect(), nats.Timeout(patience), remembered, nats.UserJWT(
			func() (string, error) { return token, nil },
			func([]byte) ([]byte, error) { return nil, nil }))
	}
	nc := must(asBearer())
	push(sys, w.app(func(c *jwt.AccountClaims) { c.Limits.DisallowBearer = true }))
	closedWith(nc, nats.ErrAuthorization)
	_, err := asBearer()
	check(errors.Is(err, nats.ErrAuthorization), "a bearer where none is allowed: %v", err)
	push(sys, w.app(func(*jwt.AccountClaims) {}))
	must(asBearer()).Close()
}

// denied publishes to a subject and waits for the server to mind; it minds in order, so it did not mind what came before.
func denied(nc *nats.Conn, violations <-chan error, subject string) {
	ok(nc.Publish(subject, nil))
	select {
	case err := <-violations:
		found := errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(strings.ToLower(err.Error()), subject)
		check(found, "publishing to %s: %v", subject, err)
	case <-time.After(patience):
		check(false, "%s may be published to", subject)
	}
}

func (w *world) roles(url string) {
	scoped := func(name string) string {
		return w.user("cat", "app", "app-role", func(c *jwt.UserClaims) {
			c.SetScoped(true)
			c.Name = name
			c.Tags.Add("team:red")
		})
	}
	violations := make(chan error, 10)
	nc := must(nats.Connect(url, nats.UserJWTAndSeed(scoped("cat"), string(w.seed("cat"))), nats.Timeout(patience),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err })))
	defer nc.Close()
	ok(nc.Publish("desk.cat.x", nil))
	ok(nc.Publish("red.eu.x", nil))
	must(nc.SubscribeSync(w.public("app") + "." + w.public("cat")))
	denied(nc, violations, "desk.dog.x")
	denied(nc, violations, "red.us.x")
	w.refused(url, "cat", w.user("cat", "app", "app-role", plain), "a scoped user with limits of its own")
}

func (w *world) exchange(url string, sys *nats.Conn) {
	app := w.connect(url, "ada", w.user("ada", "app", "app", plain))
	defer app.Close()
	shop := w.connect(url, "dan", w.user("dan", "shop", "shop", plain))
	defer shop.Close()
	must(shop.Subscribe("orders.*", func(m *nats.Msg) { m.Respond([]byte("re:" + m.Subject)) }))
	ok(shop.FlushTimeout(patience))
	order := func() (*nats.Msg, error) { return app.Request("buy.seeds", nil, patience) }
	check(string(must(order()).Data) == "re:orders.seeds", "an imported service")
	heard := must(app.SubscribeSync("heard.>"))
	ok(app.FlushTimeout(patience))
	ok(shop.Publish("news.today", []byte("open")))
	check(must(heard.NextMsg(patience)).Subject == "heard.news.today", "an imported stream")
	_, err := app.Request("orders.seeds", nil, patience)
	check(errors.Is(err, nats.ErrNoResponders), "what is not imported: %v", err)

	push(sys, w.shop(func(c *jwt.AccountClaims) { c.Exports[0].Revoke(w.public("app")) }))
	_, err = order()
	check(errors.Is(err, nats.ErrNoResponders), "with a revoked activation: %v", err)
	push(sys, w.shop(func(*jwt.AccountClaims) {}))
	check(string(must(order()).Data) == "re:orders.seeds", "an activation that counts again")
}

func (w *world) streams(url string) {
	app := w.connect(url, "ada", w.user("ada", "app", "app", plain))
	defer app.Close()
	js := must(app.JetStream(nats.MaxWait(patience)))
	limits := must(js.AccountInfo()).Limits
	check(limits.MaxStore == 1<<20 && limits.MaxStreams == 1, "limits: %+v", limits)
	must(js.AddStream(&nats.StreamConfig{Name: "KEEP", Subjects: []string{"keep"}}))
	must(js.Publish("keep", []byte("this")))
	_, err := js.AddStream(&nats.StreamConfig{Name: "MORE", Subjects: []string{"more"}})
	check(err != nil && strings.Contains(err.Error(), "maximum number of streams reached"), "one stream too many: %v", err)
	shop := w.connect(url, "dan", w.user("dan", "shop", "shop", plain))
	defer shop.Close()
	_, err = must(shop.JetStream(nats.MaxWait(patience))).AccountInfo()
	check(errors.Is(err, nats.ErrJetStreamNotEnabledForAccount), "an account without JetStream: %v", err)
}

func (w *world) expiry(url string) {
	// A slow machine may miss the first.
	for _, life := range []int64{3, 8, 15} {
		expires := func(c *jwt.UserClaims) { c.Expires = time.Now().Unix() + life }
		nc, err := w.try(url, "ada", w.user("ada", "app", "app", expires))
		if err == nil {
			closedWith(nc, nats.ErrAuthExpired)
			return
		}
	}
	check(false, "nobody gets in whose token ends soon")
}

func (w *world) revocation(url string, sys *nats.Conn) {
	token := w.user("cat", "app", "app", plain)
	nc := w.connect(url, "cat", token)
	stays := w.connect(url, "ada", w.user("ada", "app", "app", plain))
	defer stays.Close()
	revoke := func(c *jwt.AccountClaims) { c.Revoke(w.public("cat")) }
	push(sys, w.app(revoke))
	closedWith(nc, nats.ErrAuthRevoked)
	w.refused(url, "cat", token, "a revoked user")
	ok(stays.FlushTimeout(patience))
	ok(os.WriteFile(filepath.Join(w.dir, "revoked.jwt"), []byte(token), 0o600))
}

func (w *world) requests(url string, sys *nats.Conn) {
	var list struct{ Data []string }
	ok(json.Unmarshal(must(sys.Request("$SYS.REQ.CLAIMS.LIST", nil, patience)).Data, &list))
	check(len(list.Data) == 3, "list: %v", list.Data)
	found := string(must(sys.Request("$SYS.REQ.ACCOUNT."+w.public("app")+".CLAIMS.LOOKUP", nil, patience)).Data)
	check(must(jwt.DecodeAccountClaims(found)).Name == "APP", "lookup: %q", found)
	packed := must(sys.SubscribeSync(nats.NewInbox()))
	ok(sys.PublishRequest("$SYS.REQ.CLAIMS.PACK", packed.Subject, nil))
	count := 0
	for len(must(packed.NextMsg(patience)).Data) > 0 {
		count++
	}
	check(count == 3, "%d accounts in the pack", count)
	_, failure := claims(sys, "$SYS.REQ.CLAIMS.UPDATE", "nonsense")
	check(strings.Contains(failure, "expected 3 chunks"), "nonsense: %q", failure)
	_, failure = claims(sys, "$SYS.REQ.ACCOUNT."+w.public("shop")+".CLAIMS.UPDATE", w.app(func(*jwt.AccountClaims) {}))
	check(strings.Contains(failure, "subject does not match"), "a token for another account: %q", failure)
}

func after(url, dir string) {
	w := load(dir)
	app := w.connect(url, "ada", w.user("ada", "app", "app", plain))
	defer app.Close()
	js := must(app.JetStream(nats.MaxWait(patience)))
	check(string(must(js.GetMsg("KEEP", 1)).Data) == "this", "the message of the stream")
	w.refused(url, "cat", string(must(os.ReadFile(filepath.Join(dir, "revoked.jwt")))), "a user that was revoked before the restart")
	sys := w.connect(url, "root", w.user("root", "sys", "sys", plain))
	defer sys.Close()
	shop := w.connect(url, "dan", w.user("dan", "shop", "shop", plain))
	doomed := jwt.NewGenericClaims(w.public("operator-signing"))
	doomed.Data["accounts"] = []string{w.public("shop")}
	message, failure := claims(sys, "$SYS.REQ.CLAIMS.DELETE", must(doomed.Encode(w.keys["operator-signing"])))
	check(message == "deleted 1 accounts", "delete: %q %q", message, failure)
	closedWith(shop, nats.ErrAccountAuthExpired)
	w.refused(url, "dan", w.user("dan", "shop", "shop", plain), "a user of a deleted account")
	fmt.Println("ok jwtcheck after")
}

func main() {
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "setup":
		setup(args[1])
	case len(args) == 3 && args[0] == "run":
		run(args[1], args[2])
	case len(args) == 3 && args[0] == "after":
		after(args[1], args[2])
	default:
		fmt.Fprintln(os.Stderr, "jwtcheck setup DIR | run URL DIR | after URL DIR")
		os.Exit(2)
	}
}
