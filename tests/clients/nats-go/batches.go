// X01, X02: atomic and fast batches (ADR-50). The client has no call for them: it sends the headers and reply subjects itself.
package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var batches = []scenario{
	{"X01", defaultLimit, atomicBatch},
	{"X02", defaultLimit, fastBatch},
}

type dict = map[string]any

// api makes a call of the JetStream API with plain JSON and gives the answer as it is.
func (c *ctx) api(call string, body any) dict {
	var data []byte
	if body != nil {
		data = must(json.Marshal(body))
	}
	return decode(must(c.nc.Request("$JS.API."+call, data, patience)).Data)
}

func decode(data []byte) dict {
	answer := dict{}
	if len(data) > 0 {
		ok(json.Unmarshal(data, &answer))
	}
	return answer
}

// errOf is the err_code of an answer, 0 if it holds no error.
func errOf(answer dict) int {
	if failed, is := answer["error"].(dict); is {
		return int(failed["err_code"].(float64))
	}
	return 0
}

// rawStream creates a stream with fields that the client does not know.
func (c *ctx) rawStream(suffix string, config dict) jetstream.Stream {
	name := c.id + suffix
	config["name"] = name
	if config["subjects"] == nil && config["mirror"] == nil && config["sources"] == nil {
		config["subjects"] = []string{c.low + suffix + ".>"}
	}
	if config["storage"] == nil {
		config["storage"] = "file"
	}
	config["num_replicas"] = 1
	c.owns(name)
	answer := c.api("STREAM.CREATE."+name, config)
	check(errOf(answer) == 0, "create %s: %v", name, answer["error"])
	return must(c.js.Stream(c, name))
}

// pairsOf makes a header map of pairs.
func pairsOf(pairs ...string) nats.Header {
	header := nats.Header{}
	for at := 0; at < len(pairs); at += 2 {
		header[pairs[at]] = []string{pairs[at+1]}
	}
	return header
}

// ask publishes with headers and gives the answer; an empty one is an empty dict.
func (c *ctx) ask(subject, body string, header nats.Header) dict {
	msg := &nats.Msg{Subject: subject, Data: []byte(body), Header: header}
	return decode(must(c.nc.RequestMsg(msg, patience)).Data)
}

// member sends a message of an atomic batch.
func (c *ctx) member(subject, batch string, seq int, pairs ...string) dict {
	header := pairsOf(append(pairs, "Nats-Batch-Id", batch, "Nats-Batch-Sequence", strconv.Itoa(seq))...)
	return c.ask(subject, strconv.Itoa(seq), header)
}

func atomicBatch(c *ctx) {
	s := c.rawStream("", dict{"allow_atomic": true})
	abandoned := must(c.nc.SubscribeSync("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED." + c.id))
	c.put("x01.other", "before")
	equal(c.member("x01.a", "one", 1), dict{}, "first ack")
	equal(c.member("x01.b", "one", 2), dict{}, "second ack")
	equal(c.state(s).Msgs, uint64(1), "nothing is visible before the commit")
	done := c.member("x01.a", "one", 3, "Nats-Batch-Commit", "1")
	equal(done, dict{"stream": "X01", "seq": 4.0, "batch": "one", "count": 3.0}, "commit")
	equal(c.state(s).Msgs, uint64(4), "everything is visible")
	check(must(s.GetMsg(c, 4)).Header.Get("Nats-Batch-Sequence") == "3", "headers are kept")

	c.member("x01.a", "two", 1)
	done = c.member("x01.a", "two", 2, "Nats-Batch-Commit", "eob")
	equal(done, dict{"stream": "X01", "seq": 5.0, "batch": "two", "count": 1.0}, "end of batch")

	c.member("x01.a", "gap", 1)
	equal(errOf(c.member("x01.a", "gap", 3)), 10176, "a gap")
	advisory := decode(must(abandoned.NextMsg(patience)).Data)
	equal([]any{advisory["batch"], advisory["reason"]}, []any{"gap", "incomplete"}, "advisory")
	equal(errOf(c.member("x01.a", "x", 1, "Nats-Batch-Commit", "no")), 10200, "a commit that is none")
	equal(errOf(c.ask("x01.a", "", pairsOf("Nats-Batch-Id", "x"))), 10175, "no sequence")
	long := fmt.Sprintf("%065d", 0)
	equal(errOf(c.member("x01.a", long, 1)), 10179, "a long id")
	last := "Nats-Expected-Last-Sequence"
	equal(errOf(c.member("x01.a", "x", 1, "Nats-Batch-Commit", "1", last, "2")), 10071, "last sequence")
	c.member("x01.a", "x", 1)
	equal(errOf(c.member("x01.a", "x", 2, "Nats-Batch-Commit", "1", last, "6")), 10164, "only in front")
	equal(errOf(c.member("x01.a", "x", 1, "Nats-Batch-Commit", "1", "Nats-Expected-Last-Msg-Id", "i")), 10177, "unsupported")
	c.member("x01.a", "x", 1, "Nats-Msg-Id", "same")
	equal(errOf(c.member("x01.a", "x", 2, "Nats-Msg-Id", "same", "Nats-Batch-Commit", "1")), 10201, "same id twice")
	equal(errOf(c.member("x01.a", "x", 1, "Nats-Required-Api-Level", "99")), 10185, "level")
	equal(c.state(s).LastSeq, uint64(5), "no refused batch left anything")
	for i := range 50 {
		equal(c.member("x01.a", "open"+strconv.Itoa(i), 1), dict{}, "an open batch")
	}
	equal(errOf(c.member("x01.a", "open50", 1)), 10210, "too many open")

	off := c.rawStream("OFF", dict{"subjects": []string{"x01off"}})
	equal(errOf(c.member("x01off", "x", 1)), 10174, "not allowed")
	equal(c.state(off).Msgs, uint64(0), "nothing stored")
}

func fastBatch(c *ctx) {
	s := c.rawStream("", dict{"allow_batched": true})
	answers := must(c.nc.SubscribeSync("x02answers.>"))
	send := func(batch string, flow int, gap string, seq, op int, pairs ...string) {
		reply := fmt.Sprintf("x02answers.%s.%d.%s.%d.%d.$FI", batch, flow, gap, seq, op)
		ok(c.nc.PublishMsg(&nats.Msg{
			Subject: "x02.a", Reply: reply, Data: []byte(strconv.Itoa(seq)), Header: pairsOf(pairs...),
		}))
	}
	next := func() dict { return decode(must(answers.NextMsg(patience)).Data) }
	ack := func(seq, every float64) dict { return dict{"type": "ack", "seq": seq, "msgs": every} }
	done := func(batch string, seq, count float64) dict {
		return dict{"stream": "X02", "seq": seq, "batch": batch, "count": count}
	}

	send("one", 4, "fail", 1, 0)
	equal(next(), ack(0, 4), "the first answer")
	for seq := 2; seq < 10; seq++ {
		send("one", 4, "fail", seq, 1)
	}
	equal(next(), ack(4, 4), "flow")
	equal(next(), ack(8, 4), "flow")
	send("one", 4, "fail", 9, 4)
	equal(next(), ack(8, 4), "ping")
	send("one", 4, "fail", 10, 2)
	equal(next(), done("one", 10, 10), "commit")
	equal(c.state(s).Msgs, uint64(10), "messages")

	send("two", 4, "fail", 1, 0)
	next()
	send("two", 4, "fail", 3, 1)
	equal(next(), dict{"type": "gap", "last_seq": 2.0, "seq": 3.0}, "a gap")
	equal(next(), done("two", 11, 1), "ends the batch")
	send("two", 4, "fail", 4, 1)
	equal(errOf(next()), 10208, "unknown afterwards")

	send("three", 4, "ok", 1, 0)
	next()
	send("three", 4, "ok", 3, 1)
	equal(next(), dict{"type": "gap", "last_seq": 2.0, "seq": 3.0}, "a gap that is allowed")
	send("three", 4, "ok", 4, 1, "Nats-Expected-Stream", "OTHER")
	// The flow message for four messages and the error come in the order in which the server finds them out.
	told := []dict{next()}
	if told[0]["type"] == "ack" {
		told = append(told, next())
	}
	refused := told[len(told)-1]
	equal([]any{refused["type"], refused["seq"], errOf(refused)}, []any{"err", 4.0, 10060}, "an error")
	send("three", 4, "ok", 5, 3)
	for last := next(); ; last = next() {
		if last["type"] == nil {
			equal(last, done("three", 13, 4), "end of batch")
			break
		}
	}

	send("x", 4, "maybe", 1, 0)
	equal(errOf(next()), 10206, "no such gap mode")
	send(fmt.Sprintf("%065d", 0), 4, "ok", 1, 0)
	equal(errOf(next()), 10207, "a long id")
	send("x", 4, "ok", 1, 4)
	equal(errOf(next()), 10208, "a ping for nothing")
}
