// The nats.go client over TLS: before and after INFO, and as the user that its certificate names.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

const patience = 60 * time.Second

func fail(what string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
	os.Exit(1)
}

// user asks the server who we are.
func user(nc *nats.Conn) string {
	msg, err := nc.Request("$SYS.REQ.USER.INFO", nil, patience)
	if err != nil {
		fail("USER.INFO", err)
	}
	var info struct {
		Data struct {
			User string `json:"user"`
		} `json:"data"`
	}
	if err := json.Unmarshal(msg.Data, &info); err != nil {
		fail("USER.INFO", err)
	}
	return info.Data.User
}

func main() {
	url, certs, want := os.Args[1], os.Args[2], os.Args[3]
	options := []nats.Option{
		nats.RootCAs(certs + "/ca.pem"),
		nats.ClientCert(certs+"/ada.pem", certs+"/ada.key"),
		nats.Timeout(patience),
	}
	if len(os.Args) > 4 && os.Args[4] == "first" {
		options = append(options, nats.TLSHandshakeFirst())
	}
	nc, err := nats.Connect(url, options...)
	if err != nil {
		fail("connect", err)
	}
	defer nc.Close()
	if found := user(nc); found != want {
		fail("user", fmt.Errorf("%q instead of %q", found, want))
	}
	state, err := nc.TLSConnectionState()
	if err != nil {
		fail("TLS", err)
	}
	fmt.Printf("ok nats.go %s as %s, TLS %x\n", os.Args[len(os.Args)-1], want, state.Version)
}
