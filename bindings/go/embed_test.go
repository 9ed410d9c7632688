package embed_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"nuthatch/embed"
)

var _ nats.InProcessConnProvider = (*embed.Broker)(nil)

// patient is a context that a busy machine does not run out of.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, options embed.Options) *embed.Broker {
	t.Helper()
	broker, err := embed.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	return broker
}

func connect(t *testing.T, broker *embed.Broker) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect("", nats.InProcessServer(broker), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestThreeBrokersWriteCloseAndOpenAgain(t *testing.T) {
	ctx := patient(t)
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	var wait sync.WaitGroup
	for number, dir := range dirs {
		wait.Add(1)
		go func() {
			defer wait.Done()
			broker := start(t, embed.Options{StoreDir: dir})
			js := connect(t, broker)
			_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
			if err != nil {
				t.Error(err)
			}
			for range number + 1 {
				if _, err := js.Publish(ctx, "s.x", []byte("body")); err != nil {
					t.Error(err)
				}
			}
			if err := broker.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	wait.Wait()
	for number, dir := range dirs {
		broker := start(t, embed.Options{StoreDir: dir})
		stream, err := connect(t, broker).Stream(ctx, "S")
		must(t, err)
		if found := stream.CachedInfo().State.Msgs; found != uint64(number+1) {
			t.Errorf("%d messages in %d", found, number)
		}
		must(t, broker.Close())
	}
}

// Three brokers of this process are the nodes of one cluster: a message that is acknowledged by one of them is there
// when that one is closed, and when all of them were.
func TestThreeBrokersAreACluster(t *testing.T) {
	ctx := patient(t)
	var routes []string
	var listeners []net.Listener
	for range 3 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		listeners = append(listeners, listener)
		routes = append(routes, "nats://"+listener.Addr().String())
	}
	for _, listener := range listeners {
		must(t, listener.Close())
	}
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	open := func(number int) *embed.Broker {
		_, port, _ := strings.Cut(strings.TrimPrefix(routes[number], "nats://"), ":")
		extra := fmt.Sprintf("server_name: n%d, cluster { name: c, host: 127.0.0.1, port: %s, routes: [%s] }",
			number, port, strings.Join(routes, ", "))
		return start(t, embed.Options{StoreDir: dirs[number], Extra: extra})
	}
	// JetStream answers when a majority is there.
	until := func(what func() error) {
		for err := what(); err != nil; err = what() {
			if ctx.Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	published := 0
	publish := func(broker *embed.Broker) {
		published++
		js, id := connect(t, broker), fmt.Sprint(published)
		until(func() error {
			short, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_, err := js.Publish(short, "s.x", []byte(id), jetstream.WithMsgID(id))
			return err
		})
	}
	brokers := []*embed.Broker{open(0), open(1), open(2)}
	config := jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3}
	js := connect(t, brokers[0])
	until(func() error {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := js.CreateStream(short, config)
		return err
	})
	publish(brokers[1])
	must(t, brokers[0].Close())
	publish(brokers[1])
	brokers[0] = open(0)
	publish(brokers[0])
	for number, broker := range brokers {
		must(t, broker.Err())
		must(t, broker.Close())
		brokers[number] = open(number)
	}
	publish(brokers[2])
	js = connect(t, brokers[0])
	var stream jetstream.Stream
	until(func() (err error) {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		stream, err = js.Stream(short, "S")
		return err
	})
	if found := stream.CachedInfo().State.Msgs; found != uint64(published) {
		t.Errorf("%d messages of %d", found, published)
	}
	for _, broker := range brokers {
		must(t, broker.Close())
	}
}

// The settings of a system that embeds its log: each is seen to work.
func TestSettings(t *testing.T) {
	ctx, dir := patient(t), t.TempDir()
	logFile := filepath.Join(dir, "logs", `broker "one".log`)
	must(t, os.Mkdir(filepath.Dir(logFile), 0o700))
	options := embed.Options{
		Port: -1, StoreDir: filepath.Join(dir, "store"), MaxFileStore: 20_000_000, MaxPayload: 8 << 20,
		MaxPending: 64 << 20, InitializeTimeout: time.Minute,
		Log: embed.Log{File: logFile, Debug: true, Trace: true, NoTime: true, SizeLimit: 1 << 29},
	}
	broker := start(t, options)
	if !strings.HasPrefix(broker.URL(), "nats://127.0.0.1:") || strings.HasSuffix(broker.URL(), ":4222") {
		t.Error(broker.URL())
	}
	conn, err := nats.Connect(broker.URL(), nats.Timeout(time.Minute))
	must(t, err)
	defer conn.Close()
	if conn.MaxPayload() != 8<<20 {
		t.Error(conn.MaxPayload())
	}
	js, err := jetstream.New(conn)
	must(t, err)
	config := jetstream.StreamConfig{Name: "P", Subjects: []string{"p.>"}}
	embed.Retention{MaxAge: 72 * time.Hour, MaxMsgs: 2}.Apply(&config)
	stream, err := js.CreateStream(ctx, config)
	must(t, err)
	for range 3 {
		_, err = js.Publish(ctx, "p.x", []byte("x"))
		must(t, err)
	}
	info, err := stream.Info(ctx)
	must(t, err)
	if info.State.Msgs != 2 || info.Config.MaxAge != 72*time.Hour || info.Config.MaxBytes != -1 {
		t.Errorf("%+v", info)
	}
	large := make([]byte, 8_000_000)
	_, err = js.Publish(ctx, "p.x", large)
	must(t, err)
	_, err = js.Publish(ctx, "p.x", large)
	must(t, err)
	var refused *jetstream.APIError
	if _, err = js.Publish(ctx, "p.x", large); !errors.As(err, &refused) || refused.ErrorCode != 10023 {
		t.Errorf("beyond MaxFileStore: %v", err)
	}
	must(t, broker.Close())
	lines, err := os.ReadFile(logFile)
	must(t, err)
	for _, kind := range []string{"[INF]", "[DBG]", "[TRC]"} {
		if !strings.Contains(string(lines), kind) {
			t.Errorf("no %s", kind)
		}
	}
	if !strings.HasPrefix(string(lines), "[") || strings.Contains(string(lines), "\n20") {
		t.Error("lines with a time")
	}
}

func TestErrors(t *testing.T) {
	for kind, options := range map[error]embed.Options{
		embed.ErrConfig:   {Extra: "prot: 4222"},
		embed.ErrOpen:     {StoreDir: "/dev/null/store"},
		embed.ErrNotReady: {StoreDir: t.TempDir(), InitializeTimeout: 1},
	} {
		if broker, err := embed.Start(options); !errors.Is(err, kind) || broker != nil {
			t.Errorf("%v: %v", kind, err)
		}
	}
	if _, err := embed.Start(embed.Options{Extra: "a\x00b"}); !errors.Is(err, embed.ErrConfig) {
		t.Error(err)
	}
	dir := t.TempDir()
	broker := start(t, embed.Options{StoreDir: dir})
	if _, err := embed.Start(embed.Options{StoreDir: dir}); !errors.Is(err, embed.ErrOpen) {
		t.Errorf("a store of two brokers: %v", err)
	}
	must(t, broker.Err())
	must(t, broker.Close())
	if _, err := broker.InProcessConn(); !errors.Is(err, embed.ErrClosed) {
		t.Error(err)
	}
	if err := broker.Close(); !errors.Is(err, embed.ErrClosed) {
		t.Error(err)
	}
	if broker.Err() == nil || broker.URL() != "" {
		t.Error("it is closed, and had no port")
	}
}
