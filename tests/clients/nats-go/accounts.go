// A01 to A07: accounts, exports and imports, JetStream across accounts, account limits, subject mappings.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var accounts = []scenario{
	{"A01", defaultLimit, isolation},
	{"A02", defaultLimit, imports},
	{"A03", defaultLimit, jetStreamAcross},
	{"A04", defaultLimit, keyValueAcross},
	{"A05", defaultLimit, accountLimits},
	{"A06", defaultLimit, partitions},
	{"A07", defaultLimit, systemAccount},
}

// as connects as a user whose password is its name.
func (c *ctx) as(user string) *nats.Conn {
	nc := must(nats.Connect(c.url, nats.NoReconnect(), nats.UserInfo(user, user), nats.Timeout(patience),
		nats.CustomInboxPrefix("_INBOX_"+user), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})))
	c.mu.Lock()
	c.conns = append(c.conns, nc)
	c.mu.Unlock()
	return nc
}

func isolation(c *ctx) {
	store := must(jetstream.New(c.as("store")))
	mine := c.stream("", jetstream.StreamConfig{Subjects: []string{"a01.>"}})
	theirs := must(store.CreateStream(c, jetstream.StreamConfig{Name: "A01", Subjects: []string{"a01.x", "a01.y"}}))
	defer store.DeleteStream(c, "A01")
	c.putMany("a01.x", 3)
	must(store.Publish(c, "a01.y", []byte("theirs")))
	equal(c.state(mine).Msgs, uint64(3), "messages of MAIN")
	equal(c.state(theirs).Msgs, uint64(1), "messages of STORE")
	guest := c.as("guest")
	_, err := guest.Request("a01.x", nil, patience)
	expectErr(err, nats.ErrNoResponders)
	_, err = must(jetstream.New(guest)).AccountInfo(c)
	expectErr(err, jetstream.ErrJetStreamNotEnabledForAccount)
	_, err = nats.Connect(c.url, nats.UserInfo("guest", "wrong"))
	check(err != nil && strings.Contains(strings.ToLower(err.Error()), "authorization violation"), "%v", err)
}

func imports(c *ctx) {
	store, guest := c.as("store"), c.as("guest")
	news := must(guest.SubscribeSync("from.store.news.*"))
	ok(guest.Flush())
	ok(store.Publish("news.today", []byte("hello")))
	msg := must(news.NextMsg(patience))
	equal(msg.Subject, "from.store.news.today", "subject of an imported stream")
	must(store.Subscribe("sum.*", func(m *nats.Msg) {
		var info struct {
			Acc, User string
		}
		_ = json.Unmarshal([]byte(m.Header.Get("Nats-Request-Info")), &info)
		_ = m.Respond([]byte(m.Subject + " " + info.Acc + " " + info.User))
	}))
	ok(store.Flush())
	for i := range 50 {
		reply := must(guest.Request(fmt.Sprintf("calc.%d.sum", i), nil, patience))
		equal(string(reply.Data), fmt.Sprintf("sum.%d GUEST guest", i), "reply")
	}
	_, err := guest.Request("sum.1", nil, patience)
	expectErr(err, nats.ErrNoResponders)
}

func jetStreamAcross(c *ctx) {
	storeConn, guest := c.as("store"), c.as("guest")
	store := must(jetstream.New(storeConn))
	stream := must(store.CreateStream(c, jetstream.StreamConfig{Name: "A03", Subjects: []string{"orders.a03.>"}}))
	defer store.DeleteStream(c, "A03")
	js := must(jetstream.NewWithAPIPrefix(guest, "store.API"))
	for i := range 20 {
		msg := nats.NewMsg("buy.a03.x")
		msg.Data = fmt.Appendf(nil, "%d", i)
		ack := must(js.PublishMsg(c, msg))
		equal(ack.Sequence, uint64(i+1), "sequence")
	}
	stored := must(stream.GetMsg(c, 1))
	equal(stored.Subject, "orders.a03.x", "stored subject")
	equal(stored.Header.Get("Nats-Request-Info"), "", "request info of a stored message")
	abroad := must(js.Stream(c, "A03"))
	equal(must(abroad.Info(c)).State.Msgs, uint64(20), "messages")
	pull := must(abroad.CreateConsumer(c, jetstream.ConsumerConfig{Durable: "pull", AckPolicy: jetstream.AckExplicitPolicy}))
	got := fetch(pull, 20, patience)
	equal(numbers(got), span(0, 20), "pulled")
	for _, msg := range got {
		equal(msg.Subject(), "orders.a03.x", "subject")
		ok(msg.DoubleAck(c))
	}
	equal(must(pull.Info(c)).AckFloor.Stream, uint64(20), "ack floor")
	consumed := inbox[int]{}
	again := must(abroad.CreateConsumer(c, jetstream.ConsumerConfig{Durable: "again", AckPolicy: jetstream.AckExplicitPolicy}))
	running := must(again.Consume(func(msg jetstream.Msg) {
		consumed.add(number(msg.Data()))
		_ = msg.Ack()
	}))
	until(patience, "all are consumed", func() bool { return consumed.len() == 20 })
	running.Stop()
	pushAcross(c, guest)
}

// pushAcross lets a push consumer deliver to a subject that the guest imports.
func pushAcross(c *ctx, guest *nats.Conn) {
	sub := must(guest.SubscribeSync("deliver.a03"))
	create := map[string]any{"stream_name": "A03", "config": map[string]any{
		"durable_name": "push", "deliver_subject": "deliver.a03", "ack_policy": "explicit", "deliver_policy": "all"}}
	reply := must(guest.Request("store.API.CONSUMER.DURABLE.CREATE.A03.push", must(json.Marshal(create)), patience))
	check(!strings.Contains(string(reply.Data), `"error"`), "%s", reply.Data)
	for i := range 20 {
		msg := must(sub.NextMsg(patience))
		equal(number(msg.Data), i, "pushed")
		equal(msg.Subject, "orders.a03.x", "subject of a push")
		ok(msg.AckSync())
	}
}

func keyValueAcross(c *ctx) {
	store := must(jetstream.New(c.as("store")))
	bucket := must(store.CreateKeyValue(c, jetstream.KeyValueConfig{Bucket: "a04"}))
	defer store.DeleteKeyValue(c, "a04")
	guest := must(nats.Connect(c.url, nats.UserInfo("guest", "guest"), nats.CustomInboxPrefix("_INBOX_guest")))
	defer guest.Close()
	must(bucket.PutString(c, "k", "1"))
	reply := must(guest.Request("store.kv.a04.k", []byte("2"), patience))
	check(strings.Contains(string(reply.Data), `"seq":2`), "%s", reply.Data)
	equal(string(must(bucket.Get(c, "k")).Value()), "2", "value")
	got := must(guest.Request("store.API.DIRECT.GET.KV_a04.$KV.a04.k", nil, patience))
	equal(string(got.Data), "2", "value read across accounts")
}

func accountLimits(c *ctx) {
	nc := c.as("small")
	js := must(jetstream.New(nc))
	info := must(js.AccountInfo(c))
	equal(info.Limits.MaxStreams, 2, "max_streams shown")
	equal(info.Limits.MaxStore, int64(1024*1024), "max_file shown")
	make := func(name string, size int64) error {
		_, err := js.CreateStream(c, jetstream.StreamConfig{Name: name, Subjects: []string{name}, MaxBytes: size})
		return err
	}
	expectCode(make("A05A", 0), 10113)
	expectCode(make("A05A", 600*1024), 10122)
	ok(make("A05A", 400*1024))
	ok(make("A05B", 400*1024))
	expectCode(make("A05C", 1024), 10027)
	defer js.DeleteStream(c, "A05A")
	defer js.DeleteStream(c, "A05B")
	_, err := js.CreateStream(c, jetstream.StreamConfig{Name: "A05M", MaxBytes: 1024, Storage: jetstream.MemoryStorage})
	check(err != nil, "a memory stream beyond max_mem")
	_, err = js.CreateConsumer(c, "A05A", jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 11})
	expectCode(err, 10121)
	other := c.as("small")
	ok(other.Flush())
	// A client that is refused tries the other nodes of a cluster, which may just be hearing of the second one.
	until(patience, "a third connection is refused", func() bool {
		third, err := nats.Connect(c.url, nats.UserInfo("small", "small"))
		if err == nil {
			third.Close()
			return false
		}
		check(strings.Contains(err.Error(), "maximum account active connections exceeded"), "%v", err)
		return true
	})
}

func partitions(c *ctx) {
	store := c.as("store")
	sub := must(store.SubscribeSync("part.>"))
	renamed := must(store.SubscribeSync("new.*"))
	ok(sub.SetPendingLimits(-1, -1))
	random := rand.New(rand.NewPCG(1, 2))
	token := func() string {
		text := make([]byte, 1+random.IntN(20))
		for i := range text {
			text[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-=/"[random.IntN(66)]
		}
		return string(text)
	}
	var want []string
	for range 10_000 {
		one, two := token(), token()
		hash := fnv.New32a()
		hash.Write([]byte(one + two))
		want = append(want, fmt.Sprintf("part.%s.%s.%d", one, two, hash.Sum32()%10))
		ok(store.Publish("part."+one+"."+two, nil))
	}
	ok(store.Publish("old.x", nil))
	for _, subject := range want {
		equal(must(sub.NextMsg(patience)).Subject, subject, "partition")
	}
	equal(must(renamed.NextMsg(patience)).Subject, "new.x", "mapped subject")
	if _, err := renamed.NextMsg(50 * time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		fail("%v", err)
	}
}

// systemAccount sends what `nats server` sends, and listens to events.
func systemAccount(c *ctx) {
	sys, guest := c.as("sys"), c.as("guest")
	id := sys.ConnectedServerId()
	// Each node of a cluster answers; what counts is what the one says that the clients are at.
	ask := func(nc *nats.Conn, subject, body string) map[string]any {
		inbox := nc.NewRespInbox()
		sub := must(nc.SubscribeSync(inbox))
		defer func() { _ = sub.Unsubscribe() }()
		ok(nc.PublishRequest(subject, inbox, []byte(body)))
		for {
			var answer map[string]any
			ok(json.Unmarshal(must(sub.NextMsg(patience)).Data, &answer))
			server, found := answer["server"].(map[string]any)
			if !found || server["id"] == id {
				return answer
			}
		}
	}
	data := func(answer map[string]any) map[string]any {
		inner, _ := answer["data"].(map[string]any)
		check(inner != nil, "no data in %v", answer)
		return inner
	}
	ping := ask(sys, "$SYS.REQ.SERVER.PING", "")
	check(ping["statsz"].(map[string]any)["connections"].(float64) >= 2, "%v", ping)
	equal(ask(sys, "$SYS.REQ.SERVER."+id+".IDZ", "")["id"], any(id), "id")
	for what, field := range map[string]string{"VARZ": "max_payload", "CONNZ": "connections", "SUBSZ": "num_subscriptions",
		"ROUTEZ": "num_routes", "LEAFZ": "leafnodes", "GATEWAYZ": "server_id", "ACCOUNTZ": "accounts", "JSZ": "streams", "HEALTHZ": "status"} {
		_, found := data(ask(sys, "$SYS.REQ.SERVER.PING."+what, ""))[field]
		check(found, "no %s in %s", field, what)
	}
	conns := data(ask(sys, "$SYS.REQ.ACCOUNT.GUEST.CONNZ", `{"auth":true}`))["connections"].([]any)
	equal(len(conns), 1, "connections of GUEST")
	cid := conns[0].(map[string]any)["cid"].(float64)
	equal(conns[0].(map[string]any)["account"], any("GUEST"), "account")
	equal(data(ask(sys, "$SYS.REQ.ACCOUNT.STORE.INFO", ""))["account_name"], any("STORE"), "account info")
	stats := data(ask(sys, "$SYS.REQ.ACCOUNT.GUEST.STATZ", ""))["account_statz"].([]any)
	equal(stats[0].(map[string]any)["conns"], any(float64(1)), "account statz")
	equal(data(ask(guest, "$SYS.REQ.SERVER.PING.CONNZ", ""))["num_connections"], any(float64(1)), "own connections")
	equal(data(ask(guest, "$SYS.REQ.USER.INFO", ""))["account"], any("GUEST"), "user info")
	_, err := guest.Request("$SYS.REQ.SERVER.PING", nil, patience)
	expectErr(err, nats.ErrNoResponders)
	events := must(sys.SubscribeSync("$SYS.ACCOUNT.GUEST.*"))
	refusals := must(sys.SubscribeSync("$SYS.SERVER.*.CLIENT.AUTH.ERR"))
	ok(sys.Flush())
	c.as("guest").Close()
	equal(must(events.NextMsg(patience)).Subject, "$SYS.ACCOUNT.GUEST.CONNECT", "event")
	equal(must(events.NextMsg(patience)).Subject, "$SYS.ACCOUNT.GUEST.DISCONNECT", "event")
	_, err = nats.Connect(c.url, nats.UserInfo("guest", "wrong"))
	check(err != nil, "a wrong password")
	must(refusals.NextMsg(patience))
	kicked := ask(sys, "$SYS.REQ.SERVER."+id+".KICK", fmt.Sprintf(`{"cid":%d}`, int(cid)))
	check(kicked["error"] == nil, "%v", kicked)
	until(patience, "the guest is gone", func() bool { return !guest.IsConnected() })
}
