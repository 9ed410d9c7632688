// P01 to P04, P12 to P23: pull consumers apart from redelivery.
package main

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var pull = []scenario{
	{"P01", defaultLimit, explicitAck},
	{"P02", defaultLimit, noWait},
	{"P03", defaultLimit, expires},
	{"P04", defaultLimit, maxBytes},
	{"P12", defaultLimit, doubleAck},
	{"P13", defaultLimit, maxAckPending},
	{"P14", defaultLimit, filters},
	{"P15", defaultLimit, headersOnly},
	{"P16", defaultLimit, deliverPolicies},
	{"P17", defaultLimit, ackAllAndNone},
	{"P18", defaultLimit, ephemeral},
	{"P19", defaultLimit, consumerLifeCycle},
	{"P20", defaultLimit, exactPending},
	{"P21", defaultLimit, continuous},
	{"P22", defaultLimit, deletedWhileWaiting},
	{"P23", defaultLimit, twoFetchers},
}

func pending(c *ctx, cons jetstream.Consumer) int { return int(must(cons.Info(c)).NumPending) }

// ackedUpTo waits until the (asynchronous) acks are counted, then compares exactly.
func ackedUpTo(c *ctx, cons jetstream.Consumer, floor, left int) {
	until(patience, fmt.Sprintf("ack floor %d", floor), func() bool {
		info := must(cons.Info(c))
		return info.AckFloor.Stream == uint64(floor) && info.NumAckPending == 0
	})
	equal(pending(c, cons), left, "num_pending")
}

func explicitAck(c *ctx) {
	s := c.stream("", streamConfig{})
	c.putMany("p01.a", 10)
	cons := c.consumer(s, "c", consumerConfig{})
	first := 0
	for _, batch := range []int{4, 6} {
		msgs := fetch(cons, batch, patience)
		equal(numbers(msgs), span(first, first+batch), "messages")
		for i, msg := range msgs {
			m, seq := meta(msg), uint64(first+i+1)
			equal([]string{m.Stream, m.Consumer}, []string{"P01", "c"}, "names")
			equal(m.Sequence, jetstream.SequencePair{Consumer: seq, Stream: seq}, "sequences")
			equal([]uint64{m.NumDelivered, m.NumPending}, []uint64{1, 10 - seq}, "delivered, pending")
			ok(msg.Ack())
		}
		first += batch
		ackedUpTo(c, cons, first, 10-first)
	}
}

func noWait(c *ctx) {
	s := c.stream("", streamConfig{})
	cons := c.consumer(s, "c", consumerConfig{})
	for _, count := range []int{0, 3} {
		c.putMany("p02.a", count)
		began := time.Now()
		batch := must(cons.FetchNoWait(10))
		got := 0
		for range batch.Messages() {
			got++
		}
		equal(got, count, "messages")
		check(time.Since(began) < patience/3, "took as long as a fetch that waits")
	}
}

func expires(c *ctx) {
	s := c.stream("", streamConfig{})
	c.putMany("p03.a", 3)
	cons := c.consumer(s, "c", consumerConfig{})
	began := time.Now()
	equal(numbers(fetch(cons, 10, 3*time.Second)), span(0, 3), "messages")
	took := time.Since(began)
	check(took > 2800*time.Millisecond && took < patience/2, "took %v", took)
}

func maxBytes(c *ctx) {
	s := c.stream("", streamConfig{})
	for range 10 {
		c.put("p04.a", string(make([]byte, 1000)))
	}
	cons := c.consumer(s, "c", consumerConfig{})
	batch := must(cons.FetchBytes(3500, jetstream.FetchMaxWait(3*time.Second)))
	got := 0
	for range batch.Messages() {
		got++
	}
	check(got >= 1 && got <= 3, "%d messages", got)
	equal(len(fetch(cons, 10-got, patience)), 10-got, "the others")
}

func doubleAck(c *ctx) {
	s := c.stream("", streamConfig{})
	c.putMany("p12.a", 1)
	cons := c.consumer(s, "c", consumerConfig{})
	ok(fetchOne(cons).DoubleAck(c))
	info := must(cons.Info(c))
	equal([]int{int(info.AckFloor.Stream), info.NumAckPending}, []int{1, 0}, "info after the double ack")
}

func maxAckPending(c *ctx) {
	s := c.stream("", streamConfig{})
	c.putMany("p13.a", 10)
	cons := c.consumer(s, "c", consumerConfig{MaxAckPending: 5})
	first := fetch(cons, 10, 3*time.Second)
	equal(numbers(first), span(0, 5), "first")
	for _, msg := range first {
		ok(msg.DoubleAck(c))
	}
	equal(numbers(fetch(cons, 5, patience)), span(5, 10), "second")
}

func filters(c *ctx) {
	s := c.stream("", streamConfig{})
	for i := range 12 {
		c.put("p14."+string("abc"[i%3]), strconv.Itoa(i))
	}
	one := c.consumer(s, "one", consumerConfig{FilterSubject: "p14.b"})
	equal(pending(c, one), 4, "num_pending of one")
	equal(numbers(fetch(one, 4, patience)), []int{1, 4, 7, 10}, "one filter")
	two := c.consumer(s, "two", consumerConfig{FilterSubjects: []string{"p14.a", "p14.c"}})
	equal(pending(c, two), 8, "num_pending of two")
	equal(numbers(fetch(two, 8, patience)), []int{0, 2, 3, 5, 6, 8, 9, 11}, "two filters")
	_, err := s.CreateConsumer(c, consumerConfig{Durable: "x", FilterSubjects: []string{"p14.a", "p14.>"}})
	expectCode(err, 10138)
}

func headersOnly(c *ctx) {
	s := c.stream("", streamConfig{})
	must(c.js.PublishMsg(c, &nats.Msg{Subject: "p15.a", Data: make([]byte, 123), Header: nats.Header{"Kept": {"yes"}}}))
	msg := fetchOne(c.consumer(s, "c", consumerConfig{HeadersOnly: true}))
	equal(len(msg.Data()), 0, "payload")
	equal([]string{msg.Headers().Get("Nats-Msg-Size"), msg.Headers().Get("Kept")}, []string{"123", "yes"}, "headers")
}

func deliverPolicies(c *ctx) {
	s := c.stream("", streamConfig{})
	for _, tail := range "abca" {
		c.put("p16."+string(tail), "x")
	}
	time.Sleep(100 * time.Millisecond)
	middle := time.Now()
	time.Sleep(100 * time.Millisecond)
	for _, tail := range "ba" {
		c.put("p16."+string(tail), "x")
	}
	cases := []struct {
		name string
		cfg  consumerConfig
		want []uint64
	}{
		{"all", consumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}, []uint64{1, 2, 3, 4, 5, 6}},
		{"last", consumerConfig{DeliverPolicy: jetstream.DeliverLastPolicy}, []uint64{6}},
		{"seq", consumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 4}, []uint64{4, 5, 6}},
		{"time", consumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &middle}, []uint64{5, 6}},
		{"per", consumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: "p16.*"}, []uint64{3, 5, 6}},
	}
	for _, one := range cases {
		cons := c.consumer(s, one.name, one.cfg)
		equal(pending(c, cons), len(one.want), "num_pending of "+one.name)
		equal(seqs(fetch(cons, len(one.want), patience)), one.want, one.name)
	}
	cons := c.consumer(s, "new", consumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	nothingMore(cons, 300*time.Millisecond)
	c.put("p16.z", "x")
	equal(meta(fetchOne(cons)).Sequence.Stream, uint64(7), "new")
}

func ackAllAndNone(c *ctx) {
	s := c.stream("", streamConfig{})
	c.putMany("p17.a", 10)
	every := c.consumer(s, "all", consumerConfig{AckPolicy: jetstream.AckAllPolicy})
	ok(fetch(every, 10, patience)[4].DoubleAck(c))
	info := must(every.Info(c))
	equal([]int{int(info.AckFloor.Stream), info.NumAckPending}, []int{5, 5}, "ack all")
	none := c.consumer(s, "none", consumerConfig{AckPolicy: jetstream.AckNonePolicy})
	equal(len(fetch(none, 10, patience)), 10, "ack none")
	info = must(none.Info(c))
	equal([]int{info.NumAckPending, int(info.NumPending)}, []int{0, 0}, "ack none")
}

func ephemeral(c *ctx) {
	s := c.stream("", streamConfig{})
	cons := must(s.CreateConsumer(c, consumerConfig{InactiveThreshold: time.Second}))
	name := cons.CachedInfo().Name
	until(patience, "ephemeral consumer removed", func() bool {
		names := []string{}
		for name := range s.ConsumerNames(c).Name() {
			names = append(names, name)
		}
		return !slices.Contains(names, name)
	})
	_, err := s.Consumer(c, name)
	expectCode(err, 10014)
}

func consumerLifeCycle(c *ctx) {
	s := c.stream("", streamConfig{})
	cons := c.consumer(s, "c", consumerConfig{Description: "first", AckWait: 3 * time.Second})
	config := must(cons.Info(c)).Config
	equal([]any{config.Durable, config.Description, config.AckWait}, []any{"c", "first", 3 * time.Second}, "made")
	c.consumer(s, "d", consumerConfig{})
	var names, listed []string
	for name := range s.ConsumerNames(c).Name() {
		names = append(names, name)
	}
	for info := range s.ListConsumers(c).Info() {
		listed = append(listed, info.Name)
	}
	slices.Sort(names)
	slices.Sort(listed)
	equal(names, []string{"c", "d"}, "names")
	equal(listed, []string{"c", "d"}, "list")
	config.Description, config.MaxAckPending = "second", 7
	cons = must(s.UpdateConsumer(c, config))
	config = must(cons.Info(c)).Config
	equal([]any{config.Description, config.MaxAckPending}, []any{"second", 7}, "after the update")
	other := config
	other.DeliverPolicy = jetstream.DeliverNewPolicy
	_, err := s.UpdateConsumer(c, other)
	expectCode(err, 10012)
	other = config
	other.Description = "third"
	_, err = s.CreateConsumer(c, other)
	expectCode(err, 10148)
	_, err = s.UpdateConsumer(c, consumerConfig{Durable: "missing"})
	expectCode(err, 10149)
	ok(s.DeleteConsumer(c, "c"))
	_, err = s.Consumer(c, "c")
	expectCode(err, 10014)
	expectCode(s.DeleteConsumer(c, "c"), 10014)
}

func exactPending(c *ctx) {
	s := c.stream("", streamConfig{})
	for i := range 100 {
		c.put("p20."+strconv.Itoa(i%2), strconv.Itoa(i))
	}
	cons := c.consumer(s, "c", consumerConfig{FilterSubject: "p20.1"})
	equal(int(cons.CachedInfo().NumPending), 50, "at creation")
	for seq := uint64(52); seq < 72; seq += 2 {
		ok(s.DeleteMsg(c, seq))
	}
	equal(pending(c, cons), 40, "after the deletes")
	for i, msg := range fetch(cons, 10, patience) {
		equal(int(meta(msg).NumPending), 39-i, "in the metadata")
	}
	equal(pending(c, cons), 30, "after the partial read")
	ok(s.Purge(c, jetstream.WithPurgeSequence(80), jetstream.WithPurgeSubject("p20.1")))
	equal(pending(c, cons), 11, "after the purge below sequence 80")
	ok(s.Purge(c, jetstream.WithPurgeSubject("p20.1")))
	equal(pending(c, cons), 0, "after the purge")
}

func continuous(c *ctx) {
	const count = 2000
	s := c.stream("", streamConfig{})
	publishAll(c, "p21.a", count, func(i int) []byte { return []byte(strconv.Itoa(i)) })
	cons := c.consumer(s, "c", consumerConfig{})
	got := &inbox[int]{}
	running := must(cons.Consume(func(msg jetstream.Msg) {
		n, _ := strconv.Atoi(string(msg.Data()))
		got.add(n)
		_ = msg.Ack()
	}))
	defer running.Stop()
	until(patience, "all messages", func() bool { return got.len() >= count })
	ackedUpTo(c, cons, count, 0)
	equal(got.all(), span(0, count), "messages")
}

func deletedWhileWaiting(c *ctx) {
	s := c.stream("", streamConfig{})
	cons := c.consumer(s, "c", consumerConfig{})
	began := time.Now()
	batch := must(cons.Fetch(5, jetstream.FetchMaxWait(patience)))
	time.Sleep(300 * time.Millisecond)
	ok(s.DeleteConsumer(c, "c"))
	for range batch.Messages() {
		fail("a message from nowhere")
	}
	check(time.Since(began) < patience/2, "the fetch did not end early")
	expectErr(batch.Error(), jetstream.ErrConsumerDeleted)
}

func twoFetchers(c *ctx) {
	const count = 500
	s := c.stream("", streamConfig{})
	c.putMany("p23.a", count)
	cons := c.consumer(s, "c", consumerConfig{})
	got := &inbox[int]{}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				batch, err := cons.Fetch(20, jetstream.FetchMaxWait(3*time.Second))
				if err != nil {
					return
				}
				seen := 0
				for msg := range batch.Messages() {
					seen++
					n, _ := strconv.Atoi(string(msg.Data()))
					got.add(n)
					_ = msg.Ack()
				}
				if seen == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	all := got.all()
	slices.Sort(all)
	equal(all, span(0, count), "messages")
}
