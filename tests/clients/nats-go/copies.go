// X08 to X12: subject transforms, republish, mirrors and sources, the audit of API calls.
package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

var copies = []scenario{
	{"X08", defaultLimit, transformAndRepublish},
	{"X09", defaultLimit, mirrors},
	{"X10", defaultLimit, sources},
	{"X11", defaultLimit, apiAudit},
	{"X12", defaultLimit, foreignOrigin},
}

func transformAndRepublish(c *ctx) {
	s := c.stream("", streamConfig{
		Subjects:         []string{"x08.in.*", "x08.out.>"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "x08.in.*", Destination: "x08.out.{{partition(10,1)}}.{{wildcard(1)}}"},
		RePublish:        &jetstream.RePublish{Source: "x08.out.>", Destination: "x08again.>"},
	})
	again := must(c.nc.SubscribeSync("x08again.>"))
	c.put("x08.in.foo", "1")
	c.put("x08.in.foo", "2")
	stored := must(s.GetMsg(c, 1))
	equal(stored.Subject, "x08.out.3.foo", "the mapped subject")
	for seq, last := range []string{"0", "1"} {
		msg := must(again.NextMsg(patience))
		equal([]string{msg.Subject, string(msg.Data)}, []string{"x08again.3.foo", strconv.Itoa(seq + 1)}, "published again")
		got := []string{}
		for _, name := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Last-Sequence"} {
			got = append(got, msg.Header.Get(name))
		}
		equal(got, []string{"X08", "x08.out.3.foo", strconv.Itoa(seq + 1), last}, "headers")
		must(time.Parse(time.RFC3339Nano, msg.Header.Get("Nats-Time-Stamp")))
	}
	cycle := c.api("STREAM.CREATE.X08C", dict{"name": "X08C", "subjects": []string{"x08c.>"}, "storage": "file", "num_replicas": 1,
		"republish": dict{"src": ">", "dest": "x08c.again.>"}})
	equal(errOf(cycle), 10052, "a cycle")
}

func mirrors(c *ctx) {
	origin := c.stream("O", streamConfig{Subjects: []string{"x09.>"}, AllowDirect: true})
	c.putMany("x09.a", 5)
	ok(origin.DeleteMsg(c, 3))
	c.owns("X09M")
	mirror := must(c.js.CreateStream(c, streamConfig{Name: "X09M", Mirror: &jetstream.StreamSource{Name: "X09O"}}))
	until(patience, "the mirror has caught up", func() bool { return c.state(mirror).LastSeq == 5 })
	equal(c.state(mirror).Msgs, uint64(4), "gaps are kept")
	was, is := must(origin.GetMsg(c, 4)), must(mirror.GetMsg(c, 4))
	check(was.Time.Equal(is.Time) && string(is.Data) == "3" && is.Subject == "x09.a", "copied %+v", is)
	c.put("x09.b", "later")
	until(patience, "what comes later", func() bool { return c.state(mirror).LastSeq == 6 })
	info := must(mirror.Info(c))
	check(info.Mirror != nil && info.Mirror.Name == "X09O" && info.Mirror.Lag == 0 && info.Mirror.Error == nil, "info %+v", info.Mirror)
	fetched := fetch(c.consumer(mirror, "c", consumerConfig{FilterSubject: "x09.b"}), 1, patience)
	equal(string(fetched[0].Data()), "later", "a consumer of the mirror")

	_, err := c.js.CreateStream(c, streamConfig{Name: "X09E", Subjects: []string{"x09e"}, Mirror: &jetstream.StreamSource{Name: "X09O"}})
	expectCode(err, 10034)
	_, err = c.js.UpdateStream(c, streamConfig{Name: "X09O", Subjects: []string{"x09.>"}, Sources: []*jetstream.StreamSource{{Name: "X09M"}}})
	expectCode(err, 10052)
	_, err = c.js.UpdateStream(c, streamConfig{Name: "X09M", Mirror: &jetstream.StreamSource{Name: "OTHER"}})
	expectCode(err, 10055)

	ok(c.js.DeleteStream(c, "X09O"))
	direct := must(c.nc.Request("$JS.API.DIRECT.GET.X09O.x09.b", nil, patience))
	equal([]string{string(direct.Data), direct.Header.Get("Nats-Stream")}, []string{"later", "X09M"}, "the mirror serves for its origin")
	promoted := must(c.js.UpdateStream(c, streamConfig{Name: "X09M", Subjects: []string{"x09.>"}}))
	equal(c.put("x09.c", "own").Sequence, uint64(7), "a promoted mirror takes messages of its own")
	equal(c.state(promoted).Msgs, uint64(6), "messages")
}

func sources(c *ctx) {
	a := c.stream("A", streamConfig{Subjects: []string{"x10a.>"}})
	c.stream("B", streamConfig{Subjects: []string{"x10b.>"}})
	c.putMany("x10a.one", 3)
	c.put("x10a.two.x", "filtered")
	c.putMany("x10b.y", 2)
	c.owns("X10S")
	all := must(c.js.CreateStream(c, streamConfig{Name: "X10S", Subjects: []string{"x10own"}, Sources: []*jetstream.StreamSource{
		{Name: "X10A", FilterSubject: "x10a.one"},
		{Name: "X10B", SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: "x10b.*", Destination: "mapped.{{wildcard(1)}}"}}},
	}}))
	until(patience, "five messages", func() bool { return c.state(all).Msgs == 5 })
	c.put("x10own", "own")
	c.put("x10a.one", "3")
	until(patience, "seven messages", func() bool { return c.state(all).Msgs == 7 })
	bySubject := map[string][]string{}
	for seq := uint64(1); seq <= 7; seq++ {
		msg := must(all.GetMsg(c, seq))
		bySubject[msg.Subject] = append(bySubject[msg.Subject], string(msg.Data))
		source := strings.Fields(msg.Header.Get("Nats-Stream-Source"))
		if msg.Subject != "x10own" {
			check(len(source) >= 5 && (source[0] == "X10A" || source[0] == "X10B"), "source %q", source)
		}
	}
	equal(bySubject, map[string][]string{"x10a.one": {"0", "1", "2", "3"}, "mapped.y": {"0", "1"}, "x10own": {"own"}}, "messages")
	info := must(all.Info(c))
	equal(len(info.Sources), 2, "sources in the info")

	equal(errOf(c.ask("x10own", "", pairsOf("Nats-Stream-Source", "X10A 9 > > x"))), 10227, "clients can not say so")
	ok(c.js.DeleteStream(c, "X10B"))
	c.put("x10a.one", "4")
	until(patience, "the other source goes on", func() bool { return c.state(all).Msgs == 8 })
	_ = a
}

func apiAudit(c *ctx) {
	calls := must(c.nc.SubscribeSync("$JS.EVENT.ADVISORY.API"))
	ok(c.nc.Flush())
	c.stream("", streamConfig{})
	for {
		event := decode(must(calls.NextMsg(patience)).Data)
		if event["subject"] != "$JS.API.STREAM.CREATE.X11" {
			continue
		}
		equal(event["type"], "io.nats.jetstream.advisory.v1.api_audit", "type")
		check(strings.Contains(event["request"].(string), `"name":"X11"`), "request %v", event["request"])
		check(strings.Contains(event["response"].(string), "stream_create_response"), "response %v", event["response"])
		equal(event["client"].(dict)["acc"], "MAIN", "whose call it was")
		return
	}
}

func foreignOrigin(c *ctx) {
	store := c.as("store")
	there := must(jetstream.New(store))
	must(there.CreateStream(c, streamConfig{Name: "X12O", Subjects: []string{"x12.>"}}))
	defer func() { _ = there.DeleteStream(c, "X12O") }()
	for i := range 5 {
		must(there.Publish(c, "x12.a", []byte(strconv.Itoa(i))))
	}
	external := &jetstream.ExternalStream{APIPrefix: "fromstore.API", DeliverPrefix: "deliver.x12"}
	c.owns("X12M")
	mirror := must(c.js.CreateStream(c, streamConfig{Name: "X12M", Mirror: &jetstream.StreamSource{Name: "X12O", External: external}}))
	c.owns("X12S")
	source := must(c.js.CreateStream(c, streamConfig{Name: "X12S", Sources: []*jetstream.StreamSource{{Name: "X12O", External: external}}}))
	until(patience, "the mirror has caught up", func() bool { return c.state(mirror).Msgs == 5 })
	until(patience, "the source has caught up", func() bool { return c.state(source).Msgs == 5 })
	must(there.Publish(c, "x12.a", []byte("5")))
	until(patience, "what comes later", func() bool { return c.state(mirror).Msgs == 6 && c.state(source).Msgs == 6 })
	own := c.api("STREAM.CREATE.X12E", dict{"name": "X12E", "storage": "file", "num_replicas": 1,
		"mirror": dict{"name": "X12O", "external": dict{"api": "$JS.API", "deliver": ""}}})
	equal(errOf(own), 10021, "our own API")
}
