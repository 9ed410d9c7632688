// X05 to X07: pause, reset, priority groups (ADR-42), required API levels (ADR-44).
package main

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var groups = []scenario{
	{"X05", defaultLimit, pauseAndReset},
	{"X06", defaultLimit, priorityGroups},
	{"X07", defaultLimit, requiredLevels},
}

func pauseAndReset(c *ctx) {
	s := c.stream("", streamConfig{})
	c.putMany("x05.a", 6)
	cons := c.consumer(s, "c", consumerConfig{})
	advisories := must(c.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.X05.c"))
	paused := must(s.PauseConsumer(c, "c", time.Now().Add(time.Minute)))
	check(paused.Paused && paused.PauseRemaining > 50*time.Second, "paused %+v", paused)
	equal(decode(must(advisories.NextMsg(patience)).Data)["paused"], true, "advisory")
	nothingMore(cons, 300*time.Millisecond)
	resumed := must(s.ResumeConsumer(c, "c"))
	check(!resumed.Paused, "resumed %+v", resumed)
	equal(decode(must(advisories.NextMsg(patience)).Data)["paused"], false, "advisory")
	msgs := fetch(cons, 4, patience)
	equal(numbers(msgs), span(0, 4), "messages after the pause")
	ok(msgs[0].DoubleAck(c))

	answer := c.api("CONSUMER.RESET.X05.c", nil)
	equal([]any{answer["reset_seq"], answer["num_pending"], answer["num_ack_pending"]}, []any{2.0, 5.0, 0.0}, "reset to the floor")
	equal(numbers(fetch(cons, 2, patience)), span(1, 3), "from the floor")
	equal(c.api("CONSUMER.RESET.X05.c", dict{"seq": 6})["reset_seq"], 6.0, "reset forward")
	last := fetchOne(cons)
	equal([]uint64{meta(last).Sequence.Stream, meta(last).Sequence.Consumer}, []uint64{6, 1}, "sequences start again")
	c.consumer(s, "late", consumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 3})
	equal(errOf(c.api("CONSUMER.RESET.X05.late", dict{"seq": 2})), 10204, "below the start")
}

// pulled sends a pull request and gives the subscription its answers come to.
func (c *ctx) pulled(stream, consumer string, body string) *nats.Subscription {
	inbox := c.nc.NewInbox()
	sub := must(c.nc.SubscribeSync(inbox))
	ok(c.nc.PublishRequest(fmt.Sprintf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", stream, consumer), inbox, []byte(body)))
	ok(c.nc.Flush())
	return sub
}

func statusOf(sub *nats.Subscription) string {
	msg := must(sub.NextMsg(patience))
	return msg.Header.Get("Status") + " " + msg.Header.Get("Description")
}

func priorityGroups(c *ctx) {
	s := c.stream("", streamConfig{})
	grouped := func(name string, policy jetstream.PriorityPolicy, timeout time.Duration) {
		cfg := consumerConfig{PriorityPolicy: policy, PriorityGroups: []string{"g"}, PinnedTTL: timeout}
		c.consumer(s, name, cfg)
	}
	grouped("over", jetstream.PriorityPolicyOverflow, 0)
	late := c.pulled("X06", "over", `{"batch":5,"expires":60000000000,"group":"g","min_pending":3}`)
	c.putMany("x06.a", 2)
	_, err := late.NextMsg(300 * time.Millisecond)
	expectErr(err, nats.ErrTimeout)
	c.put("x06.a", "2")
	equal(string(must(late.NextMsg(patience)).Data), "0", "served once three are pending")
	equal(statusOf(c.pulled("X06", "over", `{"batch":1,"group":"h"}`)), "400 Bad Request - Invalid Priority Group", "group")
	equal(statusOf(c.pulled("X06", "over", `{"batch":1}`)), "400 Bad Request - Priority Group missing", "no group")
	equal(statusOf(c.pulled("X06", "over", `{"batch":1,"group":"g","id":"x"}`)), "400 Bad Request - Not a Pinned Client Priority consumer", "pin")

	grouped("prio", jetstream.PriorityPolicyPrioritized, 0)
	ok(s.DeleteConsumer(c, "prio"))
	cfg := consumerConfig{PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{"g"}, DeliverPolicy: jetstream.DeliverNewPolicy}
	c.consumer(s, "prio", cfg)
	five := c.pulled("X06", "prio", `{"batch":1,"expires":60000000000,"group":"g","priority":5}`)
	one := c.pulled("X06", "prio", `{"batch":1,"expires":60000000000,"group":"g","priority":1}`)
	c.put("x06.a", "first")
	equal(string(must(one.NextMsg(patience)).Data), "first", "the smaller number")
	c.put("x06.a", "second")
	equal(string(must(five.NextMsg(patience)).Data), "second", "then the larger")

	pinned := must(c.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.PINNED.X06.pin"))
	unpinned := must(c.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.X06.pin"))
	cfg = consumerConfig{PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"g"}, PinnedTTL: 6 * time.Second, DeliverPolicy: jetstream.DeliverNewPolicy}
	cons := c.consumer(s, "pin", cfg)
	a := c.pulled("X06", "pin", `{"batch":9,"expires":60000000000,"group":"g"}`)
	b := c.pulled("X06", "pin", `{"batch":9,"expires":60000000000,"group":"g"}`)
	c.put("x06.a", "1")
	first := must(a.NextMsg(patience))
	id := first.Header.Get("Nats-Pin-Id")
	check(id != "", "no pin")
	equal(decode(must(pinned.NextMsg(patience)).Data)["pinned_id"], id, "advisory")
	equal(must(cons.Info(c)).PriorityGroups[0].PinnedClientID, id, "info")
	c.put("x06.a", "2")
	equal(must(a.NextMsg(patience)).Header.Get("Nats-Pin-Id"), id, "the same client")
	equal(statusOf(c.pulled("X06", "pin", `{"batch":1,"group":"g","id":"wrong"}`)), "423 Nats-Pin-Id mismatch", "a wrong pin")
	ok(s.UnpinConsumer(c, "pin", "g"))
	equal(decode(must(unpinned.NextMsg(patience)).Data)["reason"], "admin", "advisory")
	c.put("x06.a", "3")
	third, err := b.NextMsg(patience)
	ok(err)
	check(third.Header.Get("Nats-Pin-Id") != id, "a new pin")
	equal(decode(must(unpinned.NextMsg(patience)).Data)["reason"], "timeout", "silence unpins")
	equal(codeOf(s.UnpinConsumer(c, "pin", "other")), 10160, "no such group")
}

func requiredLevels(c *ctx) {
	s := c.stream("", streamConfig{AllowDirect: true})
	c.put("x07.a", "x")
	c.consumer(s, "c", consumerConfig{})
	level := func(subject, value string) *nats.Msg {
		msg := &nats.Msg{Subject: subject, Header: pairsOf("Nats-Required-Api-Level", value)}
		return must(c.nc.RequestMsg(msg, patience))
	}
	for _, value := range []string{"1000", "many"} {
		equal(errOf(decode(level("$JS.API.STREAM.INFO.X07", value).Data)), 10185, "info")
		equal(level("$JS.API.CONSUMER.MSG.NEXT.X07.c", value).Header.Get("Status"), "412", "next")
		equal(level("$JS.API.DIRECT.GET.X07.x07.a", value).Header.Get("Status"), "412", "direct get")
	}
	equal(errOf(decode(level("$JS.API.STREAM.INFO.X07", "1").Data)), 0, "a level that is there")
}
