// X03, X04: messages with a time to live (ADR-43), delete markers, and what key-value buckets make of them.
package main

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

var timed = []scenario{
	{"X03", defaultLimit, timeToLive},
	{"X04", defaultLimit, limitMarkers},
}

func timeToLive(c *ctx) {
	s := c.stream("", streamConfig{AllowMsgTTL: true, MaxAge: 12 * time.Second})
	c.put("x03.a", "short", jetstream.WithMsgTTL(5*time.Second))
	c.put("x03.b", "by age")
	equal(c.ask("x03.c", "never", pairsOf("Nats-TTL", "never"))["seq"], 3.0, "never")
	for _, wrong := range []string{"0", "900ms", "-5", "soon"} {
		equal(errOf(c.ask("x03.d", "", pairsOf("Nats-TTL", wrong))), 10165, wrong)
	}
	equal(c.state(s).Msgs, uint64(3), "messages at first")
	until(patience, "the short one goes", func() bool { return c.state(s).Msgs == 2 })
	_, err := s.GetMsg(c, 1)
	expectCode(err, 10037)
	until(patience, "the age limit takes the second", func() bool { return c.state(s).Msgs == 1 })
	equal(string(must(s.GetMsg(c, 3)).Data), "never", "what never expires")

	c.stream("OFF", streamConfig{})
	equal(errOf(c.ask("x03off.a", "", pairsOf("Nats-TTL", "5s"))), 10166, "not allowed")
	equal(errOf(c.ask("x03off.a", "", pairsOf("Nats-TTL", "0"))), 10165, "invalid, and not allowed")
	equal(errOf(c.ask("x03off.a", "", pairsOf("Nats-TTL", "00"))), 0, "nothing said")
}

func limitMarkers(c *ctx) {
	kv := must(c.js.CreateKeyValue(c, jetstream.KeyValueConfig{Bucket: c.id, LimitMarkerTTL: 6 * time.Second, History: 2}))
	c.owns("KV_" + c.id)
	must(kv.Create(c, "k", []byte("v"), jetstream.KeyTTL(5*time.Second)))
	must(kv.Put(c, "other", []byte("v")))
	watch := must(kv.WatchAll(c, jetstream.UpdatesOnly()))
	marker := <-watch.Updates()
	for ; marker == nil || marker.Key() != "k"; marker = <-watch.Updates() {
	}
	equal(marker.Operation(), jetstream.KeyValuePurge, "what a watcher sees of the marker")
	_, err := kv.Get(c, "k")
	expectErr(err, jetstream.ErrKeyNotFound)
	equal(string(must(kv.Get(c, "other")).Value()), "v", "the other key stays")
	stream := must(c.js.Stream(c, "KV_"+c.id))
	last := must(stream.GetLastMsgForSubject(c, "$KV.X04.k"))
	equal(last.Header.Get("Nats-Marker-Reason"), "MaxAge", "the marker's reason")
	ok(kv.Purge(c, "other", jetstream.PurgeTTL(2*time.Second)))
	until(patience, "markers go as well", func() bool { return c.state(stream).Msgs == 0 })
	must(kv.Create(c, "k", []byte("again")))
}
