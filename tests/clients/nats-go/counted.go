// X13, X14: counters (ADR-49) and schedules (ADR-51).
package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var counted = []scenario{
	{"X13", defaultLimit, counters},
	{"X14", defaultLimit, schedules},
}

// add adds to a counter and gives the acknowledgement.
func (c *ctx) add(js jetstream.JetStream, subject, increment string) *jetstream.PubAck {
	return must(js.PublishMsg(c, &nats.Msg{Subject: subject, Header: pairsOf("Nats-Incr", increment)}))
}

// total reads what a counter stands at.
func (c *ctx) total(s jetstream.Stream, subject string) string {
	value := struct{ Val string }{}
	ok(json.Unmarshal(must(s.GetLastMsgForSubject(c, subject)).Data, &value))
	return value.Val
}

func counters(c *ctx) {
	s := c.stream("A", streamConfig{AllowMsgCounter: true, AllowAtomicPublish: true, AllowDirect: true})
	const clients, each = 4, 250
	values := sync.Map{}
	var done sync.WaitGroup
	for range clients {
		js := must(jetstream.New(c.connect()))
		done.Add(1)
		go func() {
			defer done.Done()
			for range each {
				future, err := js.PublishMsgAsync(&nats.Msg{Subject: "x13a.hits", Header: pairsOf("Nats-Incr", "1")})
				if err != nil {
					return
				}
				go func() {
					if ack, is := <-future.Ok(); is {
						values.Store(ack.Value, true)
					}
				}()
			}
			<-js.PublishAsyncComplete()
		}()
	}
	done.Wait()
	count := func() (n int) {
		values.Range(func(any, any) bool { n++; return true })
		return n
	}
	until(patience, "every total once", func() bool { return count() == clients*each })
	_, last := values.Load("1000")
	check(last, "the last total")
	equal(c.total(s, "x13a.hits"), "1000", "the total")

	big := strings.Repeat("9", 40)
	equal(c.add(c.js, "x13a.big", big).Value, big, "a big number")
	equal(c.add(c.js, "x13a.big", "1").Value, "1"+strings.Repeat("0", 40), "and one more")
	equal(c.add(c.js, "x13a.big", "-1"+strings.Repeat("0", 40)).Value, "0", "and nothing")

	for at, increment := range []string{"2", "3"} {
		header := pairsOf("Nats-Incr", increment, "Nats-Batch-Id", "b", "Nats-Batch-Sequence", fmt.Sprint(at+1))
		if at == 1 {
			header.Set("Nats-Batch-Commit", "1")
		}
		answer := c.ask("x13a.batch", "", header)
		equal(errOf(answer), 0, "a batch")
	}
	equal(c.total(s, "x13a.batch"), "5", "the total of a batch")

	equal(errOf(c.ask("x13a.hits", "x", nil)), 10169, "no increment")
	equal(errOf(c.ask("x13a.hits", "x", pairsOf("Nats-Incr", "1"))), 10170, "a payload")
	equal(errOf(c.ask("x13a.hits", "", pairsOf("Nats-Incr", "1.5"))), 10171, "no whole number")
	equal(errOf(c.ask("x13a.hits", "", pairsOf("Nats-Incr", "1", "Nats-Rollup", "sub"))), 10171, "a rollup")
	c.stream("OFF", streamConfig{})
	equal(errOf(c.ask("x13off.a", "", pairsOf("Nats-Incr", "1"))), 10168, "no counters here")
	_, err := c.js.CreateStream(c, streamConfig{Name: "X13E", Subjects: []string{"x13e"}, AllowMsgCounter: true, AllowMsgTTL: true})
	expectCode(err, 10052)

	c.stream("B", streamConfig{AllowMsgCounter: true})
	c.add(c.js, "x13b.hits", "42")
	c.owns("X13SUM")
	mapped := func(name, subject string) *jetstream.StreamSource {
		return &jetstream.StreamSource{Name: name, SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: subject, Destination: "x13sum.hits"}}}
	}
	sum := must(c.js.CreateStream(c, streamConfig{Name: "X13SUM", AllowMsgCounter: true, AllowDirect: true,
		Sources: []*jetstream.StreamSource{mapped("X13A", "x13a.hits"), mapped("X13B", "x13b.hits")}}))
	stands := func(at string) func() bool {
		return func() bool { return c.state(sum).Msgs > 0 && c.total(sum, "x13sum.hits") == at }
	}
	until(patience, "the sum", stands("1042"))
	c.add(c.js, "x13b.hits", "-2")
	until(patience, "the sum follows", stands("1040"))
	sources := must(sum.GetLastMsgForSubject(c, "x13sum.hits")).Header.Get("Nats-Counter-Sources")
	equal(sources, `{"X13A":{"x13a.hits":"1000"},"X13B":{"x13b.hits":"40"}}`, "where it is from")
}

func schedules(c *ctx) {
	s := c.stream("", streamConfig{AllowMsgSchedules: true, AllowMsgTTL: true, AllowDirect: true})
	last := func(subject string) *jetstream.RawStreamMsg { return must(s.GetLastMsgForSubject(c, subject)) }
	has := func(subject string) func() bool {
		return func() bool {
			_, err := s.GetLastMsgForSubject(c, subject)
			return err == nil
		}
	}
	at := time.Now().Add(1500 * time.Millisecond)
	c.put("x14.plan.once", "later", jetstream.WithScheduleAt(at), jetstream.WithScheduleTarget("x14.out.once"), jetstream.WithScheduleTTL(time.Hour))
	until(patience, "the delayed message", has("x14.out.once"))
	made := last("x14.out.once")
	equal(string(made.Data), "later", "its payload")
	equal([]string{made.Header.Get("Nats-Scheduler"), made.Header.Get("Nats-Schedule-Next"), made.Header.Get("Nats-TTL")},
		[]string{"x14.plan.once", "purge", "1h0m0s"}, "its headers")
	check(!made.Time.Before(at.Truncate(time.Second)), "made at %v, due at %v", made.Time, at)
	until(patience, "the schedule is gone", func() bool { return !has("x14.plan.once")() })

	c.put("x14.in", "21.5")
	c.put("x14.plan.often", "own", jetstream.WithScheduleEvery(time.Second), jetstream.WithScheduleTarget("x14.out.often"),
		jetstream.WithScheduleSource("x14.in"), jetstream.WithScheduleRollup())
	until(patience, "the first sample", has("x14.out.often"))
	first := last("x14.out.often")
	equal(string(first.Data), "21.5", "the last message of the source")
	next := must(time.Parse(time.RFC3339Nano, first.Header.Get("Nats-Schedule-Next")))
	check(next.After(first.Time), "next %v after %v", next, first.Time)
	until(patience, "another sample", func() bool { return last("x14.out.often").Sequence > first.Sequence })
	_, err := s.GetMsg(c, first.Sequence)
	expectErr(err, jetstream.ErrMsgNotFound)
	equal(errOf(c.ask("x14.end", "", pairsOf("Nats-Schedule-Next", "purge", "Nats-Scheduler", "x14.plan.often"))), 0, "a client ends it")
	check(!has("x14.plan.often")(), "its message is gone")
	ended := last("x14.out.often").Sequence
	time.Sleep(1500 * time.Millisecond)
	equal(last("x14.out.often").Sequence, ended, "nothing is made any more")

	c.put("x14.plan.cron", "x", jetstream.WithScheduleCron("0 30 9 * * MON-FRI"), jetstream.WithScheduleTimeZone("Europe/Berlin"), jetstream.WithScheduleTarget("x14.out.cron"))
	target := jetstream.WithScheduleTarget("x14.out.x")
	expectErr(c.putErr("x14.a", "", jetstream.WithScheduleCron("0 0 0 30 2 *"), target), jetstream.ErrSchedulePatternInvalid)
	expectErr(c.putErr("x14.a", "", jetstream.WithScheduleEvery(time.Minute), jetstream.WithScheduleTarget("elsewhere")), jetstream.ErrScheduleTargetInvalid)
	expectErr(c.putErr("x14.a", "", jetstream.WithScheduleEvery(time.Minute), target, jetstream.WithScheduleSource("x14.a")), jetstream.ErrScheduleSourceInvalid)
	expectCode(c.putErr("x14.a", "", jetstream.WithScheduleCron("@daily"), target, jetstream.WithScheduleTimeZone("Moon/Crater")), 10223)
	equal(errOf(c.ask("x14.a", "", pairsOf("Nats-Scheduler", "x14.plan.cron"))), 10212, "what only the server says")
	c.stream("OFF", streamConfig{})
	expectErr(c.putErr("x14off.a", "", jetstream.WithScheduleEvery(time.Minute), jetstream.WithScheduleTarget("x14off.b")), jetstream.ErrMessageSchedulesDisabled)
}
