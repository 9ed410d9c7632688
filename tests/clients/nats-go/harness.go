// The scenario registry, the bounded runner and small assertions shared by the nats.go scenarios.
package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// patience is how long anything may take that must come, and defaultLimit a scenario: machines may be slow. What comes late does not
// make a scenario fail unless it says so; what must not come, or not too soon, does.
const (
	patience     = 60 * time.Second
	defaultLimit = 180 * time.Second
)

type scenario struct {
	id    string
	limit time.Duration
	run   func(*ctx)
}

// failure and skip are what a scenario panics with; anything else that panics is a bug of the scenario.
type failure string
type skip string

func fail(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func check(cond bool, format string, args ...any) {
	if !cond {
		fail(format, args...)
	}
}

func short(v any) string {
	text := fmt.Sprintf("%+v", v)
	if len(text) > 200 {
		return text[:200] + "..."
	}
	return text
}

func equal(got, want any, what string) {
	if !reflect.DeepEqual(got, want) {
		fail("%s: got %s, want %s", what, short(got), short(want))
	}
}

func ok(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func must[T any](v T, err error) T {
	ok(err)
	return v
}

var errCodeText = regexp.MustCompile(`err_code=(\d+)`)

// codeOf gives the JetStream err_code of an error; DeleteMsg hands it out only as text.
func codeOf(err error) int {
	var js jetstream.JetStreamError
	if errors.As(err, &js) && js.APIError() != nil {
		return int(js.APIError().ErrorCode)
	}
	if found := errCodeText.FindStringSubmatch(fmt.Sprint(err)); found != nil {
		code, _ := strconv.Atoi(found[1])
		return code
	}
	return 0
}

func expectCode(err error, code int) {
	if err == nil {
		fail("error %d expected, the call succeeded", code)
	}
	check(codeOf(err) == code, "error %d expected, got %v", code, err)
}

func expectErr(err, want error) {
	check(errors.Is(err, want), "error %q expected, got %v", want, err)
}

// until polls a predicate until it is true.
func until(within time.Duration, what string, probe func() bool) {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if probe() {
			return
		}
	}
	fail("not within %v: %s", within, what)
}

// inbox gathers values from callbacks.
type inbox[T any] struct {
	mu  sync.Mutex
	got []T
}

func (b *inbox[T]) add(v T) {
	b.mu.Lock()
	b.got = append(b.got, v)
	b.mu.Unlock()
}

func (b *inbox[T]) all() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]T{}, b.got...)
}

func (b *inbox[T]) len() int { return len(b.all()) }

// ctx holds one scenario's connections, and the streams to delete at its end.
type ctx struct {
	context.Context
	id, low, url string
	nc           *nats.Conn
	js           jetstream.JetStream
	mu           sync.Mutex
	conns        []*nats.Conn
	streams      []string
}

func (c *ctx) connect() *nats.Conn {
	nc := must(nats.Connect(c.url, nats.NoReconnect(), nats.Timeout(patience),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})))
	c.mu.Lock()
	c.conns = append(c.conns, nc)
	c.mu.Unlock()
	return nc
}

// stream creates a stream of this scenario; name and subjects are filled in if empty.
func (c *ctx) stream(suffix string, cfg jetstream.StreamConfig) jetstream.Stream {
	cfg.Name = c.id + suffix
	if cfg.Subjects == nil {
		cfg.Subjects = []string{strings.ToLower(cfg.Name) + ".>"}
	}
	c.owns(cfg.Name)
	return must(c.js.CreateStream(c, cfg))
}

func (c *ctx) owns(stream string) { c.streams = append(c.streams, stream) }

// consumer creates a durable pull consumer; explicit ack is the client's default.
func (c *ctx) consumer(s jetstream.Stream, name string, cfg jetstream.ConsumerConfig) jetstream.Consumer {
	cfg.Durable = name
	return must(s.CreateConsumer(c, cfg))
}

func (c *ctx) state(s jetstream.Stream) jetstream.StreamState { return must(s.Info(c)).State }

func (c *ctx) put(subject, body string, opts ...jetstream.PublishOpt) *jetstream.PubAck {
	return must(c.js.Publish(c, subject, []byte(body), opts...))
}

func (c *ctx) putErr(subject, body string, opts ...jetstream.PublishOpt) error {
	_, err := c.js.Publish(c, subject, []byte(body), opts...)
	return err
}

// putMany publishes the numbers 0 to count-1 synchronously.
func (c *ctx) putMany(subject string, count int) {
	for i := range count {
		c.put(subject, strconv.Itoa(i))
	}
}

func (c *ctx) close() {
	later, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, name := range c.streams {
		_ = c.js.DeleteStream(later, name)
	}
	for _, nc := range c.conns {
		nc.Close()
	}
}

// fetch returns what a fetch gave, and fails on its error.
func fetch(cons jetstream.Consumer, batch int, wait time.Duration) []jetstream.Msg {
	got := must(cons.Fetch(batch, jetstream.FetchMaxWait(wait)))
	var msgs []jetstream.Msg
	for msg := range got.Messages() {
		msgs = append(msgs, msg)
	}
	ok(got.Error())
	return msgs
}

func fetchOne(cons jetstream.Consumer) jetstream.Msg {
	msgs := fetch(cons, 1, patience)
	check(len(msgs) == 1, "no message within %v", patience)
	return msgs[0]
}

func nothingMore(cons jetstream.Consumer, within time.Duration) {
	if msgs := fetch(cons, 1, within); len(msgs) > 0 {
		fail("unexpected message %s", short(meta(msgs[0])))
	}
}

func meta(msg jetstream.Msg) *jetstream.MsgMetadata { return must(msg.Metadata()) }

func number(data []byte) int { return must(strconv.Atoi(string(data))) }

func numbers(msgs []jetstream.Msg) []int {
	out := []int{}
	for _, msg := range msgs {
		out = append(out, number(msg.Data()))
	}
	return out
}

func seqs(msgs []jetstream.Msg) []uint64 {
	out := []uint64{}
	for _, msg := range msgs {
		out = append(out, meta(msg).Sequence.Stream)
	}
	return out
}

// span is from, from+1, ... to-1.
func span(from, to int) []int {
	out := []int{}
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// runOne runs one scenario within its limit and prints its line; it returns ok, FAIL or skip.
func runOne(url string, s scenario) string {
	deadline, cancel := context.WithTimeout(context.Background(), s.limit)
	defer cancel()
	c := &ctx{Context: deadline, id: s.id, low: strings.ToLower(s.id), url: url}
	began := time.Now()
	result := make(chan any, 1)
	go func() {
		defer func() { result <- recover() }()
		c.nc = c.connect()
		c.js = must(jetstream.New(c.nc))
		s.run(c)
	}()
	var why any
	select {
	case why = <-result:
	case <-time.After(s.limit + time.Second):
		why = failure(fmt.Sprintf("timeout after %v", s.limit))
	}
	c.close()
	verdict, tail := "ok", strconv.FormatInt(time.Since(began).Milliseconds(), 10)
	switch v := why.(type) {
	case nil:
	case skip:
		verdict, tail = "skip", string(v)
	default:
		verdict, tail = "FAIL", strings.ReplaceAll(fmt.Sprint(v), "\n", " ")
	}
	fmt.Println(verdict, s.id, tail)
	return verdict
}
