// S01 to S11, S19, S20: stream life cycle, publishing, reading single messages, purge.
package main

import (
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var streams = []scenario{
	{"S01", defaultLimit, accountInfo},
	{"S02", defaultLimit, streamLifeCycle},
	{"S03", defaultLimit, createErrors},
	{"S04", defaultLimit, updateErrors},
	{"S05", defaultLimit, publishSync},
	{"S06", defaultLimit, publishAsync},
	{"S07", defaultLimit, dedup},
	{"S08", defaultLimit, expected},
	{"S09", defaultLimit, getAndDelete},
	{"S10", defaultLimit, directGet},
	{"S11", defaultLimit, purge},
	{"S19", defaultLimit, subjectsInState},
	{"S20", defaultLimit, memoryStorage},
}

type streamConfig = jetstream.StreamConfig
type consumerConfig = jetstream.ConsumerConfig

func accountInfo(c *ctx) {
	before := must(c.js.AccountInfo(c))
	s := c.stream("", streamConfig{})
	for range 3 {
		c.put("s01.a", string(make([]byte, 100)))
	}
	c.consumer(s, "c", consumerConfig{})
	after := must(c.js.AccountInfo(c))
	equal(after.Streams, before.Streams+1, "streams")
	equal(after.Consumers, before.Consumers+1, "consumers")
	check(after.Store >= before.Store+300, "storage %d -> %d", before.Store, after.Store)
	check(after.Limits.MaxStreams != 0, "limits.max_streams")
	check(after.API.Total >= before.API.Total, "api.total")
}

func streamLifeCycle(c *ctx) {
	s := c.stream("", streamConfig{Description: "first", Subjects: []string{"s02.a", "s02.b"}})
	info := must(s.Info(c))
	equal(info.Config.Description, "first", "description")
	equal(info.Config.Subjects, []string{"s02.a", "s02.b"}, "subjects")
	equal([]uint64{info.State.Msgs, info.State.LastSeq}, []uint64{0, 0}, "empty state")
	config := info.Config
	config.Description, config.Subjects = "second", []string{"s02.a", "s02.b", "s02.c"}
	s = must(c.js.UpdateStream(c, config))
	equal(must(s.Info(c)).Config.Description, "second", "description after update")
	equal(c.put("s02.c", "x").Sequence, uint64(1), "sequence on the new subject")
	equal(must(c.js.StreamNameBySubject(c, "s02.c")), "S02", "name by subject")
	var names, listed []string
	for name := range c.js.StreamNames(c).Name() {
		names = append(names, name)
	}
	for info := range c.js.ListStreams(c).Info() {
		listed = append(listed, info.Config.Name)
	}
	check(slices.Contains(names, "S02"), "not in the names")
	check(slices.Contains(listed, "S02"), "not in the list")
	ok(c.js.DeleteStream(c, "S02"))
	_, err := c.js.Stream(c, "S02")
	expectCode(err, 10059)
	expectCode(c.js.DeleteStream(c, "S02"), 10059)
}

func createErrors(c *ctx) {
	create := func(cfg streamConfig) error {
		_, err := c.js.CreateStream(c, cfg)
		return err
	}
	c.stream("", streamConfig{MaxMsgs: 10})
	subjects := []string{"s03.>"}
	ok(create(streamConfig{Name: "S03", Subjects: subjects, MaxMsgs: 10}))
	expectCode(create(streamConfig{Name: "S03", Subjects: subjects, MaxMsgs: 11}), 10058)
	c.owns("S03X")
	expectCode(create(streamConfig{Name: "S03X", Subjects: []string{"s03.a"}}), 10065)
	expectCode(create(streamConfig{Name: "S03X", MaxAge: time.Second, Duplicates: 2 * time.Second}), 10052)
}

func updateErrors(c *ctx) {
	update := func(cfg streamConfig) error {
		_, err := c.js.UpdateStream(c, cfg)
		return err
	}
	c.stream("", streamConfig{})
	c.stream("X", streamConfig{})
	subjects := []string{"s04.>"}
	expectCode(update(streamConfig{Name: "S04MISSING", Subjects: []string{"s04m"}}), 10059)
	expectCode(update(streamConfig{Name: "S04", Subjects: subjects, Storage: jetstream.MemoryStorage}), 10052)
	expectCode(update(streamConfig{Name: "S04", Subjects: []string{"s04.>", "s04x.a"}}), 10065)
}

func publishSync(c *ctx) {
	s := c.stream("", streamConfig{})
	for i := 1; i <= 20; i++ {
		equal(*c.put("s05.a", "x"), jetstream.PubAck{Stream: "S05", Sequence: uint64(i)}, "ack")
	}
	state := c.state(s)
	equal([]uint64{state.Msgs, state.FirstSeq, state.LastSeq}, []uint64{20, 1, 20}, "state")
	expectErr(c.putErr("s05none", "x", jetstream.WithRetryAttempts(0)), jetstream.ErrNoStreamResponse)
}

// publishAll publishes in the client's own window and returns the acked sequences in order.
func publishAll(c *ctx, subject string, count int, body func(int) []byte) []uint64 {
	futures := make([]jetstream.PubAckFuture, 0, count)
	for i := range count {
		futures = append(futures, must(c.js.PublishAsync(subject, body(i), jetstream.WithStallWait(patience))))
	}
	<-c.js.PublishAsyncComplete()
	acked := make([]uint64, 0, count)
	for _, f := range futures {
		select {
		case ack := <-f.Ok():
			acked = append(acked, ack.Sequence)
		case err := <-f.Err():
			ok(err)
		}
	}
	return acked
}

func expectSequences(got []uint64, count int) {
	equal(len(got), count, "acks")
	for i, seq := range got {
		check(seq == uint64(i+1), "sequence %d at place %d", seq, i+1)
	}
}

func publishAsync(c *ctx) {
	const count = 10_000
	s := c.stream("", streamConfig{})
	expectSequences(publishAll(c, "s06.a", count, func(i int) []byte { return []byte(strconv.Itoa(i)) }), count)
	equal(c.state(s).Msgs, uint64(count), "messages")
}

func dedup(c *ctx) {
	s := c.stream("", streamConfig{Duplicates: 5 * time.Second})
	id := jetstream.WithMsgID("one")
	equal(*c.put("s07.a", "1", id), jetstream.PubAck{Stream: "S07", Sequence: 1}, "first")
	equal(*c.put("s07.a", "2", id), jetstream.PubAck{Stream: "S07", Sequence: 1, Duplicate: true}, "second")
	time.Sleep(5500 * time.Millisecond)
	equal(*c.put("s07.a", "3", id), jetstream.PubAck{Stream: "S07", Sequence: 2}, "after the window")
	equal(c.state(s).Msgs, uint64(2), "messages")
}

func expected(c *ctx) {
	s := c.stream("", streamConfig{})
	c.put("s08.a", "1", jetstream.WithMsgID("m1"))
	c.put("s08.b", "2", jetstream.WithMsgID("m2"))
	expectCode(c.putErr("s08.a", "x", jetstream.WithExpectStream("OTHER")), 10060)
	expectCode(c.putErr("s08.a", "x", jetstream.WithExpectLastSequence(1)), 10071)
	expectCode(c.putErr("s08.a", "x", jetstream.WithExpectLastMsgID("m1")), 10070)
	expectCode(c.putErr("s08.a", "x", jetstream.WithExpectLastSequencePerSubject(2)), 10071)
	equal(c.state(s).Msgs, uint64(2), "messages after the refusals")
	equal(c.put("s08.a", "3", jetstream.WithExpectStream("S08")).Sequence, uint64(3), "stream")
	equal(c.put("s08.a", "4", jetstream.WithExpectLastSequence(3)).Sequence, uint64(4), "last sequence")
	equal(c.put("s08.a", "5", jetstream.WithExpectLastSequencePerSubject(4)).Sequence, uint64(5), "subject")
	c.put("s08.a", "6", jetstream.WithMsgID("m6"))
	equal(c.put("s08.a", "7", jetstream.WithExpectLastMsgID("m6")).Sequence, uint64(7), "last msg id")
}

func expectMsg(msg *jetstream.RawStreamMsg, seq uint64, subject, body string) {
	equal([]any{msg.Sequence, msg.Subject, string(msg.Data)}, []any{seq, subject, body}, "message")
}

func getAndDelete(c *ctx) {
	s := c.stream("", streamConfig{})
	for i := 1; i <= 3; i++ {
		n := strconv.Itoa(i)
		must(c.js.PublishMsg(c, &nats.Msg{
			Subject: "s09." + strconv.Itoa(i%2), Data: []byte("body " + n), Header: nats.Header{"N": {n}},
		}))
	}
	msg := must(s.GetMsg(c, 2))
	expectMsg(msg, 2, "s09.0", "body 2")
	equal(msg.Header, nats.Header{"N": {"2"}}, "headers")
	check(time.Since(msg.Time).Abs() < time.Minute, "time %v", msg.Time)
	expectMsg(must(s.GetLastMsgForSubject(c, "s09.1")), 3, "s09.1", "body 3")
	ok(s.DeleteMsg(c, 2))
	_, err := s.GetMsg(c, 2)
	expectCode(err, 10037)
	expectCode(s.DeleteMsg(c, 2), 10043)
	_, err = s.GetMsg(c, 99)
	expectCode(err, 10037)
	state := must(s.Info(c, jetstream.WithDeletedDetails(true))).State
	equal([]any{state.Msgs, state.NumDeleted, state.Deleted}, []any{uint64(2), 1, []uint64{2}}, "state")
}

// The client takes the direct way by itself when the stream allows it.
func directGet(c *ctx) {
	s := c.stream("", streamConfig{AllowDirect: true})
	for i := 1; i <= 4; i++ {
		c.put("s10."+strconv.Itoa(i%2), "body "+strconv.Itoa(i))
	}
	expectMsg(must(s.GetMsg(c, 2)), 2, "s10.0", "body 2")
	expectMsg(must(s.GetLastMsgForSubject(c, "s10.1")), 3, "s10.1", "body 3")
	expectMsg(must(s.GetMsg(c, 3, jetstream.WithGetMsgSubject("s10.0"))), 4, "s10.0", "body 4")
	_, err := s.GetMsg(c, 99)
	expectErr(err, jetstream.ErrMsgNotFound)
	_, err = s.GetLastMsgForSubject(c, "s10.none")
	expectErr(err, jetstream.ErrMsgNotFound)
}

func purge(c *ctx) {
	s := c.stream("", streamConfig{})
	for i := 1; i <= 10; i++ {
		c.put("s11."+strconv.Itoa(i%2), "x")
	}
	expect := func(what string, want ...uint64) {
		state := c.state(s)
		equal([]uint64{state.Msgs, state.FirstSeq, state.LastSeq}, want, what)
	}
	ok(s.Purge(c, jetstream.WithPurgeSubject("s11.0")))
	expect("after the filter", 5, 1, 10)
	ok(s.Purge(c, jetstream.WithPurgeSequence(4)))
	expect("after the sequence", 3, 5, 10)
	ok(s.Purge(c, jetstream.WithPurgeKeep(2)))
	expect("after keep", 2, 7, 10)
	ok(s.Purge(c))
	expect("after all", 0, 11, 10)
}

func subjectsInState(c *ctx) {
	s := c.stream("", streamConfig{})
	for _, subject := range []string{"s19.a.1", "s19.a.2", "s19.b"} {
		c.put(subject, "x")
	}
	state := must(s.Info(c, jetstream.WithSubjectFilter("s19.a.*"))).State
	equal(state.Subjects, map[string]uint64{"s19.a.1": 1, "s19.a.2": 1}, "subjects")
	equal(state.NumSubjects, uint64(3), "num_subjects")
}

func memoryStorage(c *ctx) {
	s := c.stream("", streamConfig{Storage: jetstream.MemoryStorage})
	c.putMany("s20.a", 100)
	cons := c.consumer(s, "c", consumerConfig{})
	equal(numbers(fetch(cons, 100, patience)), span(0, 100), "messages")
	equal(must(s.Info(c)).Config.Storage, jetstream.MemoryStorage, "storage")
}
