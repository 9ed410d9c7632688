// S12 to S18: stream limits, discard and retention policies, rollups, deny flags.
package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var limits = []scenario{
	{"S12", defaultLimit, discardOld},
	{"S13", defaultLimit, maxAge},
	{"S14", defaultLimit, refusals},
	{"S15", defaultLimit, interest},
	{"S16", defaultLimit, workQueue},
	{"S17", defaultLimit, rollup},
	{"S18", defaultLimit, denyAndSeal},
}

// kept gives the payload numbers that are still in the stream, in order.
func kept(c *ctx, s jetstream.Stream) []int {
	out := []int{}
	state := c.state(s)
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		msg, err := s.GetMsg(c, seq)
		if err == nil {
			out = append(out, number(msg.Data))
		} else {
			expectCode(err, 10037)
		}
	}
	return out
}

func discardOld(c *ctx) {
	byMsgs := c.stream("A", streamConfig{MaxMsgs: 5})
	c.putMany("s12a.x", 10)
	equal(kept(c, byMsgs), span(5, 10), "max_msgs")

	byBytes := c.stream("B", streamConfig{MaxBytes: 2000})
	for i := range 10 {
		c.put("s12b.x", fmt.Sprintf("%0500d", i))
	}
	check(c.state(byBytes).Bytes <= 2000, "bytes %d", c.state(byBytes).Bytes)
	left := kept(c, byBytes)
	check(len(left) > 0 && len(left) <= 4, "kept %v", left)
	equal(left, span(10-len(left), 10), "max_bytes keeps the newest")

	bySubject := c.stream("C", streamConfig{MaxMsgsPerSubject: 2})
	for i := range 10 {
		c.put("s12c."+strconv.Itoa(i%2), strconv.Itoa(i))
	}
	equal(kept(c, bySubject), span(6, 10), "max_msgs_per_subject")
}

func maxAge(c *ctx) {
	s := c.stream("", streamConfig{MaxAge: time.Second, Duplicates: time.Second})
	c.putMany("s13.a", 3)
	equal(c.state(s).Msgs, uint64(3), "messages at first")
	until(patience, "messages expire", func() bool { return c.state(s).Msgs == 0 })
	equal(c.state(s).LastSeq, uint64(3), "last_seq")
}

func refusals(c *ctx) {
	c.stream("A", streamConfig{MaxMsgSize: 100})
	expectCode(c.putErr("s14a.x", string(make([]byte, 101))), 10054)
	equal(c.put("s14a.x", string(make([]byte, 100))).Sequence, uint64(1), "at the limit")

	b := c.stream("B", streamConfig{MaxMsgs: 2, Discard: jetstream.DiscardNew})
	c.putMany("s14b.x", 2)
	expectCode(c.putErr("s14b.x", "x"), 10077)
	equal(kept(c, b), span(0, 2), "max_msgs keeps the oldest")

	bytes := c.stream("C", streamConfig{MaxBytes: 500, Discard: jetstream.DiscardNew})
	c.put("s14c.x", string(make([]byte, 200)))
	expectCode(c.putErr("s14c.x", string(make([]byte, 400))), 10077)
	equal(c.state(bytes).Msgs, uint64(1), "max_bytes")

	c.stream("D", streamConfig{MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true})
	c.put("s14d.x", "0")
	expectCode(c.putErr("s14d.x", "1"), 10077)
	equal(c.put("s14d.y", "2").Sequence, uint64(2), "another subject")
}

func interest(c *ctx) {
	s := c.stream("", streamConfig{Retention: jetstream.InterestPolicy})
	equal(c.put("s15.a", "nobody").Sequence, uint64(1), "sequence without interest")
	equal(c.state(s).Msgs, uint64(0), "stored without interest")
	one, two := c.consumer(s, "one", consumerConfig{}), c.consumer(s, "two", consumerConfig{})
	c.put("s15.a", "x")
	ok(fetchOne(one).DoubleAck(c))
	equal(c.state(s).Msgs, uint64(1), "after the first ack")
	ok(fetchOne(two).DoubleAck(c))
	until(patience, "gone after the second ack", func() bool { return c.state(s).Msgs == 0 })
}

func workQueue(c *ctx) {
	s := c.stream("", streamConfig{Retention: jetstream.WorkQueuePolicy})
	a := c.consumer(s, "a", consumerConfig{FilterSubject: "s16.a.*"})
	c.consumer(s, "b", consumerConfig{FilterSubject: "s16.b"})
	_, err := s.CreateConsumer(c, consumerConfig{Durable: "all"})
	expectCode(err, 10099)
	_, err = s.CreateConsumer(c, consumerConfig{Durable: "o", FilterSubject: "s16.a.1"})
	expectCode(err, 10100)
	c.put("s16.a.1", "x")
	c.put("s16.b", "y")
	ok(fetchOne(a).DoubleAck(c))
	until(patience, "acked message is gone", func() bool { return c.state(s).Msgs == 1 })
	equal(string(must(s.GetLastMsgForSubject(c, "s16.b")).Data), "y", "the other one stays")
}

func rollupMsg(subject, body, how string) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{jetstream.MsgRollup: {how}}}
}

func rollup(c *ctx) {
	s := c.stream("", streamConfig{AllowRollup: true})
	for i := range 6 {
		c.put("s17."+strconv.Itoa(i%2), strconv.Itoa(i))
	}
	must(c.js.PublishMsg(c, rollupMsg("s17.0", "6", jetstream.MsgRollupSubject)))
	equal(kept(c, s), []int{1, 3, 5, 6}, "rollup sub")
	must(c.js.PublishMsg(c, rollupMsg("s17.1", "7", jetstream.MsgRollupAll)))
	equal(kept(c, s), []int{7}, "rollup all")
	c.stream("X", streamConfig{})
	_, err := c.js.PublishMsg(c, rollupMsg("s17x.a", "x", jetstream.MsgRollupSubject))
	expectCode(err, 10111)
}

func denyAndSeal(c *ctx) {
	deny := c.stream("A", streamConfig{DenyDelete: true, DenyPurge: true})
	c.put("s18a.x", "x")
	expectCode(deny.DeleteMsg(c, 1), 10057)
	expectCode(deny.Purge(c), 10110)
	sealed := c.stream("B", streamConfig{})
	c.put("s18b.x", "x")
	config := must(sealed.Info(c)).Config
	config.Sealed = true
	updated := must(c.js.UpdateStream(c, config))
	check(updated.CachedInfo().Config.Sealed, "sealed")
	expectCode(c.putErr("s18b.x", "y"), 10109)
	equal(c.state(sealed).Msgs, uint64(1), "messages")
}
