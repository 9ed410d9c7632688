// P05 to P11: nak, term, in-progress, ack wait, max_deliver, backoff.
package main

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var redelivery = []scenario{
	{"P05", defaultLimit, nak},
	{"P06", defaultLimit, nakDelay},
	{"P07", defaultLimit, term},
	{"P08", defaultLimit, inProgress},
	{"P09", defaultLimit, ackWait},
	{"P10", defaultLimit, maxDeliver},
	{"P11", defaultLimit, backoff},
}

// oneMessage makes a stream with one message and its consumer, and takes the first delivery.
func oneMessage(c *ctx, cfg consumerConfig) (jetstream.Consumer, jetstream.Msg) {
	s := c.stream("", streamConfig{})
	c.put(c.low+".a", "x")
	cons := c.consumer(s, "c", cfg)
	msg := fetchOne(cons)
	equal(meta(msg).NumDelivered, uint64(1), "first delivery")
	return cons, msg
}

// again takes the next delivery, which must have this count.
func again(cons jetstream.Consumer, count uint64) jetstream.Msg {
	msg := fetchOne(cons)
	equal(meta(msg).NumDelivered, count, "delivered")
	return msg
}

func nak(c *ctx) {
	cons, msg := oneMessage(c, consumerConfig{})
	began := time.Now()
	ok(msg.Nak())
	again(cons, 2)
	check(time.Since(began) < patience/3, "redelivered late")
}

func nakDelay(c *ctx) {
	cons, msg := oneMessage(c, consumerConfig{})
	began := time.Now()
	ok(msg.NakWithDelay(700 * time.Millisecond))
	again(cons, 2)
	took := time.Since(began)
	check(took >= 600*time.Millisecond && took < patience/3, "took %v", took)
}

func term(c *ctx) {
	cons, msg := oneMessage(c, consumerConfig{AckWait: 500 * time.Millisecond})
	ok(msg.Term())
	nothingMore(cons, 1500*time.Millisecond)
	info := must(cons.Info(c))
	equal([]int{info.NumAckPending, int(info.AckFloor.Stream)}, []int{0, 1}, "info")
}

func inProgress(c *ctx) {
	cons, msg := oneMessage(c, consumerConfig{AckWait: 5 * time.Second})
	for range 2 {
		time.Sleep(3 * time.Second)
		ok(msg.InProgress())
	}
	nothingMore(cons, 2*time.Second)
	ok(msg.DoubleAck(c))
	equal(must(cons.Info(c)).NumAckPending, 0, "num_ack_pending")
}

func ackWait(c *ctx) {
	cons, _ := oneMessage(c, consumerConfig{AckWait: 500 * time.Millisecond})
	msg := again(cons, 2)
	equal(must(cons.Info(c)).NumRedelivered, 1, "num_redelivered")
	ok(msg.DoubleAck(c))
	equal(must(cons.Info(c)).NumRedelivered, 0, "after the ack")
}

func maxDeliver(c *ctx) {
	advisories := &inbox[[]byte]{}
	must(c.nc.Subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.P10.c", func(m *nats.Msg) { advisories.add(m.Data) }))
	cons, _ := oneMessage(c, consumerConfig{AckWait: 500 * time.Millisecond, MaxDeliver: 2})
	again(cons, 2)
	nothingMore(cons, 1500*time.Millisecond)
	until(patience, "the advisory", func() bool { return advisories.len() > 0 })
	equal(advisories.len(), 1, "advisories")
	type advisory struct {
		Stream     string `json:"stream"`
		Consumer   string `json:"consumer"`
		StreamSeq  uint64 `json:"stream_seq"`
		Deliveries int    `json:"deliveries"`
	}
	var told advisory
	ok(json.Unmarshal(advisories.all()[0], &told))
	equal(told, advisory{"P10", "c", 1, 2}, "advisory")
}

func backoff(c *ctx) {
	steps := []time.Duration{300 * time.Millisecond, time.Second}
	began := time.Now()
	cons, _ := oneMessage(c, consumerConfig{BackOff: steps, MaxDeliver: 3})
	again(cons, 2)
	check(time.Since(began) >= 250*time.Millisecond, "delivery 2 after %v", time.Since(began))
	again(cons, 3)
	check(time.Since(began) >= 1250*time.Millisecond, "delivery 3 after %v", time.Since(began))
	nothingMore(cons, 1500*time.Millisecond)
}
