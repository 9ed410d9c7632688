package logs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"nuthatch/embed"
	"nuthatch/embed/logs"
)

// patient is a context that a busy machine does not run out of.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t *testing.T) func(value T, err error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func broker(t *testing.T, dir string) *embed.Broker {
	t.Helper()
	return must[*embed.Broker](t)(embed.Start(embed.Options{StoreDir: dir}))
}

func connect(t *testing.T, broker *embed.Broker) *nats.Conn {
	t.Helper()
	conn := must[*nats.Conn](t)(nats.Connect("", nats.InProcessServer(broker), nats.Timeout(time.Minute)))
	t.Cleanup(conn.Close)
	return conn
}

func writer(t *testing.T, conn *nats.Conn, term uint64) *logs.Log {
	t.Helper()
	log := must[*logs.Log](t)(logs.Open(patient(t), conn, "ch.1", term, logs.ReadWrite, logs.Options{}))
	t.Cleanup(log.Close)
	return log
}

func text(record logs.Record) string {
	mark := ""
	if record.Transient {
		mark = "~"
	}
	return fmt.Sprintf("%v %s%s", record.Position, mark, record.Data)
}

func expect(t *testing.T, reader *logs.Reader, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if got := text(must[logs.Record](t)(reader.Next(patient(t)))); got != want {
			t.Fatalf("got %q, not %q", got, want)
		}
	}
}

func read(t *testing.T, log *logs.Log, start logs.Start) *logs.Reader {
	t.Helper()
	reader := must[*logs.Reader](t)(log.Read(patient(t), start, logs.ReadOptions{Transient: true}))
	t.Cleanup(reader.Close)
	return reader
}

func record(data string) logs.Record { return logs.Record{Data: []byte(data)} }

func TestRecordsAreAppendedReadAndTruncated(t *testing.T) {
	ctx := patient(t)
	broker := broker(t, t.TempDir())
	defer broker.Close()
	log := writer(t, connect(t, broker), 1)
	first := logs.Record{ID: "one", Data: []byte("a"), Properties: map[string]string{"kind": "insert", "lower": "Ü"}}
	for range 2 { // the same id is stored once
		if position := must[logs.Position](t)(log.Append(ctx, first)); position != 1 {
			t.Fatal(position)
		}
	}
	positions := must[[]logs.Position](t)(log.AppendMany(ctx, []logs.Record{record("b"), record("c"), record("d")}))
	if fmt.Sprint(positions) != "[2 3 4]" {
		t.Fatal(positions)
	}
	all := read(t, log, logs.Beginning())
	got := must[logs.Record](t)(all.Next(ctx))
	if got.ID != "one" || fmt.Sprint(got.Properties) != fmt.Sprint(first.Properties) {
		t.Fatal(got)
	}
	expect(t, all, "2 b", "3 c", "4 d")
	expect(t, read(t, log, logs.At(3)), "3 c")
	expect(t, read(t, log, logs.Behind(3)), "4 d")
	end := read(t, log, logs.End())
	must[any](t)(nil, log.Truncate(ctx, 3))
	if bounds := must[logs.Bounds](t)(log.Bounds(ctx)); bounds != (logs.Bounds{First: 4, Last: 4}) {
		t.Fatal(bounds)
	}
	expect(t, read(t, log, logs.At(1)), "4 d")
	must[any](t)(nil, log.Truncate(ctx, 1000))
	if position := must[logs.Position](t)(log.Append(ctx, record("e"))); position != 5 {
		t.Fatal("a truncation left a gap: ", position)
	}
	expect(t, end, "5 e")
}

func TestALaterWriterFencesTheEarlierOne(t *testing.T) {
	ctx, dir := patient(t), t.TempDir()
	one := broker(t, dir)
	first, other := writer(t, connect(t, one), 1), connect(t, one)
	must[logs.Position](t)(first.Append(ctx, record("a")))
	second := writer(t, other, 2)
	if _, err := first.Append(ctx, record("b")); !errors.Is(err, logs.ErrFenced) {
		t.Fatal(err)
	}
	if err := first.Truncate(ctx, 1); !errors.Is(err, logs.ErrFenced) {
		t.Fatal(err)
	}
	must[logs.Position](t)(second.Append(ctx, record("c")))
	must[any](t)(nil, one.Close())
	again := broker(t, dir)
	defer again.Close()
	conn := connect(t, again)
	if _, err := logs.Open(ctx, conn, "ch.1", 1, logs.ReadWrite, logs.Options{}); !errors.Is(err, logs.ErrFenced) {
		t.Fatal(err)
	}
	if position := must[logs.Position](t)(writer(t, conn, 3).Append(ctx, record("d"))); position != 3 {
		t.Fatal(position)
	}
	must[any](t)(nil, logs.Delete(ctx, conn, "ch.1"))
	if _, err := logs.Open(ctx, conn, "ch.1", 3, logs.ReadOnly, logs.Options{}); !errors.Is(err, logs.ErrNoChannel) {
		t.Fatal(err)
	}
}

func TestTransientRecordsComeInTheirPlace(t *testing.T) {
	ctx := patient(t)
	broker := broker(t, t.TempDir())
	defer broker.Close()
	log := writer(t, connect(t, broker), 1)
	must[logs.Position](t)(log.Append(ctx, record("a")))
	follower := read(t, log, logs.Beginning())
	expect(t, follower, "1 a")
	var wanted []string
	for n := range 200 {
		if n%3 == 0 {
			position := must[logs.Position](t)(log.Append(ctx, record("x")))
			wanted = append(wanted, fmt.Sprintf("%v x", position))
		} else {
			position := must[logs.Position](t)(log.Tell(ctx, record("tick")))
			wanted = append(wanted, fmt.Sprintf("%v ~tick", position))
		}
	}
	expect(t, follower, wanted...)
	late := read(t, log, logs.At(68))
	expect(t, late, "68 x")
	if position := must[logs.Position](t)(log.Tell(ctx, record("last"))); position != 68 {
		t.Fatal("ticks are counted: ", position)
	}
	expect(t, late, "68 ~last")
	expect(t, follower, "68 ~last")
}

func TestManyAppendersAndReadersOfLargeRecords(t *testing.T) {
	ctx := patient(t)
	broker := broker(t, t.TempDir())
	defer broker.Close()
	log := writer(t, connect(t, broker), 1)
	reader := read(t, log, logs.Beginning())
	var group sync.WaitGroup
	for n := range 32 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 20 {
				if _, err := log.Append(ctx, logs.Record{Data: bytes.Repeat([]byte{byte(n)}, 200_000)}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for n := range 32 * 20 {
		if got := must[logs.Record](t)(reader.Next(ctx)); got.Position != logs.Position(n+1) || len(got.Data) != 200_000 {
			t.Fatal(n, got.Position, len(got.Data))
		}
	}
	group.Wait()
}

func TestReadersAndWritersGoOnAfterARestart(t *testing.T) {
	ctx, dir := patient(t), t.TempDir()
	options := embed.Options{StoreDir: dir, Port: -1}
	one := must[*embed.Broker](t)(embed.Start(options))
	conn := must[*nats.Conn](t)(nats.Connect(one.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)))
	defer conn.Close()
	log := writer(t, conn, 1)
	reader := read(t, log, logs.Beginning())
	must[logs.Position](t)(log.Append(ctx, record("a")))
	expect(t, reader, "1 a")
	var port int
	if _, err := fmt.Sscanf(one.URL(), "nats://127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	must[any](t)(nil, one.Close())
	options.Port = port
	again := must[*embed.Broker](t)(embed.Start(options))
	defer again.Close()
	for {
		position, err := log.Append(ctx, logs.Record{ID: "b", Data: []byte("b")})
		if err == nil && position == 2 {
			break
		}
		if err == nil || ctx.Err() != nil {
			t.Fatal(position, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	expect(t, reader, "2 b")
	reader.Close()
	if _, err := reader.Next(ctx); !errors.Is(err, logs.ErrClosed) {
		t.Fatal(err)
	}
	log.Close()
	if _, err := log.Append(ctx, record("c")); !errors.Is(err, logs.ErrClosed) {
		t.Fatal(err)
	}
}

func Example() {
	dir, _ := os.MkdirTemp("", "nuthatch")
	defer os.RemoveAll(dir)
	broker, err := embed.Start(embed.Options{StoreDir: dir})
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	conn, err := nats.Connect("", nats.InProcessServer(broker))
	if err != nil {
		panic(err)
	}
	defer conn.Close()

	ctx := context.Background()
	first, _ := logs.Open(ctx, conn, "orders", 1, logs.ReadWrite, logs.Options{})
	position, _ := first.Append(ctx, logs.Record{Data: []byte("hello")})
	second, _ := logs.Open(ctx, conn, "orders", 2, logs.ReadWrite, logs.Options{})
	_, err = first.Append(ctx, logs.Record{Data: []byte("too late")})
	reader, _ := second.Read(ctx, logs.At(position), logs.ReadOptions{})
	record, _ := reader.Next(ctx)
	fmt.Println(record.Position, string(record.Data), errors.Is(err, logs.ErrFenced))
	// Output: 1 hello true
}
