package logs_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"nuthatch/embed"
	"nuthatch/embed/logs"
)

// appendFromMany appends as many records from goroutines of their own and tells what each got.
func appendFromMany(t *testing.T, log *logs.Log, records []logs.Record) ([]logs.Position, []error) {
	t.Helper()
	ctx := patient(t)
	positions, errs := make([]logs.Position, len(records)), make([]error, len(records))
	var group sync.WaitGroup
	for at, record := range records {
		group.Add(1)
		go func() {
			defer group.Done()
			positions[at], errs[at] = log.Append(ctx, record)
		}()
	}
	group.Wait()
	return positions, errs
}

// is tells whether the channel holds each record at the position that its append told, and nothing else.
func is(t *testing.T, log *logs.Log, records []logs.Record, positions []logs.Position) {
	t.Helper()
	at := map[logs.Position]string{}
	for index, position := range positions {
		if position != 0 {
			at[position] = string(records[index].Data)
		}
	}
	reader := read(t, log, logs.Beginning())
	for range len(at) {
		record := must[logs.Record](t)(reader.Next(patient(t)))
		if want, ok := at[record.Position]; !ok || want != string(record.Data) || len(record.Properties) != 0 {
			t.Fatalf("%v holds %q %v, not %q", record.Position, record.Data, record.Properties, want)
		}
		delete(at, record.Position)
	}
	if bounds := must[logs.Bounds](t)(log.Bounds(patient(t))); len(at) != 0 || int(bounds.Last) != countOf(positions) {
		t.Fatal(at, bounds, countOf(positions))
	}
}

func countOf(positions []logs.Position) int {
	count := 0
	for _, position := range positions {
		if position != 0 {
			count++
		}
	}
	return count
}

func numbered(n int) []logs.Record {
	records := make([]logs.Record, n)
	for at := range records {
		records[at] = record(fmt.Sprint("record ", at))
	}
	return records
}

// Fewer answers than appends show that they went together.
func TestAppendsOfManyGoTogetherAndEachKnowsItsPosition(t *testing.T) {
	broker := broker(t, t.TempDir())
	defer broker.Close()
	conn := connect(t, broker)
	log := writer(t, conn, 1)
	records, before := numbered(3000), conn.Stats().InMsgs
	positions, errs := appendFromMany(t, log, records)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if answers := conn.Stats().InMsgs - before; answers > uint64(len(records))/2 {
		t.Fatal(answers, "answers")
	}
	is(t, log, records, positions)
}

func TestTwoWritersOfOneTermDoNotMixTheirBatches(t *testing.T) {
	broker := broker(t, t.TempDir())
	defer broker.Close()
	one, other := writer(t, connect(t, broker), 1), writer(t, connect(t, broker), 1)
	records := numbered(2000)
	positions := make([]logs.Position, len(records))
	var group sync.WaitGroup
	for half, log := range []*logs.Log{one, other} {
		group.Add(1)
		go func() {
			defer group.Done()
			got, errs := appendFromMany(t, log, records[half*1000:(half+1)*1000])
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
			copy(positions[half*1000:], got)
		}()
	}
	group.Wait()
	is(t, one, records, positions)
}

// limit has the channel's stream refuse larger records, or batches.
func limit(t *testing.T, broker *embed.Broker, largest int, atomic bool) {
	t.Helper()
	config := fmt.Sprintf(`{"name":"ch=2E1","subjects":["nuthatch.log.ch=2E1"],"storage":"file","retention":"limits",
		"discard":"old","max_msgs":-1,"max_bytes":-1,"num_replicas":1,"allow_direct":true,"deny_delete":true,
		"max_msg_size":%d,"allow_atomic":%v}`, largest, atomic)
	answer, err := connect(t, broker).RequestWithContext(patient(t), "$JS.API.STREAM.UPDATE.ch=2E1", []byte(config))
	if err != nil || bytes.Contains(answer.Data, []byte(`"error"`)) {
		t.Fatal(err, string(answer.Data))
	}
}

func TestARecordThatIsRefusedTakesNoOtherWithIt(t *testing.T) {
	broker := broker(t, t.TempDir())
	defer broker.Close()
	log := writer(t, connect(t, broker), 1)
	limit(t, broker, 1000, true)
	records := numbered(600)
	for at := 7; at < len(records); at += 100 {
		records[at].Data = make([]byte, 2000)
	}
	positions, errs := appendFromMany(t, log, records)
	for at, err := range errs {
		var refused *logs.APIError
		large := at%100 == 7
		if large != (err != nil) || large && (!errors.As(err, &refused) || refused.Code != 10054) {
			t.Fatal(at, err)
		}
	}
	is(t, log, records, positions)
}

func TestAChannelThatTakesNoBatches(t *testing.T) {
	broker := broker(t, t.TempDir())
	defer broker.Close()
	conn := connect(t, broker)
	batches := writer(t, conn, 1)
	limit(t, broker, -1, false)
	singles := writer(t, conn, 1)
	records := numbered(400)
	var positions []logs.Position
	for half, log := range []*logs.Log{batches, singles} {
		got, errs := appendFromMany(t, log, records[half*200:(half+1)*200])
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		positions = append(positions, got...)
	}
	is(t, batches, records, positions)
}

func TestAppendManyKeepsTheOrder(t *testing.T) {
	broker := broker(t, t.TempDir())
	defer broker.Close()
	log := writer(t, connect(t, broker), 1)
	records := numbered(1500)
	records[3].ID, records[700].ID, records[701].ID = "a", "b", "c"
	records[900].Data = make([]byte, 600_000)
	positions := must[[]logs.Position](t)(log.AppendMany(patient(t), records))
	for at, position := range positions {
		if position != logs.Position(at+1) {
			t.Fatal(at, position)
		}
	}
	all := read(t, log, logs.Beginning())
	for at := range records {
		got := must[logs.Record](t)(all.Next(patient(t)))
		if got.ID != records[at].ID || !bytes.Equal(got.Data, records[at].Data) {
			t.Fatal(at, got.ID)
		}
	}
}

func TestAFencedWritersBatchesAreRefused(t *testing.T) {
	broker := broker(t, t.TempDir())
	defer broker.Close()
	first := writer(t, connect(t, broker), 1)
	writer(t, connect(t, broker), 2)
	_, errs := appendFromMany(t, first, numbered(200))
	for _, err := range errs {
		if !errors.Is(err, logs.ErrFenced) {
			t.Fatal(err)
		}
	}
	if bounds := must[logs.Bounds](t)(first.Bounds(patient(t))); bounds.Last != 0 {
		t.Fatal(bounds)
	}
}
