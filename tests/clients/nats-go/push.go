// D01 to D07: push consumers, flow control, heartbeats, ordered consumers.
package main

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var push = []scenario{
	{"D01", defaultLimit, pushDurable},
	{"D02", defaultLimit, deliverGroup},
	{"D03", 2 * defaultLimit, flowControl},
	{"D04", defaultLimit, heartbeats},
	{"D05", 2 * defaultLimit, ordered},
	{"D06", 2 * defaultLimit, fiveMegabytes},
	{"D07", defaultLimit, orderedFiltered},
}

// consume starts a push consumer and gathers payload numbers.
func consume(cons jetstream.PushConsumer, ack bool) (*inbox[int], jetstream.ConsumeContext) {
	got := &inbox[int]{}
	running := must(cons.Consume(func(msg jetstream.Msg) {
		n, err := strconv.Atoi(string(msg.Data()))
		if err != nil {
			n = -1
		}
		got.add(n)
		if ack {
			_ = msg.Ack()
		}
	}))
	return got, running
}

func pushDurable(c *ctx) {
	s := c.stream("", streamConfig{})
	c.putMany("d01.a", 100)
	cons := must(s.CreatePushConsumer(c, consumerConfig{Durable: "c", DeliverSubject: nats.NewInbox()}))
	got, running := consume(cons, true)
	defer running.Stop()
	until(patience, "100 messages acked", func() bool {
		return got.len() >= 100 && must(cons.Info(c)).NumAckPending == 0
	})
	equal(got.all(), span(0, 100), "messages")
	info := must(cons.Info(c))
	equal([]any{info.AckFloor.Stream, info.PushBound}, []any{uint64(100), true}, "info")
}

func deliverGroup(c *ctx) {
	s := c.stream("", streamConfig{})
	must(s.CreatePushConsumer(c, consumerConfig{Durable: "c", DeliverSubject: nats.NewInbox(), DeliverGroup: "workers"}))
	members := []*inbox[int]{}
	for range 3 {
		nc := c.connect()
		cons := must(must(jetstream.New(nc)).PushConsumer(c, "D02", "c"))
		got, running := consume(cons, true)
		defer running.Stop()
		ok(nc.Flush())
		members = append(members, got)
	}
	c.putMany("d02.a", 300)
	sum := func() (all []int) {
		for _, m := range members {
			all = append(all, m.all()...)
		}
		return all
	}
	until(patience, "300 messages", func() bool { return len(sum()) >= 300 })
	time.Sleep(200 * time.Millisecond)
	all := sum()
	slices.Sort(all)
	equal(all, span(0, 300), "messages")
	for _, m := range members {
		check(m.len() > 0, "a member got nothing")
	}
}

func flowControl(c *ctx) {
	const count = 40_000
	s := c.stream("", streamConfig{})
	publishAll(c, "d03.a", count, func(i int) []byte { return fmt.Appendf(nil, "%0512d", i) })
	cons := must(s.CreatePushConsumer(c, consumerConfig{
		Durable: "c", DeliverSubject: nats.NewInbox(), AckPolicy: jetstream.AckNonePolicy,
		FlowControl: true, IdleHeartbeat: time.Second,
	}))
	got, running := consume(cons, false)
	defer running.Stop()
	until(patience, "all messages", func() bool { return got.len() >= count })
	equal(got.all(), span(0, count), "messages")
}

func heartbeats(c *ctx) {
	s := c.stream("", streamConfig{})
	inbox := nats.NewInbox()
	got := collect(c.nc, inbox, "")
	must(s.CreatePushConsumer(c, consumerConfig{Durable: "c", DeliverSubject: inbox, IdleHeartbeat: 200 * time.Millisecond}))
	until(patience, "3 heartbeats", func() bool { return got.len() >= 3 })
	for _, msg := range got.all() {
		h := msg.Header
		seen := []string{h.Get("Status"), h.Get("Nats-Last-Consumer"), h.Get("Nats-Last-Stream")}
		equal(seen, []string{"100", "0", "0"}, "status and sequences")
	}
}

func ordered(c *ctx) {
	const count = 200_000
	s := c.stream("", streamConfig{})
	publishAll(c, "d05.a", count, func(i int) []byte { return fmt.Appendf(nil, "%064d", i) })
	cons := must(s.OrderedConsumer(c, jetstream.OrderedConsumerConfig{}))
	iter := must(cons.Messages())
	defer iter.Stop()
	for i := range count {
		msg := must(iter.Next())
		seq := meta(msg).Sequence.Stream
		if seq != uint64(i+1) || number(msg.Data()) != i {
			fail("place %d: sequence %d, payload %s", i+1, seq, msg.Data())
		}
	}
}

func fiveMegabytes(c *ctx) {
	const size, count = 5_000_000, 100
	if c.nc.MaxPayload() < size {
		panic(skip(fmt.Sprintf("the server's max_payload is %d", c.nc.MaxPayload())))
	}
	s := c.stream("", streamConfig{})
	body := make([]byte, size)
	for i := range count {
		binary.LittleEndian.PutUint64(body, uint64(i))
		binary.LittleEndian.PutUint64(body[size-8:], uint64(i))
		equal(must(c.js.Publish(c, "d06.a", body)).Sequence, uint64(i+1), "sequence")
	}
	cons := must(s.OrderedConsumer(c, jetstream.OrderedConsumerConfig{}))
	// Bytes in flight are bounded, as the client's documentation asks for with large messages.
	iter := must(cons.Messages(jetstream.PullMaxMessages(8)))
	defer iter.Stop()
	for i := range count {
		data := must(iter.Next()).Data()
		check(len(data) == size, "length %d", len(data))
		marks := []uint64{binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[size-8:])}
		equal(marks, []uint64{uint64(i), uint64(i)}, "marks")
	}
	check(c.nc.IsConnected(), "disconnected")
}

func orderedFiltered(c *ctx) {
	s := c.stream("", streamConfig{})
	for i := range 20 {
		c.put("d07."+strconv.Itoa(i%2), strconv.Itoa(i))
	}
	cons := must(s.OrderedConsumer(c, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"d07.0"}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 11,
	}))
	iter := must(cons.Messages())
	defer iter.Stop()
	for _, want := range []int{10, 12, 14, 16, 18} {
		equal(number(must(iter.Next()).Data()), want, "stored message")
	}
	c.put("d07.1", "20")
	c.put("d07.0", "21")
	equal(number(must(iter.Next()).Data()), 21, "new message")
}
