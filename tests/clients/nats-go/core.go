// C01 to C10: core publish/subscribe, request/reply, headers, drain, limits.
package main

import (
	"bytes"
	"crypto/sha256"
	"math/rand"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

var core = []scenario{
	{"C01", defaultLimit, wildcards},
	{"C02", defaultLimit, queueGroups},
	{"C03", defaultLimit, requestReply},
	{"C04", defaultLimit, noResponders},
	{"C05", defaultLimit, headers},
	{"C06", defaultLimit, drain},
	{"C07", defaultLimit, unsubscribeAfter},
	{"C08", defaultLimit, maxPayload},
	{"C09", defaultLimit, largeMessages},
	{"C10", defaultLimit, order},
}

func collect(nc *nats.Conn, subject, queue string) *inbox[*nats.Msg] {
	got := &inbox[*nats.Msg]{}
	must(nc.QueueSubscribe(subject, queue, func(m *nats.Msg) { got.add(m) }))
	ok(nc.Flush())
	return got
}

func subjectsOf(b *inbox[*nats.Msg]) []string {
	out := []string{}
	for _, m := range b.all() {
		out = append(out, m.Subject)
	}
	return out
}

func numbersOf(b *inbox[*nats.Msg]) []int {
	out := []int{}
	for _, m := range b.all() {
		out = append(out, number(m.Data))
	}
	return out
}

func wildcards(c *ctx) {
	star, mid, rest := collect(c.nc, "c01.*", ""), collect(c.nc, "c01.*.x", ""), collect(c.nc, "c01.>", "")
	for _, subject := range []string{"c01", "c01.a", "c01.b", "c01.a.x", "c01.a.y"} {
		ok(c.nc.Publish(subject, []byte("x")))
	}
	ok(c.nc.Flush())
	time.Sleep(200 * time.Millisecond)
	equal(subjectsOf(star), []string{"c01.a", "c01.b"}, "c01.*")
	equal(subjectsOf(mid), []string{"c01.a.x"}, "c01.*.x")
	equal(subjectsOf(rest), []string{"c01.a", "c01.b", "c01.a.x", "c01.a.y"}, "c01.>")
}

func queueGroups(c *ctx) {
	members := []*inbox[*nats.Msg]{}
	for range 3 {
		members = append(members, collect(c.connect(), "c02.q", "workers"))
	}
	plain := collect(c.nc, "c02.q", "")
	for i := range 300 {
		ok(c.nc.Publish("c02.q", []byte(strconv.Itoa(i))))
	}
	sum := func() (all []int) {
		for _, m := range members {
			all = append(all, numbersOf(m)...)
		}
		return all
	}
	until(patience, "300 messages", func() bool { return len(sum()) >= 300 && plain.len() >= 300 })
	time.Sleep(100 * time.Millisecond)
	all := sum()
	slices.Sort(all)
	equal(all, span(0, 300), "group")
	equal(numbersOf(plain), span(0, 300), "plain subscriber")
	for _, m := range members {
		check(m.len() > 0, "a member got nothing")
	}
}

func requestReply(c *ctx) {
	responder := c.connect()
	must(responder.Subscribe("c03.*", func(m *nats.Msg) { _ = m.Respond(append([]byte("re:"), m.Data...)) }))
	ok(responder.Flush())
	for i := range 200 {
		text := strconv.Itoa(i)
		reply := must(c.nc.Request("c03."+text, []byte(text), patience))
		equal(string(reply.Data), "re:"+text, "reply")
	}
}

func noResponders(c *ctx) {
	began := time.Now()
	_, err := c.nc.Request("c04.nobody", []byte("?"), patience)
	expectErr(err, nats.ErrNoResponders)
	check(time.Since(began) < patience/2, "took as long as a request may")
}

func headers(c *ctx) {
	sent := nats.Header{"X-Mixed-Case": {"a b: c;d"}, "lower": {"1"}, "X-Two": {"one", "two"}, "X-Utf": {"grüße"}}
	got := collect(c.nc, "c05.h", "")
	bodies := []string{"line\r\nline\x00end", ""}
	for _, body := range bodies {
		ok(c.nc.PublishMsg(&nats.Msg{Subject: "c05.h", Header: sent, Data: []byte(body)}))
	}
	until(patience, "two messages", func() bool { return got.len() == 2 })
	for i, msg := range got.all() {
		equal(string(msg.Data), bodies[i], "payload")
		equal(msg.Header, sent, "headers")
	}
	must(c.nc.Subscribe("c05.r", func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Echo": m.Header["Ask"]}})
	}))
	ask := &nats.Msg{Subject: "c05.r", Header: nats.Header{"Ask": {"v 1"}}}
	equal(must(c.nc.RequestMsg(ask, patience)).Header.Get("Echo"), "v 1", "reply header")
}

func drain(c *ctx) {
	receiver := c.connect()
	got := &inbox[int]{}
	sub := must(receiver.Subscribe("c06.d", func(m *nats.Msg) {
		time.Sleep(2 * time.Millisecond)
		n, err := strconv.Atoi(string(m.Data))
		if err != nil {
			n = -1
		}
		got.add(n)
	}))
	ok(receiver.Flush())
	for i := range 100 {
		ok(c.nc.Publish("c06.d", []byte(strconv.Itoa(i))))
	}
	ok(c.nc.Flush())
	ok(receiver.Flush())
	ok(sub.Drain())
	ok(receiver.Flush())
	for range 10 {
		ok(c.nc.Publish("c06.d", []byte("late")))
	}
	ok(c.nc.Flush())
	ok(receiver.Drain())
	until(patience, "the connection closes", receiver.IsClosed)
	equal(got.all(), span(0, 100), "drained messages")
}

func unsubscribeAfter(c *ctx) {
	got := &inbox[*nats.Msg]{}
	sub := must(c.nc.Subscribe("c07.u", func(m *nats.Msg) { got.add(m) }))
	ok(sub.AutoUnsubscribe(5))
	for i := range 10 {
		ok(c.nc.Publish("c07.u", []byte(strconv.Itoa(i))))
	}
	ok(c.nc.Flush())
	time.Sleep(300 * time.Millisecond)
	equal(numbersOf(got), span(0, 5), "messages")
}

func maxPayload(c *ctx) {
	limit := int(c.nc.MaxPayload())
	got := collect(c.nc, "c08.p", "")
	expectErr(c.nc.Publish("c08.p", make([]byte, limit+1)), nats.ErrMaxPayload)
	body := bytes.Repeat([]byte{0xab}, limit)
	ok(c.nc.Publish("c08.p", body))
	until(patience, "the message of max_payload bytes", func() bool { return got.len() == 1 })
	check(bytes.Equal(got.all()[0].Data, body), "payload differs")
}

func largeMessages(c *ctx) {
	responder := c.connect()
	must(responder.Subscribe("c09.echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }))
	ok(responder.Flush())
	source := rand.New(rand.NewSource(9))
	body := make([]byte, min(1_000_000, c.nc.MaxPayload()))
	for range 20 {
		source.Read(body)
		reply := must(c.nc.Request("c09.echo", body, patience))
		equal(sha256.Sum256(reply.Data), sha256.Sum256(body), "SHA-256")
	}
}

func order(c *ctx) {
	const count = 20_000
	got := collect(c.connect(), "c10.o", "")
	for i := range count {
		ok(c.nc.Publish("c10.o", []byte(strconv.Itoa(i))))
	}
	ok(c.nc.Flush())
	until(patience, "all messages", func() bool { return got.len() >= count })
	equal(numbersOf(got), span(0, count), "order")
	check(c.nc.HeadersSupported(), "INFO.headers")
	check(c.nc.MaxPayload() > 0, "INFO.max_payload")
	// nats.go hands out no INFO.jetstream; every later scenario needs it.
}
