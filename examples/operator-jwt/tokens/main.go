// Makes keys and tokens for the example, as `nsc` would. Seeds are in seeds.json: whoever has one is what it is the seed of.
//
//	tokens init               operator.jwt, system.conf, and credentials of the users
//	tokens account NAME [REVOKED USER …]   prints the token of an account
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return v
}

func write(file string, text []byte) { must(0, os.WriteFile(file, text, 0o600)) }

var keys = map[string]nkeys.KeyPair{}

func public(name string) string { return must(keys[name].PublicKey()) }

func makeKeys() {
	seeds := map[string]string{}
	for name, kind := range map[string]nkeys.PrefixByte{
		"operator": nkeys.PrefixByteOperator,
		"SYS":      nkeys.PrefixByteAccount, "STORE": nkeys.PrefixByteAccount, "SHOP": nkeys.PrefixByteAccount,
		"desks": nkeys.PrefixByteAccount,
		"admin": nkeys.PrefixByteUser, "store": nkeys.PrefixByteUser, "shop": nkeys.PrefixByteUser, "desk7": nkeys.PrefixByteUser,
	} {
		seeds[name] = string(must(must(nkeys.CreatePair(kind)).Seed()))
	}
	write("seeds.json", must(json.Marshal(seeds)))
}

func readKeys() {
	seeds := map[string]string{}
	must(0, json.Unmarshal(must(os.ReadFile("seeds.json")), &seeds))
	for name, seed := range seeds {
		keys[name] = must(nkeys.FromSeed([]byte(seed)))
	}
}

// account is a token of an account, signed by the operator.
func account(name string, revoked ...string) string {
	claims := jwt.NewAccountClaims(public(name))
	claims.Name = name
	switch name {
	case "STORE":
		claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: 1 << 30, Streams: 10, Consumer: -1}
		// Orders take a permit, the news are for everybody.
		claims.Exports.Add(
			&jwt.Export{Name: "orders", Subject: "orders.place.*", Type: jwt.Service, TokenReq: true},
			&jwt.Export{Name: "news", Subject: "news.>", Type: jwt.Stream})
	case "SHOP":
		permit := jwt.NewActivationClaims(public("SHOP"))
		permit.ImportSubject, permit.ImportType = "orders.place.*", jwt.Service
		claims.Imports.Add(
			&jwt.Import{Name: "orders", Account: public("STORE"), Subject: "orders.place.*", LocalSubject: "buy.$1", Type: jwt.Service, Token: must(permit.Encode(keys["STORE"]))},
			&jwt.Import{Name: "news", Account: public("STORE"), Subject: "news.>", LocalSubject: "store.news.>", Type: jwt.Stream})
		// Whoever this key signs is a desk: it may place orders of its own name.
		desks := jwt.NewUserScope()
		desks.Key, desks.Role = public("desks"), "desk"
		desks.Template.Pub.Allow.Add("buy.{{name()}}")
		desks.Template.Sub.Allow.Add("_INBOX.>")
		claims.SigningKeys.AddScopedSigner(desks)
	}
	for _, user := range revoked {
		claims.Revoke(public(user))
	}
	return must(claims.Encode(keys["operator"]))
}

// credentials writes the token of a user and its seed, which clients read.
func credentials(user, account, signer string) {
	claims := jwt.NewUserClaims(public(user))
	claims.Name = user
	if signer != account {
		claims.SetScoped(true)
		claims.IssuerAccount = public(account)
	}
	token := must(claims.Encode(keys[signer]))
	write(user+".creds", must(jwt.FormatUserConfig(token, must(keys[user].Seed()))))
}

func main() {
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "init":
		makeKeys()
		readKeys()
		operator := jwt.NewOperatorClaims(public("operator"))
		operator.Name, operator.SystemAccount = "BIRDS", public("SYS")
		write("operator.jwt", must(jwt.DecorateJWT(must(operator.Encode(keys["operator"])))))
		write("system.conf", fmt.Appendf(nil, "resolver_preload { %s: %s }\n", public("SYS"), account("SYS")))
		credentials("admin", "SYS", "SYS")
		credentials("store", "STORE", "STORE")
		credentials("shop", "SHOP", "SHOP")
		credentials("desk7", "SHOP", "desks")
	case len(args) >= 2 && args[0] == "account":
		readKeys()
		fmt.Print(account(args[1], strings.Fields(strings.Join(args[2:], " "))...))
	default:
		fmt.Fprintln(os.Stderr, "tokens init | tokens account NAME [REVOKED USER ...]")
		os.Exit(2)
	}
}
